"""Which layer runs now, and what each has cost since the run began."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from layerlight.core.job import Job
from layerlight.core.messages import LayerActivity, LayerRan
from layerlight.engine.nesting import module_of, outer_of
from layerlight.engine.streamed_layers import listening
from layerlight.engine.streaming import Carried

SNAPSHOT_INTERVAL = 1 / 30
"""Seconds between two snapshots at least."""

_LONG_PASS = 0.2
"""Seconds of one layer's pass from which a stop must not wait for its end."""


@dataclass(slots=True)
class _Totals:
    passes: int = 0
    seconds: float = 0.0
    last: float = 0.0
    decode_passes: int = 0
    decode_seconds: float = 0.0
    started: float = 0.0
    inside: list[float] = field(default_factory=lambda: [0.0])
    """Seconds that layers inside this one take in its present pass: no part of its own."""


class LayerWatch:
    """Times each layer's passes and stops inside one when asked. A layer's time is without those inside it.

    On a CPU a pass's time is the time between entering and leaving it; on an accelerator that queues its work, the
    device's own clock is asked, and answers once the token has been read.
    """

    def __init__(
        self,
        layers: Sequence[str],
        carried: Mapping[str, Carried],
        job: Job,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """`before` is called before each layer's pass, and may raise."""
        self._job = job
        self._before = before
        self._carried = carried
        self._totals = {layer: _Totals() for layer in layers}
        self._outer = outer_of(layers)
        self._queued: list[tuple[_Pass, Any, Any]] = []
        self._opened: dict[str, Any] = {}
        self._parts: list[RemovableHandle] = []
        self._told = 0.0
        self._decoding = False
        self.running: str | None = None
        for counts in carried.values():
            counts.bytes, counts.seconds = 0, 0.0

    def decoding(self) -> None:
        """From now on passes are of one token each: what `seconds_per_layer` means.

        Looking for a stop between the parts of a layer is only worth its time where a layer takes long.
        """
        self._decoding = True
        if all(totals.last < _LONG_PASS for totals in self._totals.values()):
            self._unwatch_parts()

    def activity(self) -> tuple[LayerActivity, ...]:
        """Totals of every layer so far."""
        self._read_clocks()
        nothing = Carried()
        return tuple(
            LayerActivity(
                layer,
                totals.passes,
                totals.seconds,
                waited=self._carried.get(layer, nothing).seconds,
                bytes_moved=self._carried.get(layer, nothing).bytes,
                last_seconds=totals.last,
            )
            for layer, totals in self._totals.items()
        )

    def seconds_per_layer(self) -> tuple[tuple[str, float], ...]:
        """(layer, mean seconds of a decode pass); of all passes when the answer had a single token."""
        self._read_clocks()
        return tuple(
            (layer, totals.decode_seconds / totals.decode_passes)
            if totals.decode_passes
            else (layer, totals.seconds / totals.passes if totals.passes else 0.0)
            for layer, totals in self._totals.items()
        )

    def tell(self) -> None:
        """Emits a snapshot whatever the time."""
        self._told = time.perf_counter()
        self._job.emit(LayerRan(self.running, self.activity()))

    @contextmanager
    def on(self, model: torch.nn.Module) -> Iterator[None]:
        """Watches this model's passes while it lasts."""
        handles = []
        for layer, totals in self._totals.items():
            module = module_of(model, layer)
            clock = _device_clock(module)
            # before what brings a layer's weights: waiting for them is part of its time
            handles.append(module.register_forward_pre_hook(self._entering(layer, totals, clock), prepend=True))
            handles.append(module.register_forward_hook(self._leaving(layer, totals, clock)))
            self._parts.extend(child.register_forward_pre_hook(self._checking) for child in module.children())
        try:
            with listening(model, self._job.check):
                yield
        finally:
            for handle in handles:
                handle.remove()
            self._unwatch_parts()
            self._queued.clear()
            self._opened.clear()
            self.running = None

    def _checking(self, *_unused: object) -> None:
        """Between the parts of a layer: a long prefill can be stopped there too, all weights being at rest."""
        self._job.check()

    def _unwatch_parts(self) -> None:
        while self._parts:
            self._parts.pop().remove()

    def _entering(self, layer: str, totals: _Totals, clock: Any) -> Any:
        def enter(*_unused: object) -> None:
            self._job.check()
            self._before()
            self.running = layer
            now = time.perf_counter()
            if now - self._told >= SNAPSHOT_INTERVAL:
                self.tell()
                now = time.perf_counter()
            totals.started, totals.inside = now, [0.0]
            if clock is not None:
                opened = clock()
                opened.record()
                self._opened[layer] = opened

        return enter

    def _leaving(self, layer: str, totals: _Totals, clock: Any) -> Any:
        around = self._totals.get(self._outer.get(layer, ""))

        def leave(*_unused: object) -> None:
            passed = _Pass(totals, self._decoding, totals.inside, around.inside if around else None)
            if around is not None:
                self.running = self._outer[layer]
            if clock is not None:
                closed = clock()
                closed.record()
                self._queued.append((passed, self._opened.pop(layer), closed))
                return
            passed.count(time.perf_counter() - totals.started)

        return leave

    def _read_clocks(self) -> None:
        """Takes what the devices have finished; work still queued is left for the next look."""
        while self._queued and self._queued[0][2].query():
            passed, opened, closed = self._queued.pop(0)
            passed.count(opened.elapsed_time(closed) / 1000)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One pass of one layer, whose time may not be known yet. Passes inside it are counted before it."""

    totals: _Totals
    decoding: bool
    inside: list[float]
    """Seconds of passes inside this one."""
    around: list[float] | None
    """The same of the pass that this one lies in."""

    def count(self, whole: float) -> None:
        """`whole`: seconds from its beginning to its end."""
        if self.around is not None:
            self.around[0] += whole
        seconds = max(0.0, whole - self.inside[0])
        self.totals.passes += 1
        self.totals.seconds += seconds
        self.totals.last = seconds
        if self.decoding:
            self.totals.decode_passes += 1
            self.totals.decode_seconds += seconds


def _device_clock(module: torch.nn.Module) -> Any:
    """A maker of events on the device that runs this module, or None where the host's clock tells the truth."""
    from layerlight.engine.places import place_of_execution

    kind = torch.device(place_of_execution(module)).type
    if kind not in ("cuda", "xpu"):
        return None
    event = getattr(torch, kind).Event
    return lambda: event(enable_timing=True)
