"""The link: a real process without torch, that dies, hangs, babbles and is left alone."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from PySide6.QtCore import QObject, QThread, Slot
from pytestqt.qtbot import QtBot

from layerlight.core.device import Budget
from layerlight.core.load_request import load_request
from layerlight.core.messages import (
    ChatMessage,
    DevicesSurveyed,
    EngineStarted,
    EngineStopped,
    EngineWarmed,
    Event,
    LoadProgressed,
    ModelLoaded,
    RunFinished,
    StopRequest,
    SurveyRequest,
    TextProduced,
    TextRequest,
)
from layerlight.core.placing import make_plan
from layerlight.ui.link import TRIES, Link
from tests.core.models import dense, machine
from tests.ui.fake_engine import MACHINE

FAKE = Path(__file__).with_name("fake_engine.py")
LOAD = load_request(make_plan(dense(), machine(), Budget(context=64)))
ASK = TextRequest((ChatMessage("user", "Hello?"),), seed=1)


class Hearer(QObject):
    """Keeps what arrives, and on which thread."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.deliveries = 0
        self.threads: set[QThread] = set()
        link.arrived.connect(self.hear)

    @Slot(object)
    def hear(self, events: list[Event]) -> None:
        self.events += events
        self.deliveries += 1
        self.threads.add(QThread.currentThread())

    def of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


Start = Callable[..., tuple[Link, Hearer]]


@pytest.fixture
def start(qtbot: QtBot, tmp_path: Path) -> Iterator[Start]:
    """`start(mode)`: a running link to the fake engine in that mode, and what it hears."""
    links: list[Link] = []

    def make(mode: str = "good", command: list[str] | None = None) -> tuple[Link, Hearer]:
        link = Link(command or [sys.executable, str(FAKE), mode], os.environ, tmp_path / "log" / "layerlight.log")
        links.append(link)
        hearer = Hearer(link)
        link.start()
        return link, hearer

    yield make
    for link in links:
        link.close()
        link.finish()


def warmed(qtbot: QtBot, hearer: Hearer) -> None:
    qtbot.waitUntil(lambda: bool(hearer.of(EngineWarmed)), timeout=15000)


def test_events_arrive_in_order_on_the_windows_thread(qtbot: QtBot, start: Start) -> None:
    link, hearer = start()
    warmed(qtbot, hearer)
    link.send(SurveyRequest())
    qtbot.waitUntil(lambda: bool(hearer.of(DevicesSurveyed)), timeout=15000)
    assert [type(event) for event in hearer.events[:2]] == [EngineStarted, EngineWarmed]
    assert hearer.of(DevicesSurveyed) == [DevicesSurveyed(MACHINE)]
    assert hearer.threads == {QThread.currentThread()}


def test_a_stream_is_joined_without_losing_a_word(qtbot: QtBot, start: Start) -> None:
    link, hearer = start()
    warmed(qtbot, hearer)
    before = hearer.deliveries
    began = time.monotonic()
    link.send(ASK)
    qtbot.waitUntil(lambda: len(hearer.of(TextProduced)) > 20, timeout=15000)
    link.send(StopRequest())
    qtbot.waitUntil(lambda: bool(hearer.of(RunFinished)), timeout=15000)
    took = time.monotonic() - began
    text = "".join(event.text for event in hearer.of(TextProduced) if isinstance(event, TextProduced))
    finished = hearer.of(RunFinished)[0]
    assert isinstance(finished, RunFinished)
    assert text == finished.result.text
    assert hearer.deliveries - before <= took * 32 + 3


def test_a_killed_engine_is_said_once_and_replaced(qtbot: QtBot, start: Start) -> None:
    link, hearer = start()
    warmed(qtbot, hearer)
    first = link.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    qtbot.waitUntil(lambda: len(hearer.of(EngineWarmed)) == 2, timeout=15000)
    stopped = hearer.of(EngineStopped)
    assert len(stopped) == 1
    assert isinstance(stopped[0], EngineStopped)
    assert not stopped[0].expected
    assert "SIGKILL" in stopped[0].reason
    assert link.pid != first
    link.send(SurveyRequest())
    qtbot.waitUntil(lambda: bool(hearer.of(DevicesSurveyed)), timeout=15000)


def test_a_load_after_the_kill_works(qtbot: QtBot, start: Start) -> None:
    link, hearer = start("slow")
    warmed(qtbot, hearer)
    link.send(LOAD)
    qtbot.waitUntil(lambda: bool(hearer.of(LoadProgressed)), timeout=15000)
    assert link.pid is not None
    os.kill(link.pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: len(hearer.of(EngineWarmed)) == 2, timeout=15000)
    link.send(LOAD)
    told = len(hearer.of(LoadProgressed))
    qtbot.waitUntil(lambda: len(hearer.of(LoadProgressed)) > told, timeout=15000)


def test_rubbish_on_the_pipe_goes_to_the_log(qtbot: QtBot, start: Start, tmp_path: Path) -> None:
    link, hearer = start("garbage")
    warmed(qtbot, hearer)
    link.send(LOAD)
    qtbot.waitUntil(lambda: bool(hearer.of(ModelLoaded)), timeout=15000)
    assert "Loading weights: 100%" in (tmp_path / "log" / "layerlight.log").read_text()
    assert not hearer.of(EngineStopped)


def test_an_engine_that_can_not_start_is_tried_a_few_times_and_its_last_words_told(qtbot: QtBot, start: Start) -> None:
    link, hearer = start("dies")
    qtbot.waitUntil(lambda: len(hearer.of(EngineStopped)) == TRIES, timeout=30000)
    with qtbot.assertNotEmitted(link.arrived, wait=400):
        pass
    stopped = hearer.of(EngineStopped)[-1]
    assert isinstance(stopped, EngineStopped)
    assert "code 3" in stopped.reason
    assert "no good reason" in stopped.reason
    link.send(SurveyRequest())
    qtbot.waitUntil(lambda: len(hearer.of(EngineStopped)) > TRIES, timeout=15000)


def test_a_command_that_is_not_there_is_said(qtbot: QtBot, start: Start) -> None:
    _, hearer = start(command=["/no/such/python"])
    qtbot.waitUntil(lambda: len(hearer.of(EngineStopped)) == TRIES, timeout=15000)
    stopped = hearer.of(EngineStopped)[0]
    assert isinstance(stopped, EngineStopped)
    assert "could not be started" in stopped.reason


def test_a_replaced_engine_ends_as_expected_and_a_new_one_comes(qtbot: QtBot, start: Start) -> None:
    link, hearer = start("deaf")
    warmed(qtbot, hearer)
    link.send(LOAD)
    qtbot.waitUntil(lambda: bool(hearer.of(LoadProgressed)), timeout=15000)
    old = link.pid
    link.replace("It did not hear.")
    qtbot.waitUntil(lambda: len(hearer.of(EngineWarmed)) == 2, timeout=15000)
    assert hearer.of(EngineStopped) == [EngineStopped(True, "It did not hear.")]
    assert old is not None
    assert not psutil.pid_exists(old)


@pytest.mark.parametrize("mode", ["good", "slow", "stays"])
def test_closing_leaves_no_process(qtbot: QtBot, start: Start, mode: str) -> None:
    """H01: at rest, in the middle of a load, and when the engine does not want to go."""
    link, hearer = start(mode)
    warmed(qtbot, hearer)
    link.send(LOAD)
    qtbot.waitUntil(lambda: len(hearer.events) > 2, timeout=15000)
    pid = link.pid
    assert pid is not None
    began = time.monotonic()
    link.close()
    assert time.monotonic() - began < 0.2
    link.finish()
    assert not psutil.pid_exists(pid)


def test_nothing_arrives_after_the_close(qtbot: QtBot, start: Start) -> None:
    """H02."""
    link, hearer = start()
    warmed(qtbot, hearer)
    link.send(ASK)
    qtbot.waitUntil(lambda: bool(hearer.of(TextProduced)), timeout=15000)
    link.close()
    with qtbot.assertNotEmitted(link.arrived, wait=200):
        pass


def test_sending_never_waits_for_an_engine_that_does_not_read(qtbot: QtBot, start: Start) -> None:
    """A pipe holds 64 KiB; this is far more."""
    link, _ = start(command=[sys.executable, "-c", "import time; time.sleep(60)"])
    long = TextRequest((ChatMessage("user", "x" * 1_000_000),), seed=1)
    began = time.monotonic()
    for _ in range(5):
        link.send(long)
    assert time.monotonic() - began < 1


@pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="Windows has no such signal")
@pytest.mark.parametrize("change", ["cut short", "gone", "nothing"])
def test_a_file_cut_short_under_the_model_is_named(change: str, qtbot: QtBot, start: Start, tmp_path: Path) -> None:
    """A view of a file that has lost its bytes ends the process: which file it was is said with its end."""
    weights = tmp_path / "model" / "model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"x" * 5000)
    link, hearer = start()
    warmed(qtbot, hearer)
    link.send(replace(LOAD, folder=str(weights.parent)))
    qtbot.waitUntil(lambda: bool(hearer.of(ModelLoaded)), timeout=15000)
    if change == "cut short":
        os.truncate(weights, 1000)
    elif change == "gone":
        weights.unlink()
    assert link.pid is not None
    os.kill(link.pid, signal.SIGBUS)
    qtbot.waitUntil(lambda: bool(hearer.of(EngineStopped)), timeout=15000)
    (stopped,) = hearer.of(EngineStopped)
    assert isinstance(stopped, EngineStopped)
    words = {
        "cut short": "model.safetensors has 1,000 bytes in place of 5,000",
        "gone": "model.safetensors is gone",
        "nothing": "was cut short, or its disk went away",
    }
    assert words[change] in stopped.reason
    assert "SIGBUS" in stopped.reason
