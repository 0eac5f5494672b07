"""A window over a real session and a scripted engine, without a screen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from layerlight.core.messages import DevicesSurveyed
from layerlight.core.model import Model
from layerlight.core.settings import Settings
from layerlight.store.chats import ChatStore
from layerlight.ui.desk import Desk
from layerlight.ui.session import Session
from layerlight.ui.window import SIZE, Window
from tests.core.models import dense
from tests.fakes import FakeEngine, inspecting, load_began, load_done, load_goes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The offscreen platform says this of every window with a smallest size; it says nothing about the window."""
    for item in items:
        item.add_marker(pytest.mark.qt_log_ignore("does not support propagateSizeHints", extend=True))


@pytest.fixture(autouse=True)
def one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a scripted engine tells is taken at once, however busy the machine that runs the tests."""
    monkeypatch.setattr("layerlight.ui.event_turns.TURN", 3600.0)


class Bench:
    """Everything a test of the window touches, with the steps that many tests begin with."""

    def __init__(
        self, qtbot: QtBot, engine: FakeEngine, session: Session, window: Window, desk: Desk, model: Model
    ) -> None:
        self.qtbot, self.engine, self.session, self.model = qtbot, engine, session, model
        self.window, self.desk = window, desk

    def open(self) -> None:
        self.session.open_folder(self.model.folder)
        self.qtbot.waitUntil(lambda: self.session.state.plan is not None or self.session.problem is not None)

    def start_load(self, share: float = 0.4) -> None:
        self.session.load()
        request = self.engine.last_load
        assert request is not None
        self.engine.tell(*load_began(request), *load_goes(request, share))

    def load(self) -> None:
        self.start_load(1.0)
        assert self.engine.last_load is not None
        self.engine.tell(load_done(self.engine.last_load, self.engine.machine))


MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench(qtbot: QtBot, tmp_path: Path) -> Iterator[MakeBench]:
    """`make_bench(machine, model, **settings)`: a shown window whose engine has warmed up and seen the machine."""
    made: list[Window] = []

    def make(
        machine: object = None, model: Model | None = None, store: ChatStore | None = None, **settings: object
    ) -> Bench:
        engine = FakeEngine(machine)  # type: ignore[arg-type]
        model = model or dense()
        session = Session(engine, Settings(**settings), store, inspecting(model))  # type: ignore[arg-type]
        window = Window(session.settings.window_geometry)
        if not session.settings.window_geometry:
            window.resize(*SIZE)  # the screen of these tests is smaller
        desk = Desk(session, tmp_path / "layerlight.log")
        desk.furnish(window)
        made.append(window)
        qtbot.addWidget(window)
        window.show()
        session.begin()
        engine.warm_up()
        engine.tell(DevicesSurveyed(engine.machine))
        return Bench(qtbot, engine, session, window, desk, model)

    yield make
    for window in made:
        window.close()


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return make_bench()


@pytest.fixture
def opened(bench: Bench) -> Bench:
    bench.open()
    return bench


@pytest.fixture
def loaded(opened: Bench) -> Bench:
    opened.load()
    return opened
