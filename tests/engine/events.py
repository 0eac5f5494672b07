"""Keeps the events of jobs, and finds them by kind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from layerlight.core.job import Job
from layerlight.core.messages import ChatMessage, Event, RunFinished, RunResult, TextRequest
from layerlight.engine.engine import TorchEngine

Kind = TypeVar("Kind")


class Events:
    """A job's listener. `when(kind, react)` is called while the job runs."""

    def __init__(self) -> None:
        self.all: list[Event] = []
        self.stop = threading.Event()
        self._reactions: list[tuple[type, Callable[..., None]]] = []

    def job(self) -> Job:
        return Job(self._hear, self.stop)

    def when(self, kind: type[Kind], react: Callable[[Kind], None]) -> Events:
        self._reactions.append((kind, react))
        return self

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.all if isinstance(event, kind)]

    def last(self, kind: type[Kind]) -> Kind:
        return self.of(kind)[-1]

    def _hear(self, event: Event) -> None:
        self.all.append(event)
        for kind, react in self._reactions:
            if isinstance(event, kind):
                react(event)


def ask(engine: TorchEngine, text: str = "hello there, world", count: int = 8, **settings: object) -> RunResult:
    """One greedy answer, unless settings say otherwise."""
    events = Events()
    engine.generate(text_request(text, count, **settings), events.job())
    return events.last(RunFinished).result


def wait_for_copies(engine: TorchEngine) -> None:
    """Until all that can be brought to a device ahead of the next pass has been: only then its counts are whole."""
    assert engine.loaded is not None
    assert engine.loaded.staged is not None
    while not engine.loaded.staged.ring.full:
        time.sleep(0.001)


def text_request(text: str = "hello there, world", count: int = 8, **settings: object) -> TextRequest:
    sampling = {"seed": 0, "temperature": 0.0, **settings}
    return TextRequest((ChatMessage("user", text),), max_new_tokens=count, **sampling)  # type: ignore[arg-type]
