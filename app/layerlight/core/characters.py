"""Text that can be stored, sent and tokenised, whatever was pasted."""

from __future__ import annotations


def mended(text: str) -> str:
    """The same text as valid Unicode: halves of a pair that stand side by side are joined, a lone half becomes �.

    Half an emoji reaches us from old chat files, from clipboards and from file names that are not UTF-8; SQLite,
    JSON and tokenisers all refuse it.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
