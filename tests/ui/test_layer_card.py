"""The card says how a layer's weights come to where it runs."""

from __future__ import annotations

import pytest

from layerlight.core.device import Budget, Device, Machine
from layerlight.core.model import LayerKind
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
from layerlight.core.state import State
from layerlight.ui.lanes import lanes_of
from layerlight.ui.layer_card import facts_of
from layerlight.ui.layer_table import rows_of
from layerlight.ui.words import short_size
from tests import fakes
from tests.core.models import GIB, accelerator, disk, ram

HERE = (ram(64 * GIB), disk())


@pytest.mark.parametrize(
    ("machine", "place", "words"),
    [
        (Machine(HERE), "cpu", "cpu"),
        (Machine(HERE), "disk", "cpu, read ahead of every pass"),
        (Machine((accelerator(free=80 * GIB), *HERE)), "disk", "cuda:0, carried for every pass"),
        (Machine((accelerator(free=80 * GIB), *HERE)), "cpu", "cuda:0, carried for every pass"),
    ],
)
def test_how_weights_come_to_where_they_run(machine: Machine, place: str, words: str) -> None:
    """One decoder layer there, all others on the first place of the machine."""
    model = fakes.thirty_billion_in_experts()
    layer = next(layer.name for layer in model.layers if layer.kind is LayerKind.DECODER)
    first = machine.devices[0].id
    wishes = Wishes(map=tuple((each.name, place if each.name == layer else first) for each in model.layers))
    plan = make_plan(model, machine, Budget(context=512), wishes)
    state = State(machine=machine, model=model, plan=plan)
    lane, unit = next((lane, unit) for lane in lanes_of(state) for unit in lane.units if unit.key == layer)
    assert dict(facts_of(unit, lane, plan, state).rows)["Runs on"] == words


@pytest.mark.parametrize("devices", [HERE, (accelerator(free=80 * GIB), *HERE)], ids=["CPU", "with a card"])
def test_of_experts_on_disk_a_token_moves_those_it_chooses(devices: tuple[Device, ...]) -> None:
    """A CPU runs them, wherever the rest is, and reads the pages of those that are chosen."""
    here = Machine(devices)
    model = fakes.thirty_billion_in_experts()
    name = next(layer.name for layer in model.layers if layer.kind is LayerKind.EXPERTS)
    places = tuple((each.name, "disk" if each.name == name else here.devices[0].id) for each in model.layers)
    plan = make_plan(model, here, Budget(context=512), Wishes(map=places))
    state = State(machine=here, model=model, plan=plan)
    lanes = lanes_of(state)
    lane, unit = next((lane, unit) for lane in lanes for unit in lane.units if unit.key == name)
    row = next(row for row in rows_of(lanes, state) if row.unit.key == name)
    assert row.moved == pytest.approx(unit.size * 8 / 128, abs=1)
    words = dict(facts_of(unit, lane, plan, state).rows)["Moves"]
    assert words.startswith(short_size(row.moved))
    assert "those chosen" in words
