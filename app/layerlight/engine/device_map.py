"""Placements → the complete, disjoint device map that transformers needs."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from layerlight.core.errors import MapMismatch
from layerlight.core.messages import LoadRequest


def require_names(model: torch.nn.Module, places: Mapping[str, str]) -> None:
    """Raises MapMismatch when a placement names what the model does not have."""
    known = {name for name, _ in model.named_modules()}
    absent = [name for name in places if name not in known]
    if absent:
        raise MapMismatch(
            f"It names {_some(absent)}, which {type(model).__name__} does not have.", hint="Plan again for this model."
        )


def main_device(request: LoadRequest) -> str:
    """Where layers that rest in RAM or on disk run; without any, where the first layer runs.

    Raises MapMismatch when the request wants two such devices, which accelerate can't do.
    """
    mains = list(
        dict.fromkeys(placement.runs_on for placement in request.placements if placement.rests_on in ("cpu", "disk"))
    )
    if len(mains) > 1:
        raise MapMismatch(
            f"Layers resting in RAM or on disk can run on one device only, not on {' and '.join(mains)}.",
            title="That plan can't be carried out",
        )
    if mains:
        return mains[0]
    return request.placements[0].runs_on if request.placements else "cpu"


def complete_map(model: torch.nn.Module, places: Mapping[str, str], main: str) -> dict[str, str]:
    """`places` with every module it leaves out: buffers at the main device, tied weights beside their source.

    No parent is ever named: transformers matches names as prefixes, so a default for a parent would catch its
    children, and `layers.1` would catch `layers.10` were that not listed itself.
    Raises MapMismatch when weights would be without a place.
    """
    tied = dict(getattr(model, "all_tied_weights_keys", None) or {})
    complete = dict(places)
    uncovered: list[str] = []
    for name in _uncovered(model, places):
        sources = {tied[full] for full in _parameter_names(model, name) if full in tied}
        untied = [full for full in _parameter_names(model, name) if full not in tied]
        if untied:
            uncovered.extend(untied)
        elif sources:
            complete[name] = next((places[each] for each in places if _holds(each, min(sources))), main)
        else:
            complete[name] = main
    if uncovered:
        raise MapMismatch(f"It leaves weights without a place: {_some(uncovered)}.", hint="Plan again for this model.")
    return complete


def _uncovered(model: torch.nn.Module, places: Mapping[str, str]) -> list[str]:
    """Topmost modules with tensors that no placement covers and that cover no placement."""
    found: list[str] = []

    def visit(module: torch.nn.Module, name: str) -> None:
        if name in places:
            return
        if name and not any(_holds(name, each) for each in places):
            if any(True for _ in (*module.parameters(), *module.buffers())):
                found.append(name)
            return
        for own, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            found.append(f"{name}.{own}" if name else own)
        for child_name, child in module.named_children():
            visit(child, f"{name}.{child_name}" if name else child_name)

    visit(model, "")
    return found


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer + ".")


def _parameter_names(model: torch.nn.Module, name: str) -> list[str]:
    """Full names of parameters in a module, or of the parameter itself; a tied one is named like any other."""
    return [full for full, _ in model.named_parameters(remove_duplicate=False) if _holds(name, full)]


def _some(names: list[str]) -> str:
    shown = ", ".join(f"“{name}”" for name in names[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")
