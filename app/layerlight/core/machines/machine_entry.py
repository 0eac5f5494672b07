"""A table of a machine file: its words, sizes and rates, each with where it comes from, or what is wrong, in words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layerlight.core.device import LARGEST_SIZE, parse_size
from layerlight.core.errors import BadRequest, BadSize

CONFIDENCES = ("specified", "measured", "derived", "typical", "doubtful")
"""Specified by the maker; measured by someone and published; derived from other figures; typical of its class, so an
assumption; doubtful, as sources disagree."""

_RATE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGTP]?)(B|FLOP|OP)/s\s*")
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


@dataclass(frozen=True, slots=True)
class Figure:
    """Where a number of the file comes from. `name` says which it is, e.g. `cuda:0 bandwidth`."""

    name: str
    value: str
    confidence: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A table of the file, and where it stands in it."""

    file: str
    where: str
    content: Mapping[str, Any]

    def fault(self, what: str) -> BadRequest:
        return fault(self.file, f"{self.where}: {what}" if self.where else what)

    def only(self, known: frozenset[str]) -> None:
        """Raises BadRequest for a key that means nothing: a misspelt one would silently be left out."""
        if unknown := sorted(set(self.content) - known):
            raise self.fault(f"“{unknown[0]}” means nothing here; known are {', '.join(sorted(known))}")

    def words(self, key: str, default: str | None = None) -> str:
        found = self.content.get(key, default)
        if not isinstance(found, str) or (default is None and not found.strip()):
            raise self.fault(f"“{key}” must be words in quotes")
        return found

    def tables(self, key: str) -> list[Mapping[str, Any]]:
        found = self.content.get(key, [])
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self.fault(f"“{key}” must be written as [[{key}]]")
        return found

    def value(self, key: str, figures: list[Figure]) -> Any:
        """A figure's value, None where it is not given; what is known of it is added to `figures`."""
        found = self.content.get(key)
        confidence = source = ""
        if isinstance(found, dict):
            inner = Entry(self.file, f"{self.where} {key}".strip(), found)
            inner.only(frozenset({"value", "confidence", "source"}))
            confidence, source = inner.words("confidence", ""), inner.words("source", "")
            if confidence and confidence not in CONFIDENCES:
                raise inner.fault(f"“{confidence}” is no confidence; use {', '.join(CONFIDENCES)}")
            if "value" not in found:
                raise inner.fault("the value is missing")
            found = found["value"]
        if found is not None:
            figures.append(Figure(f"{self.where} {key}".strip(), str(found), confidence, source))
        return found

    def size(self, key: str, figures: list[Figure]) -> int | None:
        """Bytes, from words or a whole number."""
        found = self.value(key, figures)
        if found is None:
            return None
        if isinstance(found, str):
            try:
                return parse_size(found)
            except BadSize as error:
                raise self.fault(f"“{key}”: {error.message}") from error
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= LARGEST_SIZE:
            raise self.fault(f'“{key}” must be a size such as "8 GiB" or a whole number of bytes')
        return found

    def rate(self, key: str, figures: list[Figure]) -> float | None:
        """Bytes or operations per second, from words or a number."""
        found = self.value(key, figures)
        if isinstance(found, str) and (match := _RATE.fullmatch(found)):
            found = float(match[1]) * _PREFIXES[match[2]]
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found) or found <= 0:
            raise self.fault(f'“{key}” must be a rate such as "256 GB/s" or "23.2 TFLOP/s", or a number above 0')
        return float(found)


def fault(file: str, what: str) -> BadRequest:
    return BadRequest(
        f"The machine file {file} can't be used: {what}.", hint="Mend the file or choose another machine."
    )
