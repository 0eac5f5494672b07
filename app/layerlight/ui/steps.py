"""Steps: long work in pieces between which the window answers."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import TypeVar

from PySide6.QtWidgets import QWidget

Result = TypeVar("Result")
ENOUGH = 0.003
"""Seconds after which a step of many small ones ends."""


def at_once(steps: Generator[object, None, Result]) -> Result:
    """All steps in a row, where nobody waits."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def polish(widget: QWidget) -> Iterator[None]:
    """Gives a widget and all in it their style, as many at a time as take no longer than `ENOUGH`."""
    began = time.perf_counter()
    for each in (widget, *widget.findChildren(QWidget)):
        each.ensurePolished()
        if time.perf_counter() - began > ENOUGH:
            yield
            began = time.perf_counter()
    yield
