"""The drawing shows what was measured, never more, and fits the width it has."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from layerlight.core.device import Budget
from layerlight.core.job import Job
from layerlight.core.load_request import load_request
from layerlight.core.messages import ChatMessage, Event, ModelLoaded, Planned, StarterProgressed, TextRequest
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan
from layerlight.core.state import Phase, State, apply
from layerlight.terminal.lanes import ANSWER_LINES, draw
from layerlight.terminal.live_screen import LiveScreen
from layerlight.terminal.screens import PlainScreen, screen_for
from tests.core.models import MIB, accelerator, dense, disk, machine, ram
from tests.terminal.fake_engine import FakeEngine


def _plan(layers: int = 12) -> Plan:
    model = dense(layers=layers, hidden=256, intermediate=512)
    two = machine(accelerator("cuda:0", free=200 * MIB), ram(), disk())
    return make_plan(model, two, Budget.of([("cuda:0", 6 * MIB + layers * 400_000)], context=128))


def _events(plan: Plan) -> list[Event]:
    events: list[Event] = [Planned(plan)]
    engine, job = FakeEngine(), Job(events.append)
    engine.load(load_request(plan), job)
    engine.generate(TextRequest((ChatMessage("user", "x"),), seed=1), job)
    return events


def _drawn(state: State, width: int, answer: bool = False) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(draw(state, width, answer))
    return file.getvalue().splitlines()


def _states(plan: Plan) -> list[State]:
    states = [State()]
    for event in _events(plan):
        states.append(apply(states[-1], event))
    return states


def test_a_lane_per_place_and_a_block_per_layer() -> None:
    plan = _plan()
    drawn = _drawn(apply(State(), Planned(plan)), 100)
    assert len(plan.places) == 2
    for place, line in zip(plan.places, drawn[:2], strict=True):
        assert line.startswith(place)
        assert line.count("░") == sum(placement.rests_on == place for placement in plan.placements)


def test_blocks_rest_only_once_that_was_measured() -> None:
    plan = _plan()
    resting = []
    for state in _states(plan):
        lines = _drawn(state, 100)
        resting.append(sum(line.count("█") for line in lines[: len(plan.places)]))
        assert resting[-1] >= len(state.places) or not state.places
        if not state.places:
            assert resting[-1] == 0
    assert max(resting) == len(plan.placements)


def test_the_running_layer_is_named_with_its_place() -> None:
    plan = _plan()
    running = [state for state in _states(plan) if state.running]
    assert running
    for state in running:
        assert state.running is not None
        place = plan.placement(state.running).runs_on
        assert f"{state.running} runs on {place}" in "\n".join(_drawn(state, 100))


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("layers", [2, 48, 200])
def test_it_fits_any_width(width: int, layers: int) -> None:
    for state in _states(_plan(layers))[:-1]:
        for line in _drawn(state, width):
            assert len(line) <= width


def test_the_answer_is_drawn_where_asked_for() -> None:
    states = _states(_plan())
    assert any("Paris is" in "\n".join(_drawn(state, 80, answer=True)) for state in states)
    assert not any("Paris is" in "\n".join(_drawn(state, 80)) for state in states)


@pytest.mark.parametrize("answer", ["word " * 4000, "x" * 20_000, "line\n" * 500, "漢字" * 500])
def test_a_long_answer_leaves_the_lanes_in_sight(answer: str) -> None:
    plan = _plan()
    state = replace(_states(plan)[-2], phase=Phase.RUNNING, answer=answer + "end")
    drawn = _drawn(state, 80, answer=True)
    assert drawn[0].startswith(plan.places[0])
    assert len(drawn) <= len(plan.places) + 1 + 2 * ANSWER_LINES
    assert drawn[-1].endswith("end")


def test_the_starter_s_progress_is_a_bar() -> None:
    state = apply(State(), StarterProgressed("Downloading", 30, 60, "A-1.0"))
    (line,) = _drawn(state, 80)
    assert line.count("█") == line.count("░")
    assert "50%" in line
    assert "A-1.0" in line


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def xterm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")


def test_live_in_a_terminal_plain_elsewhere(xterm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    live = screen_for(_Terminal(), _Terminal(), streams=True)
    assert isinstance(live, LiveScreen)
    assert live.shows_answer
    assert not screen_for(_Terminal(), io.StringIO(), streams=True).shows_answer
    assert not screen_for(_Terminal(), _Terminal(), streams=False).shows_answer
    assert isinstance(screen_for(io.StringIO(), _Terminal(), streams=True), PlainScreen)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(screen_for(_Terminal(), _Terminal(), streams=True), PlainScreen)


def test_the_live_screen_leaves_the_loaded_lanes_standing(xterm: None) -> None:
    file = _Terminal()
    screen = LiveScreen(file, shows_answer=True)
    state = State()
    for event in _events(_plan())[:-1]:
        state = apply(state, event)
        screen.show(state, event)
        if isinstance(event, ModelLoaded):
            loaded = file.getvalue()
    screen.close()
    assert "Loaded in 1.5 s" in loaded
    assert "█" in loaded
    assert "Paris is the capital." in file.getvalue()
    assert file.getvalue().count("\x1b[?25h") == file.getvalue().count("\x1b[?25l") == 2, "the cursor comes back"


def test_plain_lines_tell_each_stage_once_and_no_more_than_each_tenth() -> None:
    file = io.StringIO()
    screen = PlainScreen(file)
    for done in range(1001):
        screen.show(State(), StarterProgressed(f"Downloading Tiny: {done} of 1000", done, 2000, "A-1.0"))
    for done in range(1000, 2001):
        screen.show(State(), StarterProgressed("Converting Tiny", done, 2000, "A-1.0"))
    lines = file.getvalue().splitlines()
    assert len(lines) == 12
    shares = [int(line.split(" %")[0]) for line in lines]
    assert shares == sorted(shares)
    assert shares[-1] == 100
