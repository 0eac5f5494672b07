"""Experts on the map: cells beside their layer, or on a place of their own, and what the words say of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QImage, QPainter

from layerlight.core.device import Budget, Machine
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan, Wishes
from layerlight.core.state import State
from layerlight.ui.arrangement import Arrangement, arrange
from layerlight.ui.block_looks import CELL, cells_of, draw_experts
from layerlight.ui.lanes import Unit, lanes_of
from layerlight.ui.layer_card import facts_of
from layerlight.ui.map_painter import MapPainter
from layerlight.ui.palette import LIGHT
from layerlight.ui.planning import spoken
from layerlight.ui.words import short_size
from tests import fakes
from tests.core.models import GIB, accelerator, disk, machine, ram

AREA = QRectF(16, 4, 820, 560)
RATES = (("cpu", 40e9), ("matrix:cpu:bfloat16", 400e9))
APART = Machine((accelerator("cuda:0", 12 * GIB), ram(64 * GIB), disk()), RATES)
MACHINES = {
    "some in RAM": APART,
    "some on disk": fakes.laptop(),
    "all on one card": machine(accelerator(free=96 * GIB), ram(), disk()),
    "unified": fakes.mac(),
}


def planned(here: Machine, wishes: Wishes | None = None) -> tuple[Plan, State]:
    model = fakes.thirty_billion_in_experts()
    plan = make_plan(model, here, Budget(context=4096), wishes or Wishes())
    return plan, State(machine=here, model=model, plan=plan)


def drawn(state: State) -> Arrangement:
    return arrange(lanes_of(state), AREA)


@pytest.mark.parametrize("name", MACHINES)
def test_lanes_sum_to_the_prediction_and_every_layer_is_drawn_once(name: str) -> None:
    plan, state = planned(MACHINES[name])
    unified = any(device.shares_memory_with for device in plan.machine.devices)
    lanes = lanes_of(state)
    assert sum(lane.taken for lane in lanes) == sum(use.used for use in plan.prediction.places)
    if not unified:
        assert all(lane.taken == plan.prediction.use(lane.place).used for lane in lanes)
    keys = [slot.unit.key for slot in drawn(state).sweep() if slot.unit]
    assert keys == [placement.layer for placement in plan.placements if placement.size]
    assert not [unit for lane in lanes for unit in lane.units if unit.kind == "berth" and lane.place == "cpu"]


@pytest.mark.parametrize("name", MACHINES)
def test_experts_stand_beside_their_layer_on_its_place_and_area_is_bytes(name: str) -> None:
    plan, state = planned(MACHINES[name])
    found = drawn(state)
    for layer in (each for each in plan.model.layers if each.kind.value == "experts"):
        outer, inner = found.slot_of(layer.name.removesuffix(".mlp.experts")), found.slot_of(layer.name)
        assert outer is not None
        assert inner is not None
        assert inner.beside == (inner.lane == outer.lane)
        if inner.beside:
            assert inner.rect.top() == outer.rect.top()
            assert inner.rect.height() == outer.rect.height()
            assert inner.rect.left() > outer.rect.right()
            assert inner.unit is not None
            assert outer.unit is not None
            row = inner.rect.united(outer.rect)
            assert row.height() == pytest.approx((inner.unit.size + outer.unit.size) * found.scale)
    rects = [slot.rect for slot in found.slots if slot.unit]
    for a, b in pairwise(rects):
        assert a.intersected(b).height() <= 0.6 or a.intersected(b).width() <= 0.6


@pytest.mark.parametrize("experts", [1, 4, 8, 60, 128, 256])
@pytest.mark.parametrize(("wide", "high"), [(300, 20), (300, 6), (120, 9), (40, 5), (9, 40)])
def test_cells_can_be_seen(experts: int, wide: float, high: float) -> None:
    """One for each expert where there is room for it; never lower or narrower than can be told apart."""
    rows, columns = cells_of(QRectF(0, 0, wide, high), experts)
    assert rows * columns <= experts + rows
    assert columns == 1 or wide / columns >= CELL
    assert rows == 1 or high / rows >= CELL
    if experts * CELL <= wide:
        assert rows * columns >= experts


def test_cells_differ_from_a_plain_block_and_planned_from_resting() -> None:
    looks = {}
    for state in ("planned", "resting"):
        for experts in (0, 8):
            image = QImage(120, 24, QImage.Format.Format_RGB32)
            image.fill(QColor(LIGHT.well))
            painter = QPainter(image)
            unit = Unit("x", "experts", "experts", 0, 1, state=state, experts=experts)
            draw_experts(painter, QRectF(2, 2, 116, 20), unit, "gpu", LIGHT)
            painter.end()
            looks[state, experts] = bytes(image.constBits())
    assert len(set(looks.values())) == 4


def test_one_crossing_stands_for_those_of_all_layers() -> None:
    """A line for each of 41 layers there and back would be a curtain."""
    _, state = planned(APART)
    found = drawn(state)
    hops = []
    painter = MapPainter(found, LIGHT, AREA)

    class Counted(MapPainter):
        def _hop(self, *crossing: object) -> None:
            hops.append(crossing)

    Counted(painter.plan, painter.t, painter.area).routes(QPainter())
    assert 1 <= len(hops) <= 3


def test_the_card_says_how_many_and_where_they_run() -> None:
    plan, state = planned(fakes.laptop())
    away = next(each for each in plan.placements if each.rests_on == "disk")
    lane = next(lane for lane in lanes_of(state) if lane.place == "disk")
    unit = next(unit for unit in lane.units if unit.key == away.layer)
    rows = dict(facts_of(unit, lane, plan, state).rows)
    assert rows["Experts"] == "128, of which a token passes 8"
    assert rows["Runs on"] == "cpu"
    assert rows["Moves"] == f"{short_size(away.size * 8 // 128)} of pages a token, those chosen"
    assert facts_of(unit, lane, plan, state).title == f"Experts of layer {unit.index}"
    assert spoken(plan.model, [away.layer]) == f"experts of layer {unit.index}"
