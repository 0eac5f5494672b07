"""The map's geometry: areas are bytes, the order is the model's, nothing leaves its lane."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPointF, QRectF

from layerlight.core.device import Budget, Machine
from layerlight.core.model import Model
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
from layerlight.core.state import State
from layerlight.ui.arrangement import ROW, arrange
from layerlight.ui.lanes import lanes_of
from tests import fakes
from tests.core.models import GIB, MIB, accelerator, dense, disk, machine, ram

AREA = QRectF(16, 4, 820, 560)
CASES = {
    "starter": (fakes.no_card(), fakes.starter(), {}),
    "three places": (fakes.laptop(), fakes.fourteen_billion(), {}),
    "80 layers": (fakes.two_cards(), fakes.seventy_billion(), {}),
    "unified": (fakes.mac(), fakes.fourteen_billion(), {}),
    "too big": (fakes.no_card(), fakes.seventy_billion(), {"disk": 0}),
    "1000 layers": (fakes.laptop(), dense(1000, 256, 512, 32000), {}),
    "2 layers": (fakes.laptop(), dense(2), {}),
}


def state_of(machine: Machine, model: Model, limits: dict[str, int]) -> State:
    plan = make_plan(model, machine, Budget.of(limits.items(), 256), Wishes())
    return State(machine=machine, model=model, plan=plan)


@pytest.mark.parametrize("name", CASES)
def test_equal_layers_have_equal_areas_in_every_lane(name: str) -> None:
    found = arrange(lanes_of(state_of(*CASES[name])), AREA)
    drawn = [slot for slot in found.slots if slot.unit is not None and slot.rect.height() > 2]
    assert drawn
    for slot in drawn:
        assert slot.unit is not None
        assert slot.rect.height() == pytest.approx(slot.unit.size * found.scale)


@pytest.mark.parametrize("name", CASES)
def test_every_layer_has_one_slot_inside_its_own_lane(name: str) -> None:
    state = state_of(*CASES[name])
    found = arrange(lanes_of(state), AREA)
    assert state.plan is not None
    keys = [slot.unit.key for slot in found.sweep() if slot.unit]
    sized = [placement.layer for placement in state.plan.placements if placement.size]
    assert keys == sized
    for slot in found.slots:
        boxes = found.columns[slot.lane]
        assert any(box.adjusted(-1, -1, 1, 1).contains(slot.rect.center()) for box in boxes), slot


@pytest.mark.parametrize("name", CASES)
def test_layers_of_a_lane_read_top_to_bottom_in_the_models_order(name: str) -> None:
    found = arrange(lanes_of(state_of(*CASES[name])), AREA)
    for lane in range(len(found.lanes)):
        units = [slot for slot in found.slots if slot.lane == lane and slot.unit and slot.unit.order >= 0]
        places = [(slot.rect.left(), slot.rect.top()) for slot in units]
        assert places == sorted(places)


@pytest.mark.parametrize("name", CASES)
def test_all_lanes_stay_within_the_area(name: str) -> None:
    found = arrange(lanes_of(state_of(*CASES[name])), AREA)
    for boxes in found.columns:
        for box in boxes:
            assert box.right() <= AREA.right() + 1
            assert box.bottom() <= AREA.bottom() + 24


def test_a_lane_folds_when_its_layers_would_be_too_low() -> None:
    tall = arrange(lanes_of(state_of(*CASES["too big"])), AREA)
    assert tall.folded
    rows = [slot.rect.height() for slot in tall.slots if slot.unit and slot.unit.kind == "layer"]
    assert min(rows) >= ROW
    assert not arrange(lanes_of(state_of(*CASES["three places"])), AREA).folded


def test_what_does_not_fit_is_marked_from_the_line_where_the_room_ends() -> None:
    found = arrange(lanes_of(state_of(*CASES["too big"])), AREA)
    line = next(i for i, slot in enumerate(found.slots) if slot.kind == "over")
    beyond = [slot for slot in found.slots if slot.beyond]
    before = [slot for slot in found.slots[:line] if slot.unit]
    assert before
    assert not any(slot.beyond for slot in before)
    room = 19 * GIB - 973 * MIB
    assert sum(slot.unit.size for slot in before if slot.unit) == pytest.approx(room, rel=0.15)
    assert sum(slot.unit.size for slot in beyond if slot.unit) >= found.lanes[0].over


def test_a_half_empty_lane_is_torn_and_a_full_one_is_not() -> None:
    small = arrange(lanes_of(state_of(machine(accelerator(free=64 * MIB), ram(), disk()), dense(), {})), AREA)
    assert small.torn == [True, True, True]
    full = arrange(lanes_of(state_of(*CASES["three places"])), AREA)
    assert full.torn == [False, False, True]


def test_an_empty_machine_shows_its_lanes_to_one_scale() -> None:
    found = arrange(lanes_of(State(machine=fakes.laptop())), AREA)
    card, memory = found.columns[0][0], found.columns[1][0]
    assert (card.height() - 12) / (memory.height() - 12) == pytest.approx(8 / 15.5, rel=0.01)


def test_unified_memory_is_one_lane() -> None:
    found = arrange(lanes_of(state_of(*CASES["unified"])), AREA)
    assert [lane.place for lane in found.lanes] == ["mps", "disk"]


def test_unknown_sizes_are_drawn_without_a_number() -> None:
    blind = machine(accelerator("xpu:0", free=None, kind="xpu"), ram(), disk())  # type: ignore[arg-type]
    lanes = lanes_of(State(machine=blind))
    assert lanes[0].free is None
    assert arrange(lanes, AREA).columns


def test_no_machine_gives_no_lanes() -> None:
    assert arrange(lanes_of(State()), AREA).slots == []


def test_low_rows_can_still_be_hit() -> None:
    found = arrange(lanes_of(state_of(*CASES["1000 layers"])), AREA)
    slot = next(slot for slot in found.slots if slot.unit and slot.unit.key == "model.layers.500")
    assert found.slot_at(slot.rect.center()) is slot
    assert found.slot_at(QPointF(-5, -5)) is None
