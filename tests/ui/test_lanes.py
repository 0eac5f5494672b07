"""What the map shows is what the state says: planned, loading, resting, measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerlight.core.device import Budget
from layerlight.core.load_request import load_request
from layerlight.core.messages import (
    ChatMessage,
    Event,
    LayerPlaced,
    LoadProgressed,
    PlaceMemory,
    Planned,
    TextRequest,
)
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
from layerlight.core.state import State, apply
from layerlight.ui.lanes import Lane, Unit, lanes_of, short_name
from tests import fakes
from tests.core.models import GIB, accelerator, dense, disk, machine, ram


def planned(limit: int | None = None) -> State:
    machine, model = fakes.laptop(), fakes.fourteen_billion()
    limits = {} if limit is None else {"cuda:0": limit}
    return State(machine=machine, model=model, plan=make_plan(model, machine, Budget.of(limits.items())))


def told(state: State, *events: Event) -> State:
    for event in events:
        state = apply(state, event)
    return state


def units(state: State) -> dict[str, Unit]:
    return {unit.key: unit for lane in lanes_of(state) for unit in lane.units if unit.order >= 0}


def test_a_plan_is_drawn_as_planned_and_sums_to_its_own_prediction() -> None:
    state = planned()
    assert state.plan is not None
    assert {unit.state for unit in units(state).values()} == {"planned"}
    for lane in lanes_of(state):
        assert lane.taken == state.plan.prediction.use(lane.place).used


def test_while_loading_bytes_fill_the_layers_in_order_and_placed_ones_rest() -> None:
    state = planned()
    assert state.plan is not None
    request = load_request(state.plan)
    first, second, third = request.placements[:3]
    done = first.size + second.size // 2
    state = told(
        state,
        *fakes.load_began(request),
        LayerPlaced(fakes.placed(first)),
        LoadProgressed("reading", done, 10 * GIB, 1, 43),
    )
    found = units(state)
    assert found[first.layer].state == "resting"
    assert found[second.layer].state == "loading"
    assert found[second.layer].fill == pytest.approx(0.5, abs=0.01)
    assert found[third.layer].state == "planned"


def test_measured_places_win_over_planned_ones() -> None:
    """A layer that landed elsewhere is shown where it is."""
    state = planned()
    assert state.plan is not None
    request = load_request(state.plan)
    astray = next(each for each in request.placements if each.rests_on == "cuda:0")
    loaded = fakes.load_done(request, fakes.laptop())
    moved = tuple(replace(each, rests_on="cpu") if each.layer == astray.layer else each for each in loaded.placed)
    state = told(state, *fakes.load_began(request), replace(loaded, placed=moved))
    lane = next(lane for lane in lanes_of(state) if any(unit.key == astray.layer for unit in lane.units))
    assert lane.place == "cpu"


def test_a_new_plan_does_not_change_what_is_shown_as_loaded() -> None:
    """H17: the state is told truly."""
    state = planned()
    assert state.plan is not None
    assert state.machine is not None
    assert state.model is not None
    request = load_request(state.plan)
    state = told(state, *fakes.load_began(request), fakes.load_done(request, fakes.laptop()))
    before = lanes_of(state)
    other = make_plan(state.model, state.machine, Budget.of({"cuda:0": 3 * GIB}.items()))
    state = told(state, Planned(other))
    assert lanes_of(state) == before
    assert lanes_of(state, prefer_next=True) != before


@pytest.mark.parametrize(
    ("peak", "words"),
    [(None, "weights as planned"), (1, "below the plan"), (10**12, "above the plan")],
)
def test_planned_against_measured_is_said(peak: int | None, words: str) -> None:
    """Weights after the load; the peak counts once something ran."""
    state = planned()
    assert state.plan is not None
    request = load_request(state.plan)
    loaded = fakes.load_done(request, fakes.laptop())
    memory = tuple(replace(each, peak=peak) if each.place == "cuda:0" else each for each in loaded.memory)
    state = told(state, *fakes.load_began(request), replace(loaded, memory=memory))
    assert "weights as planned" in lanes_of(state)[0].note
    ask = TextRequest((ChatMessage("user", "Hello?"),), seed=1)
    state = told(state, *fakes.answer_events(ask, ("Hello.",)))
    assert words in lanes_of(state)[0].note


@pytest.mark.parametrize(
    ("total", "free"), [(None, None), (8 * GIB, None), (8 * GIB, 9 * GIB), (8 * GIB, 0), (None, GIB)]
)
def test_memory_is_never_a_wrong_number(total: int | None, free: int | None) -> None:
    """H14: what can't be read is unknown, and more free than there is counts as all free."""
    state = replace(State(machine=fakes.laptop()), memory=(PlaceMemory("cuda:0", total, free, 0),))
    lane = lanes_of(state)[0]
    assert lane.other >= 0
    assert lane.free is None or lane.free <= 8 * GIB


@pytest.mark.parametrize(
    ("free", "fast"),
    [
        ((7 * GIB, 0), ("disk-ring", "disk", "disk-load")),
        ((40 * GIB, 8 * GIB), ("bus:cuda:0:to-pageable", "bus")),
        ((7 * GIB, 8 * GIB), ("disk-ring", "disk", "bus:cuda:0:to-pageable", "bus")),
    ],
    ids=["read ahead from disk", "carried from RAM", "from both"],
)
def test_only_what_nothing_hides_is_told_as_waiting(free: tuple[int, int], fast: tuple[str, ...]) -> None:
    """Work hides a part of what is read ahead: what waits is what the same plan would save if nothing were brought."""
    memory, card = free
    devices = (accelerator(free=card), ram(memory), disk()) if card else (ram(memory), disk())
    here, model = machine(*devices), fakes.fourteen_billion()
    plan = make_plan(model, here, Budget())
    state = State(machine=here, model=model, plan=plan)
    shown = units(state).values()
    at_once = machine(*devices, rates=tuple((name, 1e18) for name in fast))
    wishes = Wishes(map=tuple(plan.device_map().items()))
    saved = plan.prediction.seconds_per_token - make_plan(model, at_once, Budget(), wishes).prediction.seconds_per_token
    assert sum(unit.seconds for unit in shown) == pytest.approx(plan.prediction.seconds_per_token, rel=0.01)
    assert sum(unit.waited for unit in shown) == pytest.approx(saved, rel=1e-4), "but for hand-overs"
    assert 0 < saved < plan.prediction.seconds_per_token
    assert all(bool(unit.waited) == (unit.carried and unit.size > 0) for unit in shown if unit.kind == "layer")


def test_layers_are_called_what_people_call_them() -> None:
    names = [short_name(layer) for layer in dense(2).layers]
    assert names == ["embedding", "layer 0", "layer 1", "final norm", "output head"]


def test_an_unread_total_leaves_the_free_memory_unknown() -> None:
    assert Lane("xpu:0", "gpu", "Arc", "", None).free is None


def test_an_idle_lane_says_why() -> None:
    """Not only that nothing is there: that all has room elsewhere, or what stands against using it."""
    here, model = machine(accelerator(free=40 * GIB), ram(), disk()), fakes.fourteen_billion()
    state = State(machine=here, model=model, plan=make_plan(model, here, Budget()))
    told_of = {lane.place: lane.idle for lane in lanes_of(state)}
    assert told_of == {
        "cuda:0": "",
        "cpu": "not needed: what is in use has room for all",
        "disk": "not needed: memory has room for all",
    }
