"""Watches the machine while the window is open: memory of the last minutes, load, and what other programs took."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from PySide6.QtCore import QObject, Qt, Signal, Slot

from layerlight.core.device import CPU, DISK, Device, Machine
from layerlight.core.machines import pressure
from layerlight.core.machines.nvidia_cards import Card, card_of, read_cards
from layerlight.core.machines.sensors import Holder, Readings, read_sensors
from layerlight.core.state import State
from layerlight.ui.words import short_size

KEPT = 300.0
"""Seconds of the past that are kept."""
STUCK = 3
"""Looks in a row that found the one before still under way: then a driver hangs, and cards are asked no more."""


class Sample(NamedTuple):
    """Memory of a place at a moment: parts of the whole."""

    when: float
    ours: float
    others: float


class MachineWatch(QObject):
    """One look at a time, on a thread; memory is what the engine and the window measured, never asked for twice."""

    seen = Signal()
    _told = Signal(object, object)

    def __init__(
        self,
        state: Callable[[], State],
        read: Callable[[bool], Readings] = read_sensors,
        cards: Callable[[], tuple[Card, ...]] = read_cards,
    ) -> None:
        super().__init__()
        self._state, self._read, self._read_cards = state, read, cards
        self._looking: threading.Thread | None = None
        self._missed = 0
        self._asks_cards = True
        self._readings = Readings()
        self._cards: tuple[Card, ...] = ()
        self._samples: dict[str, deque[Sample]] = {}
        self._machine: Machine | None = None
        self._before: dict[str, int] = {}
        """Bytes that other programs held when the machine was looked at."""
        self._swap_before: int | None = None
        self._taken: dict[str, int] = {}
        self._told.connect(self._take, Qt.ConnectionType.QueuedConnection)

    def look(self) -> None:
        """Answered by `seen`."""
        if self._looking is not None and self._looking.is_alive():
            self._missed += 1
            if self._missed < STUCK:
                return
            self._asks_cards = False
        self._missed = 0
        largest = any(self._taken.get(each.id) for each in self._with_ram())
        self._looking = threading.Thread(target=self._run, args=(largest,), name="look at the machine", daemon=True)
        self._looking.start()

    def samples(self, place: str) -> tuple[Sample, ...]:
        """Of the last minutes, the oldest first."""
        return tuple(self._samples.get(place, ()))

    def facts(self, place: str) -> str:
        """`CPU 34%, swap 1.2 GiB`, `97% busy, 62 °C, 140 W`; what nobody tells is said to be unknown."""
        device = self._device(place)
        if device is None or place == DISK:
            return ""
        if CPU in (place, device.shares_memory_with):
            load, swap = self._readings.load, self._readings.swap
            busy = "load unknown" if load is None else f"{load:.0%}"
            return f"CPU {busy}" + (f", swap {short_size(swap)}" if swap else "")
        card = self._card(device)
        load = card.load if card is not None else None
        parts = ["load unknown" if load is None else f"{load:.0%} busy"]
        if card is not None and card.celsius is not None:
            parts.append(f"{card.celsius} °C")
        if card is not None and card.watts is not None:
            parts.append(f"{card.watts:.0f} W")
        return ", ".join(parts)

    def warning(self, place: str) -> str:
        """What makes this place slow or short, and who; empty while nothing does."""
        device = self._device(place)
        if device is None:
            return ""
        words = [pressure.taken_words(self._taken.get(place, 0), device.name, self._holder(device))]
        if CPU in (place, device.shares_memory_with):
            words.append(pressure.swap_words(self._swap_before, self._readings.swap))
        return " ".join(filter(None, words))

    # -- a look --------------------------------------------------------------------------------------------------

    def _run(self, largest: bool) -> None:
        with suppress(RuntimeError):  # the window is gone already
            self._told.emit(self._read(largest), None)
            if self._asks_cards:
                cards = self._read_cards()
                if cards:
                    self._told.emit(None, cards)

    @Slot(object, object)
    def _take(self, readings: Readings | None, cards: tuple[Card, ...] | None) -> None:
        if cards is not None:
            self._cards = cards
        if readings is not None:
            self._readings = readings
            self._measure(time.monotonic())
        self.seen.emit()

    def _measure(self, now: float) -> None:
        """Takes a sample of each place, and compares with what there was when the machine was looked at."""
        state = self._state()
        if state.machine is not self._machine:
            self._machine, self._before, self._swap_before = state.machine, {}, self._readings.swap
        known = {each.place: each for each in state.memory}
        for memory in state.memory:
            device = self._device(memory.place)
            own = pressure.ours(memory)
            if device is not None and device.shares_memory_with in known:
                own += pressure.ours(known[device.shares_memory_with])
            held = pressure.others(memory, own)
            if memory.place == DISK or held is None or not memory.total:
                continue
            own = min(own, memory.total - held)
            kept = self._samples.setdefault(memory.place, deque())
            kept.append(Sample(now, own / memory.total, held / memory.total))
            while kept[0].when < now - KEPT:
                kept.popleft()
            before = self._before.setdefault(memory.place, held)
            self._taken[memory.place] = pressure.taken(before, held, memory.total)

    # -- who -----------------------------------------------------------------------------------------------------

    def _device(self, place: str) -> Device | None:
        return self._machine.device(place) if self._machine is not None and self._machine.has(place) else None

    def _with_ram(self) -> tuple[Device, ...]:
        """RAM, and whatever has its memory there."""
        devices = self._machine.devices if self._machine is not None else ()
        return tuple(each for each in devices if CPU in (each.id, each.shares_memory_with))

    def _card(self, device: Device) -> Card | None:
        return card_of(device, self._machine.devices, self._cards) if self._machine is not None else None

    def _holder(self, device: Device) -> Holder | None:
        if device in self._with_ram():
            return self._readings.largest
        card = self._card(device)
        return card.largest if card is not None else None
