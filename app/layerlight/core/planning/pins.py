"""Pins: layers that a person wants on a certain place, written `model.layers.0-7=cuda:0`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from layerlight.core.errors import BadRequest, MapMismatch
from layerlight.core.planning.units import Unit

_RANGE = re.compile(r"(.*?)(\d+)-(\d+)((?:\..*)?)")
_MOST_LAYERS = 10_000


def parse_pin(words: str) -> tuple[str, str]:
    """(which, place) for `WHICH=PLACE`; which is a layer, a range of numbered ones, or a pattern with `*`.

    Raises BadRequest when it is none of them.
    """
    which, equals, place = (part.strip() for part in words.rpartition("="))
    if not equals or not which or not place or any(character.isspace() for character in which + place):
        raise BadRequest(
            f"“{words}” is not a pin.", hint="Write LAYERS=PLACE, for example 'model.layers.0-7=cuda:0' or '*=cpu'."
        )
    found = _RANGE.fullmatch(which)
    if found and not int(found[2]) <= int(found[3]) < _MOST_LAYERS:
        raise BadRequest(
            f"“{which}” is no range of layers.", hint=f"Write the smaller number first, at most {_MOST_LAYERS - 1}."
        )
    return which, place


def pinned_units(units: Sequence[Unit], pins: Iterable[tuple[str, str]], allowed: Iterable[str]) -> dict[int, str]:
    """The place of each pinned unit, by its number; of two pins for one unit the later counts.

    Raises BadRequest for pins that match no layer, go on after the last one or name a place that is not allowed here,
    and MapMismatch where layers that share weights would be parted.
    """
    places = tuple(allowed)
    found: dict[str, str] = {}
    names = [layer.name for unit in units for layer in unit.layers]
    for which, place in pins:
        if place not in places:
            raise BadRequest(
                f"“{which}” is pinned to {place}, which this machine does not have or a limit of 0 forbids.",
                hint=f"Places that may be used here: {', '.join(places)}.",
            )
        matched = _matched(which, names)
        if not matched:
            raise BadRequest(
                f"The pin “{which}” fits no layer of this model.",
                hint=f"Layers are called like {', '.join(f'“{name}”' for name in _examples(names))}.",
            )
        _require_end(which, names)
        found |= dict.fromkeys(matched, place)
    chosen = {number: _place(unit, found) for number, unit in enumerate(units)}
    return {number: place for number, place in chosen.items() if place is not None}


def _place(unit: Unit, places: dict[str, str]) -> str | None:
    """A unit goes where any of its layers is pinned: they share weights."""
    own = {places[layer.name] for layer in unit.layers if layer.name in places}
    if len(own) > 1:
        raise MapMismatch(
            f"{' and '.join(f'“{layer.name}”' for layer in unit.layers)} share weights and must rest on one place.",
            title="Tied weights can't be parted",
        )
    return own.pop() if own else None


def _matched(which: str, names: list[str]) -> list[str]:
    found = _RANGE.fullmatch(which)
    numbers = range(int(found[2]), int(found[3]) + 1) if found else ()
    wanted = {f"{found[1]}{number}{found[4]}" for number in numbers} if found else {which}
    patterns = [each for each in wanted if "*" in each]
    return [name for name in names if name in wanted or any(fnmatchcase(name, each) for each in patterns)]


def _require_end(which: str, names: list[str]) -> None:
    """Raises BadRequest for a range that goes on after the last layer; within it some may lack the part it names."""
    found = _RANGE.fullmatch(which)
    if not found:
        return
    prefix = ".*".join(map(re.escape, found[1].split("*")))
    layers = {int(hit[1]): hit[0] for name in names if (hit := re.match(rf"{prefix}(\d+)(?![^.])", name))}
    last = max(layers, default=None)
    if last is not None and int(found[3]) > last:
        raise BadRequest(
            f"The pin “{which}” goes on after this model's last layer, “{layers[last]}”.",
            hint=f"Write {found[1]}{min(int(found[2]), last)}-{last}{found[4]} for all up to the last.",
        )


def _examples(names: list[str]) -> list[str]:
    return list(dict.fromkeys((names[0], names[len(names) // 2], names[-1])))
