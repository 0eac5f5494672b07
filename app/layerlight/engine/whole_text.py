"""Token ids → text as it grows, in whole characters only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BROKEN = "�"
_TAIL = 5
"""Ids of the prompt's end that give the first word of the answer its right space."""


class WholeText:
    """Decodes an answer as it grows. What is said is never taken back.

    An emoji or a Chinese character may be split over several tokens: it is said when it is whole. Decoding starts at
    the last id already said, so that a tokenizer's rules for spaces see the word before.
    """

    def __init__(self, tokenizer: Any, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._ids = list(prompt[-_TAIL:])
        self._before = 0
        self._said = len(self._ids)

    def add(self, token: int) -> str:
        """The text that became whole with this token; empty while a character is still incomplete."""
        self._ids.append(token)
        return self._new(final=False)

    def finish(self) -> str:
        """What is left at the end; a character cut in the middle shows as �."""
        return self._new(final=True)

    def _new(self, *, final: bool) -> str:
        before = self._decode(self._ids[self._before : self._said])
        now = self._decode(self._ids[self._before :])
        if not final and (len(now) <= len(before) or now.endswith(BROKEN)):
            return ""
        self._before, self._said = self._said, len(self._ids)
        return now[len(before) :]

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
