"""The end of long work is told when nobody looks, and only then."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtWidgets import QApplication, QSystemTrayIcon

from layerlight.core.messages import EngineWarmed, Failed, Failure, TextRequest
from layerlight.ui import attention
from layerlight.ui.attention import LONG, Attention
from tests.fakes import answer_events, load_done
from tests.ui.conftest import Bench

Told = list[tuple[str, str]]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told(opened: Bench, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Told:
    """What is told while the window is not looked at."""
    found: Told = []
    monkeypatch.setattr(QApplication, "activeWindow", staticmethod(lambda: None))
    monkeypatch.setattr(Attention, "tell", lambda _self, title, words: found.append((title, words)))
    Attention(opened.session, opened.window, clock)
    return found


def finish_load(bench: Bench) -> None:
    assert bench.engine.last_load is not None
    bench.engine.tell(load_done(bench.engine.last_load, bench.engine.machine))


def ask(bench: Bench, clock: Clock, seconds: float, *pieces: str) -> None:
    bench.session.ask("Where?")
    request = bench.engine.sent[-1]
    assert isinstance(request, TextRequest)
    clock.now += seconds
    bench.engine.tell(*answer_events(request, pieces))


def test_a_long_load_and_a_long_answer_are_told(opened: Bench, told: Told, clock: Clock) -> None:
    opened.start_load(1.0)
    clock.now += 80
    finish_load(opened)
    assert told == [(f"{opened.model.name} is loaded", "It can be asked now. Loading took 80 s.")]
    told.clear()
    ask(opened, clock, 95, "In {Paris}", "\nnow.")
    assert told == [("The answer is there", "In {Paris} now. (1 min 35 s)")]


def test_short_work_is_not_worth_a_word(opened: Bench, told: Told, clock: Clock) -> None:
    opened.start_load(1.0)
    clock.now += LONG - 0.1
    finish_load(opened)
    ask(opened, clock, LONG - 0.1, "Here.")
    assert told == []


def test_each_piece_of_work_is_timed_by_itself(opened: Bench, told: Told, clock: Clock) -> None:
    opened.start_load(1.0)
    clock.now += 1
    finish_load(opened)
    clock.now += 1000
    ask(opened, clock, 1, "Here.")
    assert told == []


def test_a_failure_is_told_and_a_stop_is_not(opened: Bench, told: Told, clock: Clock) -> None:
    opened.start_load()
    clock.now += 30
    opened.engine.tell(Failed(Failure("Stopped", "", "", "Stopped"), "LoadRequest"))
    assert told == []
    opened.start_load()
    clock.now += 30
    opened.engine.tell(Failed(Failure("Memory ran out", "Layer 13 {needs} more.", "", "OutOfMemory"), "LoadRequest"))
    assert told == [("Memory ran out", "Layer 13 {needs} more. (after 30 s)")]


@pytest.mark.parametrize("why", ["looked at", "not wished"])
def test_nothing_is_told_where_nobody_wants_it(
    opened: Bench, told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "looked at":
        monkeypatch.setattr(QApplication, "activeWindow", staticmethod(lambda: opened.window))
    else:
        opened.desk.menus.actions["notifications"].trigger()
        assert not opened.session.settings.notifications
    opened.start_load(1.0)
    clock.now += 80
    finish_load(opened)
    assert told == []


def test_other_events_end_nothing(opened: Bench) -> None:
    assert attention.said_of(EngineWarmed((), 1.0), opened.session.state) is None


@pytest.mark.parametrize("tray", [True, False])
def test_the_tray_is_used_where_there_is_one_and_the_taskbar_elsewhere(
    opened: Bench, monkeypatch: pytest.MonkeyPatch, tray: bool
) -> None:
    shown: Told = []
    alerts: list[object] = []
    available: Callable[[], bool] = lambda: tray  # noqa: E731
    monkeypatch.setattr(QSystemTrayIcon, "isSystemTrayAvailable", staticmethod(available))
    monkeypatch.setattr(QSystemTrayIcon, "supportsMessages", staticmethod(available))
    monkeypatch.setattr(QSystemTrayIcon, "show", lambda _self: None)
    monkeypatch.setattr(QSystemTrayIcon, "showMessage", lambda _self, title, words, *_: shown.append((title, words)))
    monkeypatch.setattr(QApplication, "alert", staticmethod(alerts.append))
    teller = Attention(opened.session, opened.window)
    teller.tell("It is loaded", "Ask it.")
    assert shown == ([("It is loaded", "Ask it.")] if tray else [])
    assert alerts == ([] if tray else [opened.window])
