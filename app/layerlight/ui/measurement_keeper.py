"""Keeps what was measured: the machine's rates and every run, on a thread of its own, and recalls it at the start."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal, Slot

from layerlight.core.device import Machine
from layerlight.core.errors import StoreFailed
from layerlight.core.messages import (
    DevicesSurveyed,
    LoadStarted,
    MachineCalibrated,
    ModelLoaded,
    RunFinished,
    RunResult,
)
from layerlight.core.pacing.calibration import Calibration, calibrated
from layerlight.core.pacing.correction import Run, run_of
from layerlight.core.plan import Plan
from layerlight.core.state import State
from layerlight.store.measurements import MeasurementStore, open_measurements
from layerlight.ui.session import Session

Task = Callable[[MeasurementStore], None]


class MeasurementKeeper(QObject):
    """Hears the session and tells it what was found. A failure is said once."""

    _recalled = Signal(object, object)
    _told = Signal(str)

    def __init__(self, session: Session, path: Path) -> None:
        super().__init__()
        self._session, self._path = session, path
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._loaded: ModelLoaded | None = None
        self._asked: Machine | None = None
        self._said = False
        self._thread: threading.Thread | None = None
        self._recalled.connect(self._recall, Qt.ConnectionType.QueuedConnection)
        self._told.connect(self._say, Qt.ConnectionType.QueuedConnection)
        session.changed.connect(self._changed)

    @Slot(object, object)
    def _changed(self, state: State, event: object) -> None:
        match event:
            case DevicesSurveyed(machine=machine) if machine.torch_build and machine != self._asked:
                self._asked = machine
                self._put(lambda store: self._look(store, machine))
            case MachineCalibrated(machine=machine, spreads=spreads):
                self._asked = machine
                found = calibrated(machine, spreads, time.time())
                self._put(lambda store: store.keep_calibration(found))
            case LoadStarted():
                self._loaded = None
            case ModelLoaded():
                self._loaded = event
            case RunFinished(result=result) if state.loaded_plan is not None:
                self._keep_run(state.loaded_plan, result)
            case _:
                pass

    def finish(self) -> None:
        """Waits for what is not written yet."""
        self._tasks.put(None)
        if self._thread is not None:
            self._thread.join(5)

    def _keep_run(self, plan: Plan, result: RunResult) -> None:
        """Of several answers of one load the first tells how long the load took."""
        loaded, self._loaded = self._loaded, None
        when = time.time()

        def keep(store: MeasurementStore) -> None:
            store.remember(run_of(plan, loaded, result, when))
            self._look(store, plan.machine)

        self._put(keep)

    def _put(self, task: Task) -> None:
        self._tasks.put(task)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="measurements", daemon=True)
            self._thread.start()

    # -- on the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with open_measurements(self._path) as store:
            if store.notice:
                self._told.emit(store.notice)
            while (task := self._tasks.get()) is not None:
                try:
                    task(store)
                except StoreFailed as failure:
                    self._told.emit(f"{failure.message} {failure.hint}".strip())

    def _look(self, store: MeasurementStore, machine: Machine) -> None:
        self._recalled.emit(store.calibration(machine), store.runs(machine))

    # -- back in the window ----------------------------------------------------------------------------------------

    @Slot(object, object)
    def _recall(self, calibration: Calibration | None, runs: tuple[Run, ...]) -> None:
        self._session.recall(calibration, runs)

    @Slot(str)
    def _say(self, words: str) -> None:
        if not self._said:
            self._said = True
            self._session.notify(words)
