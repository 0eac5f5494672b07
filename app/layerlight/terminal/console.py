"""Console: the answer goes to stdout, everything else to stderr."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from layerlight.core.errors import LayerlightError


@dataclass(frozen=True, slots=True)
class Console:
    """Where words go. With `as_json` stdout gets one JSON object in place of the answer in words."""

    out: TextIO
    err: TextIO
    as_json: bool = False

    def say(self, words: str = "") -> None:
        """A line beside the answer."""
        self.err.write(words + "\n")
        self.err.flush()

    def answer(self, words: str, end: str = "\n") -> None:
        """A piece of the answer itself."""
        self.out.write(words + end)
        self.out.flush()

    def give(self, found: Mapping[str, Any], words: str) -> None:
        """The answer as an object or in words, as was asked for."""
        self.answer(as_json(found) if self.as_json else words)

    def fail(self, error: LayerlightError, found: Mapping[str, Any] | None = None) -> None:
        """One title, message and hint; as JSON together with what had been found by then."""
        lines = [f"{error.title}: {error.message}", *([error.hint] if error.hint else [])]
        self.say("\n".join(lines))
        if self.as_json:
            told = {"title": error.title, "message": error.message, "hint": error.hint, "kind": type(error).__name__}
            self.answer(as_json({**(found or {}), "error": told}))


def as_json(found: Mapping[str, Any]) -> str:
    """In ASCII: it survives every terminal's encoding, and names of folders that are no Unicode."""
    return json.dumps(found, indent=2)
