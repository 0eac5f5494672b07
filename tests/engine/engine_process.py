"""A real engine process, and the events it sends."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from layerlight.core.messages import EngineWarmed, Event, Request, decode_event, encode

Kind = TypeVar("Kind")
PATIENCE = 120.0


class EngineProcess:
    """`python -m layerlight.engine.host`, its pipes and its log."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.log = home / "engine.log"
        variables: Mapping[str, str] = {**os.environ, "LAYERLIGHT_HOME": str(home), **environment}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "layerlight.engine.host", "--log", str(self.log)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables, bufsize=0,
        )  # fmt: skip
        self.events: list[Event] = []
        self.strange: list[bytes] = []
        self._arrived: queue.Queue[Event | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def warmed(self) -> EngineProcess:
        self.wait_for(EngineWarmed)
        return self

    def send(self, request: Request) -> None:
        self.write(encode(request))

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)

    def wait_for(self, *kinds: type[Kind]) -> Kind:
        """The next event of one of these kinds; what comes before it is kept in `events`."""
        until = time.monotonic() + PATIENCE
        while True:
            event = self._arrived.get(timeout=max(0.1, until - time.monotonic()))
            assert event is not None, self.log.read_text()
            self.events.append(event)
            if isinstance(event, kinds):
                return event

    def hang_up(self) -> float:
        """Closes the pipe; seconds until the process was gone."""
        assert self.process.stdin is not None
        started = time.monotonic()
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        return time.monotonic() - started

    def end(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        reader = self.process.stdout
        rest = b""
        while piece := reader.read(65536):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                try:
                    self._arrived.put(decode_event(line))
                except ValueError:
                    self.strange.append(line)
        self._arrived.put(None)
