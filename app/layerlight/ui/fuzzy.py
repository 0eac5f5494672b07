"""Fuzzy words: how well what was typed fits what a command is called."""

from __future__ import annotations

import re

BEGINS, WITHIN, SCATTERED = 3.0, 2.0, 1.0
"""A term that begins a word, lies within one, or whose letters come in this order."""
_WORDS = re.compile(r"[^\W_]+")


def score(typed: str, text: str) -> float | None:
    """How well every term of `typed` is found in `text`; None when one isn't. More is better, 0 for nothing typed.

    Case does not count. Terms that come early, and in words of their own length, count a little more.
    """
    folded = text.casefold()
    found = 0.0
    for term in typed.casefold().split():
        points = _term(term, folded)
        if points is None:
            return None
        found += points
    return found


def _term(term: str, text: str) -> float | None:
    best: float | None = None
    for at, match in enumerate(_WORDS.finditer(text)):
        word = match.group()
        if word.startswith(term):
            points = BEGINS + 0.5 * len(term) / len(word) - 0.02 * at
        elif term in word:
            points = WITHIN - 0.02 * at
        else:
            continue
        best = points if best is None else max(best, points)
    if best is not None:
        return best
    if term in text:
        return WITHIN
    return SCATTERED if _scattered(term, text) else None


def _scattered(term: str, text: str) -> bool:
    """Whether the letters come in this order, each at a word's start or after the one before: `rtf` of “reset to the
    fastest”."""
    if len(term) < 2:
        return False
    parts = [rf"(?:{re.escape(letter)}|.*?\b{re.escape(letter)})" for letter in term[1:]]
    return re.search(rf"\b{re.escape(term[0])}{''.join(parts)}", text) is not None
