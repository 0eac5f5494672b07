"""LiveScreen: lanes that fill while loading and light up while running, redrawn in place."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.live import Live

from layerlight.core.messages import (
    Event,
    LoadStarted,
    ModelLoaded,
    Planned,
    PromptCounted,
    RunFinished,
    StarterProgressed,
    StarterReady,
)
from layerlight.core.state import Phase, State
from layerlight.terminal import tables
from layerlight.terminal.lanes import draw
from layerlight.terminal.screens import loaded_words

REFRESHES = 12
"""A second, while something is drawn live."""


def can_draw(err: TextIO) -> bool:
    """Whether this terminal can be drawn in; a dumb one can only scroll."""
    console = Console(file=err)
    return console.is_terminal and not console.is_dumb_terminal


class LiveScreen:
    """Lanes that fill while loading and light up while running; redrawn in place on rich's own thread."""

    def __init__(self, err: TextIO, shows_answer: bool) -> None:
        self.shows_answer = shows_answer
        self._console = Console(file=err)
        self._state = State()
        self._live: Live | None = None

    def show(self, state: State, event: Event, /) -> None:
        self._state = state
        match event:
            case Planned(plan=plan):
                self._console.print(tables.title(plan), style="bold", highlight=False)
                for words in tables.verdict(plan):
                    self._console.print(words, highlight=False)
            case StarterProgressed() | LoadStarted():
                self._draw(stays=isinstance(event, LoadStarted))
            case PromptCounted():
                self._draw(stays=False)
            case StarterReady() | RunFinished():
                self.close()
            case ModelLoaded() as loaded:
                self.close()
                self._console.print(loaded_words(loaded), highlight=False)
            case _:
                return

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self, stays: bool) -> None:
        """Begins to draw; what `stays` is left standing when it ends, the rest is wiped away."""
        if self._live is None:
            self._live = Live(
                console=self._console,
                get_renderable=lambda: draw(
                    self._state, self._console.width, self.shows_answer and self._state.phase is Phase.RUNNING
                ),
                refresh_per_second=REFRESHES,
                transient=not stays,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
