"""A command's surroundings: where words go, what it may ask, and the stop flag of Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from layerlight.core.device import Machine
from layerlight.core.errors import LayerlightError, Stopped
from layerlight.core.job import Engine, Job
from layerlight.core.messages import LoadRequest, StarterRequest, TextRequest
from layerlight.core.plan import Plan
from layerlight.terminal import measured
from layerlight.terminal.console import Console

Map = tuple[tuple[str, str], ...]
"""(layer, place), complete."""


class OwnEngine(Engine, Protocol):
    """An engine in this process, which leaves no file behind when it is closed."""

    def count(self, request: TextRequest, load: LoadRequest, job: Job, /) -> None:
        """Raises what is wrong with the prompt, before a weight is read."""

    def check(self, load: LoadRequest, job: Job, /) -> None:
        """Tells the exact bytes of a model, before a weight is read."""

    def close(self) -> None: ...


StrategyMaps = Callable[[Plan, Sequence[str], Mapping[str, Any] | None], Mapping[str, Map]]
"""accelerate's map by each of these strategies, for the model, machine and budget of a plan; the mapping given is the
model's config where it has no folder."""


@dataclass(slots=True)
class Terminal:
    """One command's surroundings."""

    console: Console
    survey: Callable[[str | None], Machine]
    """The machine, with the disk of this offload folder as its disk."""
    new_engine: Callable[[], OwnEngine]
    fetch: Callable[[StarterRequest, Job], str]
    strategy_maps: StrategyMaps
    stop: threading.Event = field(default_factory=threading.Event)
    at_work: bool = False
    """While a job runs that hears `stop` by itself; before and after it nothing is lost by ending at once."""

    def check(self) -> None:
        if self.stop.is_set():
            raise Stopped()

    def told(self, error: LayerlightError) -> LayerlightError:
        """What to say of it. Once a stop was asked for, what broke was stopped: an import that Ctrl-C cut short ends as
        any error, for packages catch the interrupt and fail at something else.
        """
        return Stopped() if self.stop.is_set() and not isinstance(error, Stopped) else error

    def machine(self, offload_folder: str | None = None) -> Machine:
        """This machine with what was measured of it before."""
        self.check()
        self.console.say("Looking for devices …")
        machine = self.survey(offload_folder)
        self.check()
        return measured.rated(machine)
