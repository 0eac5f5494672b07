"""The planner: makes large plans and looks for better ones on a thread of its own, the newest request only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from layerlight.core.advice import Advice, advise
from layerlight.core.errors import LayerlightError, Unexpected
from layerlight.core.fixes import Fix, fixes_of
from layerlight.core.plan import Plan

PAUSE = 0.004
"""Seconds that the window gets between two steps of long work on this thread: they share one interpreter."""


@dataclass(frozen=True, slots=True)
class Advised:
    """What would be better than a plan. `fixes` is None while they are still being looked for."""

    plan: Plan
    advice: Advice
    fixes: tuple[Fix, ...] | None = None


class Planner(QObject):
    """Its signals come from its thread: only slots of QObjects may listen."""

    planned = Signal(int, object)
    """The request's number, and the Plan or the LayerlightError."""
    advised = Signal(object)
    """An Advised: first the advice, then with its fixes."""

    def __init__(self) -> None:
        super().__init__()
        self._wake = threading.Condition()
        self._plan: tuple[int, Callable[[], Plan]] | None = None
        self._advice: Plan | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def plan(self, number: int, make: Callable[[], Plan]) -> None:
        """Calls `make` on the thread. A request that has not begun is dropped for this one, and so is advice."""
        with self._wake:
            self._plan, self._advice = (number, make), None
            self._wake.notify()
        self._start()

    def advise(self, plan: Plan) -> None:
        """Looks for what would be better; given up as soon as anything newer is asked for."""
        with self._wake:
            self._advice = plan
            self._wake.notify()
        self._start()

    def close(self) -> None:
        """Nothing is told after this; what is being made is not waited for."""
        with self._wake:
            self._closed = True
            self._plan = self._advice = None
            self._wake.notify()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="planner", daemon=True)
            self._thread.start()

    # -- on the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._closed or self._plan or self._advice):
                    self._wake.wait()
                if self._closed:
                    return
                wanted, self._plan = self._plan, None
                looked_at = self._advice if wanted is None else None
            if wanted is not None:
                self._make(*wanted)
            elif looked_at is not None:
                self._look(looked_at)

    def _make(self, number: int, make: Callable[[], Plan]) -> None:
        found: Plan | LayerlightError
        try:
            found = make()
        except LayerlightError as failure:
            found = failure
        except Exception as error:  # noqa: BLE001  a thread's edge
            found = Unexpected(f"The plan could not be made: {error!r}.", "Please report it with the log.")
        if not self._closed:
            self.planned.emit(number, found)

    def _look(self, plan: Plan) -> None:
        try:
            advice = advise(plan)
            self._tell(Advised(plan, advice))
            fixes = fixes_of(plan, lambda: self._may_go_on(plan))
            self._tell(Advised(plan, advice, fixes), last=True)
        except LayerlightError:
            self._drop(plan)  # there is a plan; it only stays without advice

    def _tell(self, advised: Advised, last: bool = False) -> None:
        with self._wake:
            wanted = not self._closed and self._plan is None and self._advice is advised.plan
            if wanted and last:
                self._advice = None
        if wanted:
            self.advised.emit(advised)

    def _may_go_on(self, plan: Plan) -> bool:
        time.sleep(PAUSE)
        with self._wake:
            return not self._closed and self._plan is None and self._advice is plan

    def _drop(self, plan: Plan) -> None:
        with self._wake:
            if self._advice is plan:
                self._advice = None
