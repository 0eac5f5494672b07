"""Experts that rest on disk and run on the CPU: pages of their file, of which the chosen ones are brought at once."""

from __future__ import annotations

import errno
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from layerlight.core.messages import LoadRequest
from layerlight.engine.disk_weights import DiskWeight, Index, is_called, take_over, weights_on_disk
from layerlight.engine.nesting import outer_of
from layerlight.engine.ring.layer_ring import READERS
from layerlight.engine.ring.page_buffer import PAGE
from layerlight.engine.ring.unit_layout import PIECE, StoredTensor
from layerlight.engine.streaming import Carried

_POPULATE_READ = 22
"""MADV_POPULATE_READ, of Linux 5.14: reads pages in and says so when it can't, where touching them is a bus error."""
_LISTENING = 0.05
"""Seconds between two looks for a stop while pages are waited for."""


@dataclass(frozen=True, slots=True)
class MappedWeight:
    """A parameter that is a view of its file; `parts` is the number of experts that lie one after another in it."""

    stored: StoredTensor
    parts: int

    def ranges(self, chosen: Sequence[int] | None) -> Iterator[tuple[str, int, int]]:
        """(path, begin, end) of the chosen experts, neighbours together, at most a few MB each; None is all."""
        size = self.stored.size // self.parts
        for first, last in _runs(range(self.parts) if chosen is None or self.parts == 1 else chosen):
            begin, end = self.stored.begin + first * size, self.stored.begin + (last + 1) * size
            for at in range(begin, end, PIECE):
                yield self.stored.path, at, min(end, at + PIECE)


class FilePages:
    """Files mapped into memory, their pages read by threads of its own."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Raises OSError when a file can't be opened."""
        self._numbers: dict[str, int] = {}
        self._maps: dict[str, mmap.mmap] = {}
        self._populates = hasattr(mmap.mmap, "madvise") and hasattr(os, "preadv")
        try:
            for path in dict.fromkeys(paths):
                self._numbers[path] = os.open(path, os.O_RDONLY)
                self._maps[path] = mmap.mmap(self._numbers[path], 0, access=mmap.ACCESS_COPY)
        except OSError:
            self.close()
            raise
        self._threads = ThreadPoolExecutor(READERS, "experts")

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self._maps)

    def view(self, stored: StoredTensor, shape: Sequence[int]) -> torch.Tensor:
        """The tensor as it lies in its file. `stored.begin` must be a multiple of an element's size."""
        count = stored.size // stored.dtype.itemsize
        flat = torch.frombuffer(self._maps[stored.path], dtype=stored.dtype, count=count, offset=stored.begin)
        return flat.view(*shape)

    def bring(self, ranges: Sequence[tuple[str, int, int]], check: Callable[[], None]) -> None:
        """Reads these bytes of the files into memory. `check` is called meanwhile, and may raise; what is under way
        then goes on. Raises OSError when they can't be read."""
        pending: set[Future[None]] = {self._threads.submit(self._bring, *each) for each in ranges}
        while pending:
            done, pending = wait(pending, _LISTENING)
            for each in done:
                each.result()
            if pending:
                check()

    def let_go(self, ranges: Sequence[tuple[str, int, int]]) -> None:
        """These bytes are no longer this process's memory; the system may still have them in its cache."""
        if not self._populates:
            return
        for path, begin, end in ranges:
            inner, outer = -(-begin // PAGE) * PAGE, end // PAGE * PAGE
            if outer > inner:
                self._maps[path].madvise(mmap.MADV_DONTNEED, inner, outer - inner)

    def close(self) -> None:
        """Ends the threads. Pages go with the last view of them."""
        threads = getattr(self, "_threads", None)
        if threads is not None:
            threads.shutdown(cancel_futures=True)
        self._maps.clear()
        while self._numbers:
            os.close(self._numbers.popitem()[1])

    def _bring(self, path: str, begin: int, end: int) -> None:
        start = begin // PAGE * PAGE
        if self._populates:
            if hasattr(os, "posix_fadvise"):  # all of it asked for at once: page by page a disk is slow
                os.posix_fadvise(self._numbers[path], start, end - start, os.POSIX_FADV_WILLNEED)
            try:
                self._maps[path].madvise(_POPULATE_READ, start, end - start)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._populates = False  # an older system: reading them brings them into its cache at least
            else:
                return
        if hasattr(os, "pread"):
            os.pread(self._numbers[path], end - start, start)


class MappedExperts:
    """Experts of a model whose parameters are views of their files. Each pass reads what the router chose, at once."""

    def __init__(self, model: torch.nn.Module, weights: Mapping[str, Sequence[DiskWeight]]) -> None:
        """`weights` of each layer that holds experts. Raises OSError when a file can't be opened."""
        self.carried = {layer: Carried() for layer in weights}
        self.stored = {weight.full: weight.stored for own in weights.values() for weight in own}
        """Every weight that is mapped, by its full name."""
        self.pages = FilePages([stored.path for stored in self.stored.values()])
        self._check: Callable[[], None] = _nothing
        self._hooks: list[RemovableHandle] = []
        model.mapped_experts = self  # type: ignore[assignment]
        for layer, own in weights.items():
            module = model.get_submodule(layer)
            for weight in own:
                view = self.pages.view(weight.stored, weight.resting.shape)
                weight.holder[weight.name] = torch.nn.Parameter(view, requires_grad=False)
            if is_called(module):
                self._watch(module, [MappedWeight(each.stored, _parts(each.resting, own)) for each in own], layer)

    @contextmanager
    def during(self, check: Callable[[], None]) -> Iterator[None]:
        """While a run lasts, `check` is called wherever it waits, and may raise."""
        self._check = check
        try:
            yield
        finally:
            self._check = _nothing

    def close(self) -> None:
        """Ends the threads; the views last as long as the model."""
        while self._hooks:
            self._hooks.pop().remove()
        self.pages.close()

    def _watch(self, module: torch.nn.Module, weights: Sequence[MappedWeight], layer: str) -> None:
        carried, brought = self.carried[layer], list[tuple[str, int, int]]()

        def enter(_module: object, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            started = time.perf_counter()
            chosen = chosen_experts((*inputs, *named.values()), max(each.parts for each in weights))
            brought[:] = [each for weight in weights for each in weight.ranges(chosen)]
            self.pages.bring(brought, self._check)
            carried.bytes += sum(end - begin for _, begin, end in brought)
            carried.seconds += time.perf_counter() - started

        def leave(*_unused: object) -> None:
            self.pages.let_go(brought)

        self._hooks.append(module.register_forward_pre_hook(enter, prepend=True, with_kwargs=True))
        self._hooks.append(module.register_forward_hook(leave))


def map_experts(model: Any, request: LoadRequest, index: Index) -> MappedExperts | None:
    """Takes experts that rest on disk and run on the CPU over from accelerate; None when there are none.

    Where the system keeps room for all of a mapped file, or their bytes are not what is computed with, they stay.
    Raises BrokenModel or OSError when a file is no longer what it was.
    """
    layers = tuple(placement.layer for placement in request.placements)
    inside = outer_of(layers)
    there = [each.layer for each in request.placements if each.rests_on == "disk" and each.runs_on == "cpu"]
    found = weights_on_disk(model, [layer for layer in there if layer in inside], layers, index)
    weights = {layer: own for layer, own in found.items() if all(each.mappable for each in own)}
    if not weights or sys.platform == "win32":
        return None
    take_over(model, weights, layers)
    return MappedExperts(model, weights)


def chosen_experts(inputs: Sequence[Any], experts: int) -> tuple[int, ...] | None:
    """What the router chose, in order: the whole numbers among the inputs. None where it says nothing: all are used."""
    for each in inputs:
        if isinstance(each, torch.Tensor) and each.dtype in (torch.int64, torch.int32) and each.dim() == 2:
            return tuple(expert for expert in torch.unique(each).tolist() if 0 <= expert < experts)
    return None


def _parts(weight: torch.Tensor, own: Sequence[DiskWeight]) -> int:
    """The number of experts in a weight: the length that all fused weights of the layer begin with."""
    lengths = {each.resting.shape[0] for each in own if each.resting.dim() == 3}
    return weight.shape[0] if lengths == {weight.shape[0]} and weight.dim() > 1 else 1


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of neighbours, of numbers in order."""
    first = last = None
    for number in numbers:
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = number
    if first is not None and last is not None:
        yield first, last


def _nothing() -> None:
    pass
