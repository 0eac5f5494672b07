"""A pass through the empty model: what its cache keeps and what lives at once, exact for any architecture."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from layerlight.core.sizing.work import Work
from layerlight.engine.failures import LIBRARY_FAILURES

MOST_OPERATORS = 60_000
"""Where a pass takes more, it is given up: some architectures compute token by token without their kernels."""


@dataclass(frozen=True, slots=True)
class PassBytes:
    """Bytes at the end of a context read in chunks."""

    kv: tuple[int, ...]
    """What the cache holds, by decoder layer."""
    work: Work
    """What lives beside weights and cache."""


class _TooLong(RuntimeError):
    """The pass takes more operators than are worth waiting for."""


def pass_bytes(model: Any, context: int, chunk: int) -> PassBytes | None:
    """A prompt as long as the context; None where the empty model can't run it, or not soon.

    Work is counted in its last whole chunk, which is the most demanding. Scores that attention keeps inside one kernel
    are not counted. Two passes before the counted one leave windows as a prompt leaves them.
    """
    whole = context // chunk * chunk or context
    counted = min(chunk, context)
    before = [tokens for tokens in (whole - 2 * counted, counted) if tokens > 0] if whole > counted else []
    alive = _AliveBytes((*model.parameters(), *model.buffers()))
    cache = None
    try:
        with torch.no_grad(), alive.inside(_computing_modules(model)), alive, _AttentionInOneKernel():
            for tokens in before:
                cache = _run(model, tokens, cache)
            alive.reset_peak()
            cache = _run(model, counted, cache)
            kv = _kept(cache)
            work = Work(alive.peak - sum(kv), max(0, alive.peak_inside - sum(kv)))
            if context > whole:
                kv = tuple(map(max, kv, _kept(_run(model, context - whole, cache))))
    except LIBRARY_FAILURES:  # what can't be asked is left to the plan's own formula
        return None
    return PassBytes(kv, work)


def _computing_modules(model: Any) -> list[torch.nn.Module]:
    """Modules with weights and with none below them: while they compute, weights that are carried are there."""
    return [
        module
        for module in model.modules()
        if any(True for _ in module.parameters(recurse=False))
        and not any(True for child in module.children() for _ in child.parameters())
    ]


def _kept(cache: Any) -> tuple[int, ...]:
    return tuple(sum(each.nbytes() for each in storages_of(layer)) for layer in cache.layers)


def cache_after(model: Any, tokens: int) -> int:
    """Bytes of the cache after one pass. Raises what the library raises where the empty model can't run."""
    with torch.no_grad():
        cache = _run(model, tokens, None)
    return sum(_kept(cache))


def storages_of(layer: Any) -> list[torch.UntypedStorage]:
    """Memory of every tensor that one layer of a cache holds, also below lists and mappings, each once."""
    found = {id(tensor.untyped_storage()): tensor.untyped_storage() for tensor in _tensors_in(vars(layer))}
    return list(found.values())


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors_in(each)


def _run(model: Any, tokens: int, cache: Any) -> Any:
    """The cache after these tokens, and after `cache`."""
    last = {"logits_to_keep": 1} if model._supports_logits_to_keep() else {}
    ids = torch.zeros((1, tokens), dtype=torch.long, device="meta")
    out = model(input_ids=ids, use_cache=True, **({"cache": cache} if cache is not None else {}), **last)
    kept = getattr(out, "cache", None)
    return kept if kept is not None else out.past_key_values


class _AliveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the memory that operators return, until it is let go."""

    def __init__(self, known: tuple[torch.Tensor, ...]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self.peak_inside = 0
        """The same while one of the modules given to `inside` computed."""
        self._alive = 0
        self._inside = 0
        self._operators = 0
        self._own = {id(storage): storage for storage in (tensor.untyped_storage() for tensor in known)}
        self._references: dict[int, Any] = {}

    def reset_peak(self) -> None:
        self.peak = self.peak_inside = self._alive

    @contextmanager
    def inside(self, modules: Iterable[torch.nn.Module]) -> Iterator[None]:
        """Tells these modules' own passes from what is computed between them."""

        def enter(*_: Any) -> None:
            self._inside += 1

        def leave(*_: Any) -> None:
            self._inside -= 1

        hooks = []
        for module in modules:
            hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave, always_call=True)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._operators += 1
        if self._operators > MOST_OPERATORS:
            raise _TooLong
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor):
                self._see(each.untyped_storage())
        self.peak = max(self.peak, self._alive)
        if self._inside:
            self.peak_inside = max(self.peak_inside, self._alive)
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._own or key in self._references:
            return

        def gone(_: Any) -> None:
            self._alive -= size
            del self._references[key]

        self._references[key] = weakref.ref(storage, gone)
        self._alive += size


class _AttentionInOneKernel(TorchFunctionMode):
    """Gives attention's result without its steps; a mask of booleans becomes numbers first, as torch does it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        query, _, value = args[:3]
        mask = (kwargs or {}).get("attn_mask")
        turned = query.new_empty(mask.shape) if mask is not None and mask.dtype == torch.bool else mask
        result = query.new_empty((*query.shape[:-1], value.shape[-1]))
        del turned
        return result
