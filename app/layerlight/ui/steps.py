"""Steps: long work in pieces between which the window answers."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeVar

from PySide6.QtWidgets import QWidget

Result = TypeVar("Result")
TOGETHER = 8
"""Controls that are given their style in one step."""


def at_once(steps: Generator[object, None, Result]) -> Result:
    """All steps in a row, where nobody waits."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def polish(widget: QWidget) -> Iterator[None]:
    """Gives a widget and all in it their style, a few at a time."""
    all_of_it = [widget, *widget.findChildren(QWidget)]
    for first in range(0, len(all_of_it), TOGETHER):
        for each in all_of_it[first : first + TOGETHER]:
            each.ensurePolished()
        yield
