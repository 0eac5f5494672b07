"""All public models on all bundled machines: each cell is true by the checker's count, and no greedy map beats it."""

from __future__ import annotations

import json
from functools import cache

import pytest

from layerlight.core.advice import Verdict
from layerlight.core.device import Budget
from layerlight.core.machines.machine_files import machine_names, read_machine
from layerlight.core.machines.public_models import public_model, public_model_names
from layerlight.core.model import Model
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
from layerlight.core.plan_table import table
from tests.core.models import dense, disk, machine, ram
from tests.core.plan_checker import Table, check, groups_of
from tests.core.planning.test_optimum import fits, greedy_maps, mixes_one_pool

MACHINES = machine_names()
CONTEXT = 4096


@cache
def model(name: str) -> Model:
    return public_model(name)


@pytest.mark.parametrize("name", public_model_names())
def test_every_cell_is_true_and_the_fastest(name: str) -> None:
    """A verdict, bytes and seconds in each; no limit overflows; no greedy map that fits is faster, or fits alone."""
    cells = table([model(name)], [(each, read_machine(each)) for each in MACHINES], Budget(context=CONTEXT))
    assert [cell.machine for cell in cells] == list(MACHINES)
    for cell in cells:
        own = model(name).context_length or CONTEXT
        plan = make_plan(model(name), read_machine(cell.machine), Budget(context=min(CONTEXT, own)))
        found = check(plan)
        assert dict(cell.places) == {place: size for place, size in found.used.items() if size}
        assert cell.seconds_per_token == pytest.approx(found.token)
        assert (cell.verdict is Verdict.FAILED) == (cell.shortfall > 0)
        assert cell.shortfall > 0 or fits(plan, plan.device_map())
        prices = Table(plan)
        for places in {tuple(each.items()): each for each in greedy_maps(plan)}.values():
            if not mixes_one_pool(plan, places):
                theirs = prices.total([places[group[0].name] for group in groups_of(plan.model)])
                assert theirs == float("inf") or found.total <= theirs * (1 + 1e-9)
                assert plan.fits or theirs == float("inf")


def test_a_cell_is_written_as_json_and_needs_no_special_numbers() -> None:
    here = ("here", machine(ram(), disk()))
    fine, quantized = table([dense(), dense(quantization="gptq")], [here], Budget(context=128), Wishes(dtype="float32"))
    assert fine.content()["places"] == dict(fine.places)
    assert json.loads(json.dumps([fine.content(), quantized.content()]))[0]["verdict"] == "fits"


def test_limits_of_places_that_a_machine_lacks_are_left_out_and_long_contexts_are_cut() -> None:
    cells = table(
        [dense(context=64)], [("here", machine(ram(), disk()))], Budget.of([("cuda:0", 1), ("cpu", 10**7)], 4096)
    )
    assert cells[0].verdict is Verdict.FITS


def test_what_can_not_be_planned_has_a_verdict_in_words() -> None:
    cells = table([dense(quantization="gptq")], [("here", machine())], Budget(context=64), Wishes(quantization="nf4"))
    assert cells[0].verdict is Verdict.FAILED
    assert "gptq" in cells[0].words
    assert cells[0].seconds_per_token is None
