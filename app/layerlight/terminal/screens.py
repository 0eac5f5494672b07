"""Screens: what happens, told while it happens, drawn live in a terminal and in plain lines elsewhere."""

from __future__ import annotations

from typing import Protocol, TextIO

from rich.console import Console as RichConsole
from rich.live import Live

from layerlight.core.device import format_size
from layerlight.core.messages import (
    Event,
    LoadProgressed,
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

REFRESHES = 12
"""A second, while something is drawn live."""
_STEP = 10
"""Per cent between two plain lines of one stage."""


class Screen(Protocol):
    """Told every event with the state after it."""

    shows_answer: bool
    """True when the growing answer is drawn here, so that it must not be printed at the same time."""

    def show(self, state: State, event: Event, /) -> None: ...

    def close(self) -> None: ...


def screen_for(err: TextIO, out: TextIO, streams: bool) -> Screen:
    """The screen that fits: live where stderr is a terminal. `streams`: an answer is printed to `out` as it grows."""
    console = RichConsole(file=err)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveScreen(console, shows_answer=streams and out.isatty())
    return PlainScreen(err)


class PlainScreen:
    """Lines, for logs and pipes: each stage once, then every tenth part of it."""

    shows_answer = False

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self._told: tuple[str, int] | None = None

    def show(self, _state: State, event: Event, /) -> None:
        match event:
            case Planned(plan=plan):
                self._line(tables.title(plan))
                for words in tables.verdict(plan):
                    self._line(words)
            case StarterProgressed(stage=stage, done=done, total=total, licence=licence):
                self._step(stage.partition(":")[0], done, total, f"{stage} ({licence})")
            case LoadProgressed() as progress:
                words = f"{progress.stage}: {progress.layers_done} of {progress.layers_total} layers"
                self._step(progress.stage, progress.bytes_done, progress.bytes_total, words)
            case ModelLoaded() as loaded:
                self._line(loaded_words(loaded))
            case _:
                return

    def close(self) -> None:
        self._err.flush()

    def _step(self, stage: str, done: int, total: int, words: str) -> None:
        share = 100 * done // total if total else 0
        if self._told is None or self._told[0] != stage or share - self._told[1] >= _STEP:
            self._told = (stage, share)
            self._line(f"{share:3d} % {words}")

    def _line(self, words: str) -> None:
        self._err.write(words + "\n")
        self._err.flush()


class LiveScreen:
    """Lanes that fill while loading and light up while running; redrawn in place on rich's own thread."""

    def __init__(self, console: RichConsole, shows_answer: bool) -> None:
        self.shows_answer = shows_answer
        self._console = console
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


def loaded_words(loaded: ModelLoaded) -> str:
    """Where the weights were measured to be, and how long it took."""
    sizes: dict[str, int] = {}
    for placed in loaded.placed:
        sizes[placed.rests_on] = sizes.get(placed.rests_on, 0) + placed.size
    there = ", ".join(f"{place} {format_size(size)}" for place, size in sizes.items())
    return f"Loaded in {loaded.seconds:.1f} s: {there} (measured)."
