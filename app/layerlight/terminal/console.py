"""Console: the answer goes to stdout, everything else to stderr."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TextIO

from layerlight.core.characters import printable
from layerlight.core.errors import LayerlightError


@dataclass(frozen=True, slots=True)
class Console:
    """Where words go. With `as_json` stdout gets one JSON object in place of the answer in words."""

    out: TextIO
    err: TextIO
    as_json: bool = False

    def say(self, words: str = "") -> None:
        """A line beside the answer."""
        self.err.write(printable(words) + "\n")
        self.err.flush()

    def answer(self, words: str, end: str = "\n") -> None:
        """A piece of the answer itself: to the byte, save in a terminal, which would obey its control characters.

        Raises LayerlightError where it can't be written, and BrokenPipeError where nobody reads any more.
        """
        try:
            self.out.write((printable(words) if self.out.isatty() else words) + end)
            self.out.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise LayerlightError(
                f"Standard output takes no more: {error.strerror or error}.",
                hint="Check the disk or the program that it goes to.",
                title="The answer can't be written",
            ) from error

    def give(self, found: Mapping[str, Any], words: str) -> None:
        """The answer as an object or in words, as was asked for."""
        self.answer(as_json(found) if self.as_json else words)

    def fail(self, error: LayerlightError, found: Mapping[str, Any] | None = None) -> None:
        """One title, message and hint; as JSON together with what had been found by then."""
        lines = [f"{error.title}: {error.message}", *([error.hint] if error.hint else [])]
        self.say("\n".join(lines))
        if self.as_json:
            told = {"title": error.title, "message": error.message, "hint": error.hint, "kind": type(error).__name__}
            with suppress(LayerlightError):
                self.answer(as_json({**(found or {}), "error": told}))


def as_json(found: Mapping[str, Any]) -> str:
    """In ASCII: it survives every terminal's encoding, and names of folders that are no Unicode."""
    return json.dumps(found, indent=2)
