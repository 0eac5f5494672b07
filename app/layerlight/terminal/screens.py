"""Screens: what happens, told while it happens; in plain lines where nothing can be drawn."""

from __future__ import annotations

from typing import Protocol, TextIO

from layerlight.core.characters import printable
from layerlight.core.device import format_size
from layerlight.core.messages import (
    CalibrationProgressed,
    Event,
    LoadProgressed,
    ModelLoaded,
    Planned,
    StarterProgressed,
)
from layerlight.core.state import State
from layerlight.terminal import tables

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
    if err.isatty():
        from layerlight.terminal.live_screen import LiveScreen, can_draw

        if can_draw(err):
            return LiveScreen(err, shows_answer=streams and out.isatty())
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
                words = f"{progress.stage}: {progress.layers_done} of {progress.layers_total} parts"
                self._step(progress.stage, progress.bytes_done, progress.bytes_total, words)
            case CalibrationProgressed(stage=stage, done=done, total=total):
                self._step("Measuring", round(done), round(total), stage)
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
        self._err.write(printable(words) + "\n")
        self._err.flush()


def loaded_words(loaded: ModelLoaded) -> str:
    """Where the weights were measured to be, and how long it took."""
    sizes: dict[str, int] = {}
    for placed in loaded.placed:
        sizes[placed.rests_on] = sizes.get(placed.rests_on, 0) + placed.size
    there = ", ".join(f"{place} {format_size(size)}" for place, size in sizes.items())
    return f"Loaded in {loaded.seconds:.1f} s: {there} (measured)."
