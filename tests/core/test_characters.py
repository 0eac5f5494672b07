"""F15: half of an emoji pair is replaced, never fatal."""

from __future__ import annotations

import pytest

from layerlight.core.characters import mended


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("nul \0 byte", "nul \0 byte"),
        ("漢 é 🤖", "漢 é 🤖"),
        ("half \ud83d", "half �"),
        ("\udc00 half", "� half"),
        ("a\udce9b", "a�b"),
        ("\ud83e\udd16", "🤖"),
        ("\udd16\ud83e", "��"),
        ("🤖\ud83d漢", "🤖�漢"),
    ],
)
def test_mended_text_is_valid_and_keeps_all_else(text: str, expected: str) -> None:
    assert mended(text) == expected
    mended(text).encode()
