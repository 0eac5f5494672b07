"""Layers as modules: those inside others, as experts are, and those that are a parameter of the module around them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import torch


def outer_of(layers: Iterable[str]) -> dict[str, str]:
    """The layer around each of those that lie inside another."""
    names = set(layers)
    found = {}
    for name in names:
        outer = name
        while outer := outer.rpartition(".")[0]:
            if outer in names:
                found[name] = outer
                break
    return found


def module_of(model: torch.nn.Module, layer: str) -> torch.nn.Module:
    """The module of this name; for a parameter that stands alone among modules, one that holds nothing else and that
    no pass calls. Raises AttributeError where there is neither."""
    parameter = _alone(model, layer)
    if parameter is None:
        return model.get_submodule(layer)
    alone = torch.nn.Module()
    alone.register_parameter(layer.rpartition(".")[2], parameter)
    return alone


def own_modules(model: torch.nn.Module, layer: str, layers: Collection[str]) -> Iterator[tuple[str, torch.nn.Module]]:
    """(full name, module) of a layer's own modules, itself first; those of layers inside it are left out.

    A parameter that stands alone comes by the name of the module around it, with its `module_of`.
    """
    name = layer if _alone(model, layer) is None else layer.rpartition(".")[0]
    yield from _outside(module_of(model, layer), name, set(layers) - {layer})


def _alone(model: torch.nn.Module, layer: str) -> torch.nn.Parameter | None:
    outer, _, name = layer.rpartition(".")
    return model.get_submodule(outer)._parameters.get(name)


def _outside(module: torch.nn.Module, name: str, inner: Collection[str]) -> Iterator[tuple[str, torch.nn.Module]]:
    yield name, module
    for child_name, child in module.named_children():
        full = f"{name}.{child_name}"
        if full not in inner:
            yield from _outside(child, full, inner)
