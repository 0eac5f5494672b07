"""The engine process: one thread reads requests, one worker thread does all torch work.

It speaks JSON lines (core/messages.py) on its first standard input and output, and ends within a second when that
pipe ends. Stop is heard at once, and obeyed between two parameters of a load and inside a pass of a run; what can't be
interrupted are imports, building the empty model, opening a .bin file, tying weights, the fusion of one layer's
experts and one large matrix product. Whoever can't wait for those replaces the process: nothing but memory is in it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from layerlight.core.errors import Busy, LayerlightError, Unexpected
from layerlight.core.job import Job
from layerlight.core.messages import (
    CalibrateRequest,
    EngineStarted,
    Event,
    Failed,
    Failure,
    LoadRequest,
    MemoryMeasured,
    QuitRequest,
    StarterRequest,
    StopRequest,
    StrategiesRequest,
    SurveyRequest,
    TextRequest,
    UnloadRequest,
    decode_request,
    encode,
)
from layerlight.engine.heap import keep_heap_tight
from layerlight.engine.logs import redirect_output, start_logging
from layerlight.engine.warming import set_environment, warm_up

if TYPE_CHECKING:
    from layerlight.engine.engine import TorchEngine

log = logging.getLogger(__name__)

NICENESS = 5
IDLE_MEASURING = 2.0
"""Seconds between two looks at memory while nothing runs."""

_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG."""

Work = SurveyRequest | CalibrateRequest | LoadRequest | TextRequest | UnloadRequest | StarterRequest | StrategiesRequest


def main(argv: Sequence[str] | None = None) -> int:
    """Serves requests until the pipe ends. Must run on the process's main thread, which becomes the worker."""
    options = _options(argv)
    requests = os.fdopen(os.dup(0), "rb")
    events = os.dup(1)
    redirect_output(options.log)
    start_logging()
    faulthandler.enable()
    if options.end_with_parent:
        _end_with_parent()
    if hasattr(os, "nice"):
        with contextlib.suppress(OSError):
            os.nice(NICENESS)
    keep_heap_tight()
    set_environment()
    Host(requests, events).serve()
    return 0


class Host:
    """Two threads and the queue between them: at most one job at a time, beside surveys and maps, which are short."""

    def __init__(self, requests: BinaryIO, events: int) -> None:
        """`events` is the descriptor that events are written to."""
        self._requests = requests
        self._events = events
        self._writing = threading.Lock()
        self._changing = threading.Lock()
        self._queue: queue.Queue[tuple[Work, Job]] = queue.Queue()
        self._job: Job | None = None
        self._engine: TorchEngine | None = None

    def serve(self) -> None:
        """Works on this thread, reads on another; returns never, the process ends when it is told to."""
        self.emit(EngineStarted(os.getpid()))
        threading.Thread(target=self._read, name="requests", daemon=True).start()
        try:
            self._work()
        except BaseException:
            log.exception("the engine's worker ended")
            self._end(1)

    def emit(self, event: Event) -> None:
        """Writes one line; from any thread. The process ends when nobody reads any more."""
        line = memoryview(encode(event))
        with self._writing:
            try:
                while line:
                    line = line[os.write(self._events, line) :]
            except OSError:
                self._end(0)

    # -- the worker's side -------------------------------------------------------------------------------------------

    def _work(self) -> None:
        warmed = warm_up()
        from layerlight.engine.engine import TorchEngine

        self._engine = TorchEngine()
        self.emit(warmed)
        while True:
            try:
                request, job = self._queue.get(timeout=IDLE_MEASURING)
            except queue.Empty:
                self.emit(MemoryMeasured(self._engine.memory()))
                continue
            self._carry_out(self._engine, request, job)

    def _carry_out(self, engine: TorchEngine, request: Work, job: Job) -> None:
        """Runs one job; its last event is sent only when the engine is free for the next."""
        last: list[Event] = []

        def emit(event: Event) -> None:
            if last:
                self.emit(last.pop())
            if type(event).__name__ in _ENDS:
                last.append(event)
            else:
                self.emit(event)

        failed: Failed | None = None
        try:
            job.check()
            engine.carry_out(request, Job(emit, job.stop))
        except LayerlightError as error:
            failed = Failed(Failure.of(error), type(request).__name__)
        except Exception as error:
            log.exception("%s failed", type(request).__name__)
            words = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            failed = Failed(Failure.of(Unexpected(words, hint="The log has the details.")), type(request).__name__)
        with self._changing:
            if self._job is job:
                self._job = None
        for event in (*last, *([failed] if failed else [])):
            self.emit(event)

    # -- the reader's side -------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            for line in self._requests:
                self._hear(line)
        except OSError:
            log.exception("the pipe broke")
        self._end(0)

    def _hear(self, line: bytes) -> None:
        try:
            request = decode_request(line)
        except ValueError as error:
            log.error("%s", error)
            self.emit(Failed(Failure.of(Unexpected("A request could not be read.", hint="The log has the details."))))
            return
        match request:
            case StopRequest():
                with self._changing:
                    if self._job is not None:
                        self._job.stop.set()
            case QuitRequest():
                self._end(0)
            case SurveyRequest() | StrategiesRequest():
                self._queue.put((request, Job(self.emit)))
            case _:
                self._take(request)

    def _take(self, request: CalibrateRequest | LoadRequest | TextRequest | UnloadRequest | StarterRequest) -> None:
        job = Job(self.emit)
        with self._changing:
            busy = self._job is not None
            if not busy:
                self._job = job
        if busy:
            failure = Failure.of(Busy("It is still at work on something else.", hint="Stop that first, or wait."))
            self.emit(Failed(failure, type(request).__name__))
            return
        self._queue.put((request, job))

    def _end(self, code: int) -> None:
        """Ends the process now, whatever the worker is inside; only files of this run are cleaned up."""
        from layerlight.engine.offload_folder import remove_own_folders

        remove_own_folders()
        logging.shutdown()
        os._exit(code)


_ENDS = frozenset(
    {"ModelLoaded", "RunFinished", "ModelUnloaded", "StarterReady", "DevicesSurveyed", "MachineCalibrated"}
)
"""Events that end a job: who hears one may ask for the next thing at once."""


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="layerlight-engine", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--log", type=Path, help="file that the log is appended to; without it, standard error")
    parser.add_argument(
        "--end-with-parent",
        action="store_true",
        help="on Linux, be killed when the thread that started this process ends",
    )
    return parser.parse_args(argv)


def _end_with_parent() -> None:
    """Linux sends the signal when the *thread* that made the process ends, so it is only for long-lived ones."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
