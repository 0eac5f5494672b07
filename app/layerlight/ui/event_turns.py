"""Turns of the event loop: what arrives from the engine is taken and told, as much at a time as fits into one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from PySide6.QtCore import QObject, QTimer, Slot

from layerlight.core.messages import Event, LayerPlaced, LoadProgressed

STEPS = (LayerPlaced, LoadProgressed)
TURN = 0.003
"""Seconds after which the same turn of the event loop takes no further event, and tells the views no other."""


class EventTurns(QObject):
    """Fifty views repainted in one go are a stall. Nothing is lost and nothing overtakes what came before it."""

    def __init__(
        self, take: Callable[[Event], None], pass_by: Callable[[Event], None], tell: Callable[[object], None]
    ) -> None:
        """`take` is called with each event, `pass_by` with a step that others of its kind have overtaken, `tell` with
        what the views are to hear."""
        super().__init__()
        self._take, self._pass_by, self._say = take, pass_by, tell
        self._due: deque[Event] = deque()
        """Events that have arrived and wait for their turn."""
        self._untold: deque[object] = deque()
        """Events and happenings that the views hear in their turn."""
        self._ends: float | None = None
        self._told = False
        """Whether the views have heard something in this turn."""
        self._closed = False
        self._turn = QTimer(self, singleShot=True, interval=0)
        self._turn.timeout.connect(self._next_turn)

    @Slot(object)
    def arrive(self, events: list[Event]) -> None:
        """Takes them now, or in later turns where this one has been long enough."""
        if not self._closed:
            self._due.extend(events)
            self._take_due()

    def tell(self, event: object) -> None:
        """The views hear it now, or in a later turn where this one has been long enough; in order in any case."""
        if not self._closed:
            self._untold.append(event)
            self._tell_due()

    def close(self) -> None:
        """Nothing is taken or told after this."""
        self._closed = True
        self._due.clear()

    def _take_due(self) -> None:
        """Of a load's many small steps that arrive together the views hear the last of each kind."""
        while self._due and self._has_time():
            event = self._due.popleft()
            if isinstance(event, STEPS) and _is_overtaken(event, self._due):
                self._pass_by(event)
            else:
                self._take(event)

    def _tell_due(self) -> None:
        while self._untold and (self._has_time() or not self._told):
            self._told = True
            self._say(self._untold.popleft())

    def _has_time(self) -> bool:
        """Whether something more fits into this turn of the event loop; the first thing always does."""
        now = time.perf_counter()
        if self._ends is None:
            self._ends = now + TURN
            self._turn.start()
            return True
        return now < self._ends

    @Slot()
    def _next_turn(self) -> None:
        self._ends, self._told = None, False
        if not self._closed:
            self._tell_due()
            self._take_due()


def _is_overtaken(event: Event, later: Iterable[Event]) -> bool:
    """Whether another step of the same kind follows before anything else does."""
    for each in later:
        if type(each) is type(event):
            return True
        if not isinstance(each, STEPS):
            return False
    return False
