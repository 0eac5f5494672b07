"""How far a load is: bytes, layers and seconds left, told from transformers' own loop; that loop is where it stops."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from layerlight.core.job import Job
from layerlight.core.messages import LoadProgressed
from layerlight.engine.merging import merge_experts

WEIGHTS_BAR = "Loading weights"
"""The description by which transformers 5 names its loop over parameters."""

TELLING_INTERVAL = 1 / 30
"""Seconds between two progress events at least."""


class LoadProgress:
    """Counts parameters as transformers sets them and tells the sum; raises Stopped between two of them."""

    def __init__(
        self,
        job: Job,
        layer_sizes: Mapping[str, int],
        entry_layers: Mapping[str, str],
        after_bytes: Callable[[int], None],
    ) -> None:
        """`layer_sizes` bytes per layer, `entry_layers` the layer of each parameter; `after_bytes` hears each sum."""
        self._job = job
        self._sizes = layer_sizes
        self._layer_of = entry_layers
        self._after_bytes = after_bytes
        self._total = sum(layer_sizes.values())
        self._started = time.monotonic()
        self._told = 0.0
        self.bytes_done = 0
        self.layers_done = 0

    def tell(self, stage: str, layer: str = "", *, always: bool = True) -> None:
        """Emits where the load is, at most 30 times a second unless `always`."""
        now = time.monotonic()
        if not always and now - self._told < TELLING_INTERVAL:
            return
        self._told = now
        self._job.emit(
            LoadProgressed(
                stage, self.bytes_done, self._total, self.layers_done, len(self._sizes), self._seconds_left(now), layer
            )
        )

    def check(self) -> None:
        """Raises Stopped when asked to stop."""
        self._job.check()

    def finish(self, stage: str) -> None:
        """All weights are where they rest."""
        self.bytes_done, self.layers_done = self._total, len(self._sizes)
        self.tell(stage)

    def over(self, entries: Any) -> Iterator[Any]:
        """The same entries, one after another, counted when each is done.

        `entries` is not kept: while the loop's own iterator lived on after a stop, so would all tensors read ahead.
        """
        names = [self._layer_of.get(name, "") for name, _ in entries]
        left = Counter(names)
        share = {layer: self._sizes.get(layer, 0) / count for layer, count in left.items()}
        exact = 0.0
        done: set[str] = set()
        for layer, entry in zip(names, entries, strict=True):
            self._job.check()
            self.tell("Loading weights", layer, always=False)
            merge_experts(entry[1], partial(self._merging, exact, share[layer]))
            yield entry
            left[layer] -= 1
            exact += share[layer]
            self.bytes_done = min(self._total, round(exact))
            if not left[layer] and layer in self._sizes and layer not in done:
                done.add(layer)
                self.layers_done = len(done)
            self._after_bytes(self.bytes_done)
        self._job.check()
        self.tell("Loading weights")

    def _merging(self, before: float, size: float, share: float) -> None:
        self._job.check()
        self._after_bytes(round(before + size * share))

    def _seconds_left(self, now: float) -> float | None:
        spent = now - self._started
        if self.bytes_done < self._total / 50 or spent < 0.2:
            return None
        return spent * (self._total - self.bytes_done) / self.bytes_done


class _Loop:
    """What transformers takes for its progress bar."""

    def __init__(self, entries: Any, progress: LoadProgress) -> None:
        self._entries = entries
        self._progress = progress

    def __iter__(self) -> Iterator[Any]:
        entries, self._entries = self._entries, ()
        return self._progress.over(entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __enter__(self) -> _Loop:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = ()

    def update(self, count: int = 1) -> None:
        """transformers' other loops call it; this one is iterated."""

    def set_postfix(self, *unused: object, **also_unused: object) -> None:
        """Nothing is drawn here."""


@contextmanager
def reported_by(progress: LoadProgress) -> Iterator[None]:
    """While it lasts, transformers' loop over weights in this thread reports to `progress`."""
    from transformers.utils import logging as transformers_logging

    thread = threading.get_ident()

    def hook(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if threading.get_ident() == thread and kwargs.get("desc") == WEIGHTS_BAR and args:
            return _Loop(args[0], progress)
        return factory(*args, **kwargs)

    before = transformers_logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        transformers_logging.set_tqdm_hook(before)
