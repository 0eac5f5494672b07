"""History: what there was before a change, and after it."""

from __future__ import annotations

from typing import Generic, TypeVar

Value = TypeVar("Value")
MOST = 100


class History(Generic[Value]):
    """Undo and redo over values. `push` the value as it is before each change."""

    def __init__(self) -> None:
        self._past: list[Value] = []
        self._future: list[Value] = []

    @property
    def can_undo(self) -> bool:
        return bool(self._past)

    @property
    def can_redo(self) -> bool:
        return bool(self._future)

    def push(self, value: Value) -> None:
        self._past = [*self._past, value][-MOST:]
        self._future.clear()

    def undo(self, now: Value) -> Value | None:
        """The value before the last change that made a difference; None when there is none."""
        return _step(self._past, self._future, now)

    def redo(self, now: Value) -> Value | None:
        return _step(self._future, self._past, now)

    def clear(self) -> None:
        self._past.clear()
        self._future.clear()


def _step(source: list[Value], target: list[Value], now: Value) -> Value | None:
    while source:
        value = source.pop()
        if value != now:
            target.append(now)
            return value
    return None
