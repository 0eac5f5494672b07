"""Sensors tell what they know, and never fail."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from layerlight.core.device import Device
from layerlight.core.machines import nvidia_cards, sensors
from layerlight.core.machines.nvidia_cards import Card, card_of, read_cards
from layerlight.core.machines.sensors import Holder, Readings, read_sensors
from tests.core.models import GIB


def test_this_machine_is_read() -> None:
    read_sensors()
    found = read_sensors(largest=True)
    assert found.load is None or 0 < found.load <= 1
    assert found.swap is None or found.swap >= 0
    assert found.largest is None or found.largest.size > 0


@pytest.mark.parametrize("error", [OSError, RuntimeError, RuntimeWarning, ValueError])
def test_what_cannot_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def fails(*_: object, **__: object) -> Any:
        raise error("no")

    monkeypatch.setattr(sensors.psutil, "swap_memory", fails)
    if error is not RuntimeWarning:
        monkeypatch.setattr(sensors.psutil, "cpu_percent", fails)
        assert read_sensors() == Readings()
    assert read_sensors().swap is None


def test_the_largest_program_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(1, "ours", 9), (2, "browser", 5), (3, "editor", 3), (4, "hidden", None)]
    processes = [
        SimpleNamespace(info={"pid": pid, "name": name, "memory_info": size and SimpleNamespace(rss=size * GIB)})
        for pid, name, size in found
    ]
    monkeypatch.setattr(sensors, "own_processes", lambda: {1})
    monkeypatch.setattr(sensors.psutil, "process_iter", lambda _: processes)
    assert sensors.largest_program() == Holder("browser", 5 * GIB)
    monkeypatch.setattr(sensors.psutil, "process_iter", lambda _: processes[:1])
    assert sensors.largest_program() is None


class NVMLError(Exception):
    """As the library's own."""


@dataclass
class Library:
    """As much of nvidia-ml-py as is asked for; `broken` are functions that fail."""

    broken: frozenset[str] = frozenset()
    holders: tuple[tuple[int, Any], ...] = ()
    drawing: tuple[tuple[int, Any], ...] = ()
    NVMLError = NVMLError

    def __getattr__(self, name: str) -> Any:
        if name in self.broken:
            return self._fail
        answers = {
            "nvmlInit": None, "nvmlDeviceGetCount": 1, "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetName": b"RTX 4060", "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97),
            "nvmlDeviceGetTemperature": 62, "nvmlDeviceGetPowerUsage": 84600,
            "nvmlDeviceGetComputeRunningProcesses": [
                SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self.holders
            ],
            "nvmlDeviceGetGraphicsRunningProcesses": [
                SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self.drawing
            ],
        }  # fmt: skip
        if name not in answers:
            raise AttributeError(name)
        return lambda *_: answers[name]

    def _fail(self, *_: object) -> None:
        raise NVMLError("not supported")


def told(monkeypatch: pytest.MonkeyPatch, library: Library) -> tuple[Card, ...]:
    monkeypatch.setitem(sys.modules, "fake_nvml", library)  # type: ignore[arg-type]
    monkeypatch.setattr(nvidia_cards, "own_processes", lambda: {1})
    monkeypatch.setattr(nvidia_cards.psutil, "Process", lambda pid: SimpleNamespace(name=lambda: _name(pid)))
    return read_cards("fake_nvml")


def _name(pid: int) -> str:
    if pid == 3:
        raise psutil.NoSuchProcess(pid)
    return f"program {pid}"


def test_a_card_tells_its_load_heat_power_and_who_holds_most(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(holders=((1, 6 * GIB), (2, 2 * GIB), (5, GIB)))
    assert told(monkeypatch, library) == (Card("RTX 4060", 0.97, 62, 84.6, Holder("program 2", 2 * GIB)),)
    games = Library(holders=((2, GIB),), drawing=((5, 3 * GIB), (1, 4 * GIB)))
    assert told(monkeypatch, games)[0].largest == Holder("program 5", 3 * GIB)
    gone = Library(holders=((3, 2 * GIB), (2, None)))
    assert told(monkeypatch, gone)[0].largest == Holder("process 3", 2 * GIB)


@pytest.mark.parametrize(
    ("broken", "cards"),
    [
        ("nvmlInit", ()),
        ("nvmlDeviceGetCount", ()),
        ("nvmlDeviceGetUtilizationRates", (Card("RTX 4060", None, 62, 84.6),)),
        ("nvmlDeviceGetTemperature", (Card("RTX 4060", 0.97, None, 84.6),)),
        ("nvmlDeviceGetPowerUsage", (Card("RTX 4060", 0.97, 62, None),)),
        ("nvmlDeviceGetComputeRunningProcesses", (Card("RTX 4060", 0.97, 62, 84.6),)),
    ],
)
def test_what_a_driver_refuses_is_unknown(monkeypatch: pytest.MonkeyPatch, broken: str, cards: object) -> None:
    assert told(monkeypatch, Library(frozenset({broken}))) == cards


def test_without_the_library_there_is_nothing() -> None:
    assert read_cards("no_such_library") == ()


@pytest.mark.parametrize(
    ("names", "cards", "found"),
    [
        (("A",), ("A",), (0,)),
        (("A", "B"), ("B", "A"), (1, 0)),
        (("A", "A"), ("A", "A"), (0, 1)),
        (("A",), ("A", "A"), (None,)),
        (("A",), (), (None,)),
    ],
)
def test_cards_are_told_apart_by_name_or_not_at_all(
    names: tuple[str, ...], cards: tuple[str, ...], found: tuple[int | None, ...]
) -> None:
    """Of two alike, one hidden from torch by CUDA_VISIBLE_DEVICES, nobody knows which is which."""
    devices = tuple(Device(f"cuda:{number}", "cuda", name, GIB, GIB) for number, name in enumerate(names))
    known = tuple(Card(name, celsius=number) for number, name in enumerate(cards))
    matched = tuple(card_of(device, devices, known) for device in devices)
    assert tuple(card and card.celsius for card in matched) == found
    assert card_of(Device("sim:0", "sim", names[0], GIB, GIB), devices, known) is None
