"""A long task's one handle: it reports and may stop in the same breath."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from layerlight.core.errors import Stopped
from layerlight.core.messages import CalibrateRequest, Event, LoadRequest, StarterRequest, TextRequest


@dataclass(frozen=True, slots=True)
class Job:
    """Handed to every long function. `emit` may be called from any thread of the engine."""

    emit: Callable[[Event], None]
    stop: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raises Stopped when a person asked to stop; call it at every boundary where stopping is safe."""
        if self.stop.is_set():
            raise Stopped()


class Engine(Protocol):
    """What an engine keeps: one model at a time, one call at a time, all from one thread.

    Each method reports through `job.emit` and raises a LayerlightError when it fails, Stopped when it was stopped.
    """

    def survey(self, job: Job) -> None: ...

    def calibrate(self, request: CalibrateRequest, job: Job) -> None: ...

    def load(self, request: LoadRequest, job: Job) -> None: ...

    def generate(self, request: TextRequest, job: Job) -> None: ...

    def unload(self, job: Job) -> None: ...

    def fetch_starter(self, request: StarterRequest, job: Job) -> None: ...
