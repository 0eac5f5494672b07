"""One run of the engine's process: its pipes, its threads, its end. No Qt."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO

from layerlight.core.inspecting.weight_sizes import WeightSizes, weight_sizes
from layerlight.core.messages import (
    EngineStopped,
    Event,
    Failed,
    ModelLoaded,
    QuitRequest,
    Request,
    decode_event,
    encode,
)

LAST_WORDS = 4096
_CRASHES = frozenset({"SIGABRT", "SIGSEGV", "SIGILL", "SIGFPE"})
"""What a process does to itself; other signals come from outside."""


class EngineProcess:
    """Starts a process, writes requests to its stdin and hands its events on, each from a thread of its own.

    `tell` is called on the reading thread; its last event is always EngineStopped, also when the start fails.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path, tell: Callable[[Event], None]
    ) -> None:
        self._command = list(command)
        self._environment = dict(environment)
        self._log = log
        self._tell = tell
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()
        self._ending: str | None = None
        self._killed = False
        self._weights = WeightSizes("", ())
        self._thread = threading.Thread(target=self._run, name="engine link", daemon=True)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        self._thread.start()

    def send(self, request: Request) -> None:
        """Never waits: a thread writes, so that a full pipe can't stop the window."""
        self._requests.put(encode(request))

    def quit(self) -> None:
        """Asks the process to end, then closes its stdin, which ends it too."""
        self._ending = self._ending or ""
        self._requests.put(encode(QuitRequest()))
        self._requests.put(None)

    def kill(self, reason: str = "") -> None:
        """Ends it at once, with its children. The end counts as expected, for this reason."""
        self._ending = reason
        with self._guard:
            self._killed = True
            if self._process is not None:
                _kill(self._process)

    def join(self, seconds: float) -> bool:
        """Waits for the end; False when it has not come by then."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    # -- threads -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            log = self._open_log()
        except OSError as error:
            self._tell(EngineStopped(False, f"The log {self._log} can't be written: {error.strerror or error}."))
            return
        with log:
            began = log.tell()
            _note(log, f"engine starts: {' '.join([Path(self._command[0]).name, *self._command[1:]])}")
            try:
                process = self._spawn(log)
            except OSError as error:
                self._tell(EngineStopped(False, f"It could not be started: {error.strerror or error}."))
                return
            threading.Thread(target=self._write, args=(process,), name="engine requests", daemon=True).start()
            self._read(process, log)
            process.wait()
            self._requests.put(None)
            ended = self._farewell(process.returncode, began)
            _note(log, f"engine ended{'' if ended.expected else ' unexpectedly'}. {ended.reason}")
        self._tell(ended)

    def _open_log(self) -> IO[bytes]:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        log = self._log.open("ab")
        log.seek(0, os.SEEK_END)
        return log

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """In a session of its own, so that Ctrl-C in a terminal reaches the window only, and children can be ended."""
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=self._environment,
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        with self._guard:
            self._process = process
            if self._killed:
                _kill(process)
        return process

    def _read(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        if process.stdout is None:
            return
        with process.stdout as lines:
            for line in lines:
                try:
                    event = decode_event(line)
                except ValueError as error:
                    log.write(f"(from the engine's pipe, {error})\n".encode())
                    log.flush()
                    continue
                if isinstance(event, Failed) and not event.failure.stopped:
                    _note(log, f"{event.during or 'engine'}: {event.failure.title}: {event.failure.message}")
                if isinstance(event, ModelLoaded):
                    self._weights = weight_sizes(event.folder)
                self._tell(event)

    def _write(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is None:
            return
        with suppress(OSError), process.stdin as pipe:  # the process may end at any moment; its reader tells
            while (line := self._requests.get()) is not None:
                pipe.write(line)
                pipe.flush()

    def _farewell(self, code: int, began: int) -> EngineStopped:
        if self._ending is not None:
            return EngineStopped(True, self._ending)
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            if name == "SIGBUS":
                return EngineStopped(False, self._bus_error())
            if name in _CRASHES:
                return EngineStopped(False, f"A library in it crashed ({name}); the log shows where.")
            memory = " The system does this when memory runs out." if name == "SIGKILL" else ""
            return EngineStopped(False, f"Its process was ended from outside ({name}).{memory}")
        words = self._last_words(began)
        return EngineStopped(False, f"Its process ended with code {code}{f': {words}' if words else ''}.")

    def _bus_error(self) -> str:
        """A view of a file has no bytes any more: which file, where that can be seen."""
        changed = self._weights.changed()
        if changed:
            return f"A file of the model changed under it: {changed}. Download the model again (SIGBUS)."
        return "A file that it was reading was cut short, or its disk went away (SIGBUS)."

    def _last_words(self, began: int) -> str:
        """The last line that this run wrote to the log."""
        with suppress(OSError), self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(began, size - LAST_WORDS))
            lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
            return lines[-1].rstrip(".")[:300] if len(lines) > 1 else ""  # the first line is ours
        return ""


def _note(log: IO[bytes], words: str) -> None:
    log.write(f"{datetime.now():%H:%M:%S}  {words}\n".encode("utf-8", "replace"))
    log.flush()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        elif process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
