"""A placement map by hand: read from JSON, checked against the model and the machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from layerlight.core.errors import BadRequest, MapMismatch, UnknownPlace
from layerlight.core.model import Model
from layerlight.core.planning.units import Unit


def read_map(text: str, model: Model | None = None) -> tuple[tuple[str, str], ...]:
    """(layer, place) pairs from JSON: {layer: place}, a saved plan, or what `plan --json` printed.

    Raises BadRequest when it is none of them, and MapMismatch for a plan that was saved for another model than this.
    """
    try:
        data = json.loads(text.removeprefix("\ufeff"))
        if isinstance(data, dict) and isinstance(data.get("placements"), list):
            pairs = [(entry["layer"], entry["rests_on"]) for entry in data["placements"]]
        elif isinstance(data, dict) and isinstance(data.get("device_map"), dict):
            pairs = list(data["device_map"].items())
        else:
            pairs = list(data.items())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadRequest(
            "The map is not JSON of the form {layer: place}.", hint="Take one from “plan --json”."
        ) from error
    if model is not None:
        _check_model(data, model)
    return tuple((str(layer), _place_name(place)) for layer, place in pairs)


def read_map_file(path: str | Path, model: Model) -> tuple[tuple[str, str], ...]:
    """The map in a file. Raises BadRequest for a file that can't be read or is empty, and what `read_map` raises."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(
            f"The map {path} can't be read: {getattr(error, 'strerror', None) or error}.",
            hint="Take one from “layerlight plan FOLDER --json”.",
        ) from error
    pairs = read_map(text, model)
    if not pairs:
        raise BadRequest(f"The map {path} is empty.", hint="It must name every layer of the model.")
    return pairs


def _check_model(data: Mapping[str, object], model: Model) -> None:
    """Layers of two models may have the same names: a saved plan also tells how many parameters its model has."""
    parameters = data.get("parameters")
    if isinstance(parameters, int) and parameters != model.parameters:
        raise MapMismatch(
            f"The plan was saved for {data.get('model') or 'another model'}, which has {parameters:,} parameters; "
            f"{model.name or 'this model'} has {model.parameters:,}.",
            hint="Plan again for this model.",
        )


def place_by_hand(units: Sequence[Unit], allowed: Iterable[str], places: Mapping[str, str]) -> tuple[str, ...]:
    """The place of each unit as the map says.

    Raises MapMismatch for names that are missing, strange, or parted from weights they share, and UnknownPlace for
    places that are not allowed here.
    """
    names = [layer.name for unit in units for layer in unit.layers]
    missing = [name for name in names if name not in places]
    extra = sorted(set(places) - set(names))
    faults = [
        *([f"leaves out {some(missing)}"] if missing else []),
        *([f"names {some(extra)}, which this model does not have"] if extra else []),
    ]
    if faults:
        raise MapMismatch(f"The map {' and '.join(faults)}.", hint="Plan again for this model.")
    absent = sorted(set(places.values()) - set(allowed))
    if absent:
        raise UnknownPlace(
            f"The map uses {some(absent)}, which this machine does not have or a limit of 0 forbids.",
            hint="Plan again for this machine.",
        )
    for unit in units:
        if len({places[layer.name] for layer in unit.layers}) > 1:
            raise MapMismatch(
                f"{some([layer.name for layer in unit.layers])} share weights and must rest on one place.",
                title="Tied weights can't be parted",
            )
    return tuple(places[unit.layers[0].name] for unit in units)


def some(names: Iterable[str]) -> str:
    """The first few names, quoted, and how many more there are."""
    listed = list(names)
    shown = ", ".join(f"“{name}”" for name in listed[:4])
    return shown + (f" and {len(listed) - 4} more" if len(listed) > 4 else "")


def _place_name(place: object) -> str:
    """accelerate writes CUDA devices as bare numbers."""
    return f"cuda:{place}" if isinstance(place, int) and not isinstance(place, bool) else str(place)
