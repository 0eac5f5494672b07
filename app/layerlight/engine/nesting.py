"""Layers inside others: the experts of a layer rest and run as a layer of their own, and are no part of the outer."""

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


def own_modules(model: torch.nn.Module, layer: str, layers: Collection[str]) -> Iterator[tuple[str, torch.nn.Module]]:
    """(full name, module) of a layer's own modules, itself first; those of layers inside it are left out."""
    yield from _outside(model.get_submodule(layer), layer, set(layers) - {layer})


def _outside(module: torch.nn.Module, name: str, inner: Collection[str]) -> Iterator[tuple[str, torch.nn.Module]]:
    yield name, module
    for child_name, child in module.named_children():
        full = f"{name}.{child_name}"
        if full not in inner:
            yield from _outside(child, full, inner)
