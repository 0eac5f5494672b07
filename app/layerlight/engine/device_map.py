"""Placements → the complete, disjoint device map that transformers needs."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from layerlight.core.errors import MapMismatch
from layerlight.core.messages import LoadRequest
from layerlight.engine.nesting import outer_of


def require_names(model: torch.nn.Module, places: Mapping[str, str]) -> None:
    """Raises MapMismatch when a placement names what the model does not have."""
    known = {name for name, _ in (*model.named_modules(), *model.named_parameters(remove_duplicate=False))}
    absent = [name for name in places if name not in known]
    if absent:
        raise MapMismatch(
            f"It names {_some(absent)}, which {type(model).__name__} does not have.", hint="Plan again for this model."
        )


def main_device(request: LoadRequest) -> str:
    """Where layers that rest in RAM or on disk run; without any, where the first layer runs. Experts that stay in RAM
    say nothing about it.

    Raises MapMismatch when the request wants two such devices, which accelerate can't do.
    """
    staying = experts_staying(request)
    mains = list(
        dict.fromkeys(
            placement.runs_on
            for placement in request.placements
            if placement.rests_on in ("cpu", "disk") and placement.layer not in staying
        )
    )
    if len(mains) > 1:
        raise MapMismatch(
            f"Layers resting in RAM or on disk can run on one device only, not on {' and '.join(mains)}.",
            title="That plan can't be carried out",
        )
    if mains:
        return mains[0]
    return request.placements[0].runs_on if request.placements else "cpu"


def experts_staying(request: LoadRequest) -> tuple[str, ...]:
    """Layers inside others that the CPU runs while an accelerator runs what is around them.

    Raises MapMismatch where one would run on another accelerator than the layer around it.
    """
    runs = {placement.layer: placement.runs_on for placement in request.placements}
    found = []
    for inner, outer in outer_of(runs).items():
        if runs[inner] == runs[outer]:
            continue
        if runs[inner] != "cpu":
            raise MapMismatch(
                f"“{outer}” and its experts would run on {runs[outer]} and {runs[inner]}.",
                title="That plan can't be carried out",
            )
        found.append(inner)
    return tuple(found)


def complete_map(model: torch.nn.Module, places: Mapping[str, str], main: str) -> dict[str, str]:
    """`places` with every module it leaves out: buffers at the main device, tied weights beside their source.

    No parent is ever named: transformers matches names as prefixes, so a default for a parent would catch its
    children, and `layers.1` would catch `layers.10` were that not listed itself. A layer with experts apart is named by
    its parts: accelerate would move them along with it.
    Raises MapMismatch when weights would be without a place.
    """
    tied = dict(getattr(model, "all_tied_weights_keys", None) or {})
    for outer in set(outer_of(places).values()):
        places = _in_parts(model, outer, places)
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


def _in_parts(model: torch.nn.Module, outer: str, places: Mapping[str, str]) -> dict[str, str]:
    """`places` with the modules and parameters of this layer, that lie in no layer inside it, in its place."""
    rest = {name: place for name, place in places.items() if name != outer}
    inside = [name for name in rest if name.startswith(f"{outer}.")]

    def parts(module: torch.nn.Module, name: str) -> list[str]:
        if not any(_holds(name, each) for each in inside):
            return [name] if any(True for _ in (*module.parameters(), *module.buffers())) else []
        own = [f"{name}.{each}" for each, _ in (*module.named_parameters(recurse=False),)]
        own += [f"{name}.{each}" for each, _ in module.named_buffers(recurse=False)]
        children = ((f"{name}.{each}", child) for each, child in module.named_children())
        return [*own, *(part for full, child in children if full not in inside for part in parts(child, full))]

    return {**dict.fromkeys(parts(model.get_submodule(outer), outer), places[outer]), **rest}


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
        alone = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        found.extend(full for own, _ in alone if (full := f"{name}.{own}" if name else own) not in places)
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
