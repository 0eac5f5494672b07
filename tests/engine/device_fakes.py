"""Stand-ins for torch's device modules: what they answer is given, what they were asked is written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

GIB = 2**30


@dataclass
class Card:
    """One card as a device module would describe it; an exception in place of a value is raised when it is read."""

    name: Any = "Card"
    total: Any = 8 * GIB
    free: Any = 6 * GIB
    integrated: Any = 0


class DeviceModule:
    """`torch.cuda` or `torch.xpu` over some cards."""

    def __init__(self, cards: Sequence[Card], available: Any = True) -> None:
        self.cards, self._available = cards, available

    def is_available(self) -> bool:
        return _or_raise(self._available)

    def device_count(self) -> int:
        return len(self.cards)

    def get_device_properties(self, index: int) -> SimpleNamespace:
        card = self.cards[index]
        return SimpleNamespace(
            name=_or_raise(card.name), total_memory=_or_raise(card.total), is_integrated=card.integrated
        )

    def mem_get_info(self, index: int) -> tuple[Any, Any]:
        return _or_raise(self.cards[index].free), _or_raise(self.cards[index].total)

    def memory_reserved(self, index: int) -> int:
        return GIB

    def max_memory_allocated(self, index: int) -> int:
        return 2 * GIB


class Metal:
    """`torch.mps`: `calls` holds what was asked of it, in order."""

    def __init__(self, limit: Any = 20 * GIB, held: Any = 3 * GIB) -> None:
        self._limit, self._held = limit, held
        self.calls: list[str] = []

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def recommended_max_memory(self) -> int:
        return _or_raise(self._limit)

    def driver_allocated_memory(self) -> int:
        return _or_raise(self._held)

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def empty_cache(self) -> None:
        self.calls.append("empty_cache")


def install_cards(monkeypatch: pytest.MonkeyPatch, kind: str, module: DeviceModule) -> None:
    monkeypatch.setattr(torch, kind, module)


def install_metal(monkeypatch: pytest.MonkeyPatch, metal: Metal) -> Metal:
    monkeypatch.setattr(torch, "mps", metal)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "get_name", lambda: "Apple M3 Pro", raising=False)
    return metal


def _or_raise(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value
