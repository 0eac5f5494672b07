"""Text that can be stored, sent and tokenised, whatever was pasted."""

from __future__ import annotations

import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


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


def printable(text: str) -> str:
    """The same text without control characters, save tab and line feed: names in a model folder and a model's own
    words could otherwise move the cursor, clear the screen or retitle the terminal they are shown in.
    """
    return _CONTROLS.sub("�", text.replace("\r\n", "\n"))
