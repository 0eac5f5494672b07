"""Whole layers that the CPU computes in RAM beside accelerators: when, with what memory, in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerlight.core.advice import Verdict, verdict_of
from layerlight.core.device import Budget, Device, Machine
from layerlight.core.export import python_snippet
from layerlight.core.model import LayerKind
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan, Wishes
from layerlight.core.planning.workload import Workload
from layerlight.core.unused_room import idle_words
from tests.core.models import MIB, accelerator, dense, disk, machine, ram

MODEL = dense(layers=8, hidden=256, intermediate=512)
CONTEXT = Budget(context=256)
QUICK_CPU = (("cpu", 20e9), ("matrix:cpu:bfloat16", 1e12))
SLOW_BUS = ("bus", 1e9)


def card(part: float = 0.6) -> int:
    """Bytes of a card that has room for so much of the model."""
    whole = make_plan(MODEL, machine(accelerator(), ram()), CONTEXT).prediction.use("cuda:0")
    return int(whole.working + part * (whole.used - whole.working)) * 20 // 19


def planned(*rates: tuple[str, float], wishes: Wishes | None = None, part: float = 0.6, memory: int = 2**33) -> Plan:
    here = machine(accelerator(free=card(part)), ram(memory), disk(), rates=rates)
    return make_plan(MODEL, here, CONTEXT, wishes)


def in_ram(plan: Plan) -> list[str]:
    return [each.layer for each in plan.placements if each.rests_on == "cpu" and each.size]


@pytest.mark.parametrize("devices", [(), (accelerator("sim:0", kind="sim", free=60 * MIB),)], ids=["cpu", "beside"])
def test_dense_layers_on_disk_are_said_to_be_read_for_every_token(devices: tuple[Device, ...]) -> None:
    """The reason talks of no experts where there are none, and names the reading, which is what takes the time."""
    model = dense(layers=8, hidden=1024, intermediate=4096, vocabulary=5000)
    plan = make_plan(model, machine(*devices, ram(), disk()), Budget.of([("cpu", 120 * MIB)], 256))
    assert not [each.reason for each in plan.placements if "experts" in each.reason]
    decoders = {layer.name for layer in model.layers if layer.kind is LayerKind.DECODER}
    on_disk = [each for each in plan.placements if each.rests_on == "disk" and each.layer in decoders]
    assert on_disk
    assert {each.runs_on for each in on_disk} == {"cpu"}
    for each in on_disk:
        assert "it is read from the file for every token, and the CPU computes it" in each.reason


def test_layers_are_computed_in_ram_where_that_is_faster_than_carrying_them() -> None:
    """Nothing is carried, the cache of those layers and the work on them lie in RAM, and it is said what both take."""
    plan = planned(*QUICK_CPU, SLOW_BUS)
    computed = [each for each in plan.placements if each.layer in in_ram(plan)]
    assert plan.fits
    assert computed
    assert {each.runs_on for each in computed} == {"cpu"}
    assert all(each.rests_on == each.runs_on for each in plan.placements)
    decoders = [each for each in computed if plan.model.layer(each.layer).kind is LayerKind.DECODER]
    use = plan.prediction.use("cpu")
    assert use.kv == len(decoders) * 2 * 2 * 64 * 256 * 2
    assert use.working > 0
    assert "the CPU computes it there: " in decoders[0].reason
    assert " a token, where carrying it to cuda:0 would take " in decoders[0].reason
    advice = verdict_of(plan)
    assert advice.verdict is Verdict.FITS
    assert f"{8 - len(decoders)} of 8 layers run on " in advice.words
    assert f"the CPU computes the other {len(decoders)} in RAM" in advice.words
    assert "A device map can't say that" in python_snippet(plan)
    assert {each.source for each in plan.prediction.hand_overs} <= {"cpu", "cuda:0"}
    assert len(plan.prediction.hand_overs) <= 2, "they follow one another"


def test_layers_are_carried_where_the_processor_is_slower() -> None:
    plan = planned(("cpu", 1e8), ("bus", 50e9))
    assert in_ram(plan)
    assert {each.runs_on for each in plan.placements} == {"cuda:0"}
    assert "A device map can't say that" not in python_snippet(plan)


def test_a_long_prompt_is_worth_carrying_for_and_an_answer_is_not() -> None:
    """Of many tokens at once a processor computes longer than weights take to be carried; of one it does not."""
    rates = (("cpu", 20e9), ("matrix:cpu:bfloat16", 5e9), SLOW_BUS)
    prompt, answer = (
        planned(*rates, wishes=Wishes(workload=work)) for work in (Workload(255, 1), Workload(prompt=1, answer=255))
    )
    assert {each.runs_on for each in prompt.placements} == {"cuda:0"}
    assert {each.runs_on for each in answer.placements} == {"cuda:0", "cpu"}


def test_what_rests_on_disk_is_read_ahead_into_the_rings_room_in_ram() -> None:
    plan = planned(*QUICK_CPU, SLOW_BUS, ("disk-ring", 10e9), ("disk", 1e8), part=0.3, memory=9 * MIB)
    on_disk = [each for each in plan.placements if each.rests_on == "disk" and each.size]
    assert plan.fits
    assert on_disk
    assert {each.runs_on for each in on_disk} == {"cpu"}
    assert plan.prediction.use("cpu").working > 3 * max(each.size for each in on_disk)
    assert "cuda:0" in {each.runs_on for each in plan.placements}


def test_a_map_by_hand_runs_in_the_faster_way() -> None:
    """A map says where layers rest: what runs them is chosen, as for any plan."""
    quick, slow = planned(*QUICK_CPU, SLOW_BUS), planned(("cpu", 1e8), ("bus", 50e9))
    for plan in (quick, slow):
        by_hand = make_plan(plan.model, plan.machine, CONTEXT, Wishes(map=tuple(plan.device_map().items())))
        assert [each.runs_on for each in by_hand.placements] == [each.runs_on for each in plan.placements]


@pytest.mark.parametrize("kind", ["unified", "packed", "RAM forbidden"])
def test_where_the_cpu_can_compute_nothing_beside_an_accelerator(kind: str) -> None:
    """Unified memory is one pool, packed weights need a kernel, and forbidden RAM has no room for work."""
    shared = kind == "unified"
    one = accelerator("mps", card(), kind="mps", shares_memory_with="cpu") if shared else accelerator(free=card())
    here = machine(one, ram(), disk(), rates=(*QUICK_CPU, SLOW_BUS))
    model = replace(MODEL, quantization="gptq") if kind == "packed" else MODEL
    budget = Budget.of([("cpu", 0)], context=256) if kind == "RAM forbidden" else CONTEXT
    plan = make_plan(model, here, budget)
    assert {each.runs_on for each in plan.placements} in ({one.id}, {"cpu"})


def test_a_place_that_stays_empty_says_why() -> None:
    fits = make_plan(MODEL, machine(accelerator(), accelerator("cuda:1"), ram(), disk()), CONTEXT)
    assert idle_words(fits, "cuda:0") == ""
    assert idle_words(fits, "cuda:1") == idle_words(fits, "cpu") == "not needed: what is in use has room for all"
    assert idle_words(fits, "disk") == "not needed: memory has room for all"
    here = Machine((accelerator(free=1000), ram(), disk()))
    assert idle_words(make_plan(MODEL, here, CONTEXT), "cuda:0").startswith(
        "slower with it, or too small: what rests in"
    )
    without = make_plan(MODEL, machine(accelerator(), ram()), Budget.of([("cuda:0", 0)], context=256))
    assert idle_words(without, "cuda:0") == "kept out by its limit"
