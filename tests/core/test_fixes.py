"""What would make plans fit or faster: every fix is true when it is applied, and none that can't run here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerlight.core.advice import Verdict, advise
from layerlight.core.device import Budget, Machine
from layerlight.core.fixes import WORTH_SAYING, Fix, fixes_of, is_carried, longest, spills
from layerlight.core.machines.machine_files import machine_names, read_machine, read_machine_file
from layerlight.core.machines.public_models import public_model
from layerlight.core.model import LayerKind
from layerlight.core.pacing.calibration import identity_of
from layerlight.core.pacing.correction import Pace, Run, corrected, kind_of, model_identity, plan_identity
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan, Wishes
from tests.core.models import GIB, MIB, SLOW_CPU, accelerator, dense, disk, machine, ram

BIG = dense(layers=8, hidden=1024, intermediate=4096, context=8192)
CARD = machine(accelerator(free=140 * MIB), ram(), disk(), rates=SLOW_CPU)
SHORT = Budget(context=256)
QUICK_CARD = (*SLOW_CPU, ("overhead:cuda:0", 1e-6))
"""Rates of an accelerator that is held up by nothing but weights."""


def applied(plan: Plan, fix: Fix) -> Plan:
    return make_plan(plan.model, plan.machine, fix.budget or plan.budget, fix.wishes or plan.wishes)


def named(plan: Plan, words: str) -> Fix:
    found = [fix for fix in fixes_of(plan) if words in fix.words]
    assert found, [fix.words for fix in fixes_of(plan)]
    return found[0]


@pytest.mark.parametrize("name", ["laptop-rtx4060-8gb", "mac-m2-16gb", "laptop-cpu-16gb", "desktop-2x-rtx3090"])
@pytest.mark.parametrize("model", ["qwen3-8b", "llama-3.1-70b", "mixtral-8x7b", "gpt2"])
def test_every_fix_keeps_its_word(model: str, name: str) -> None:
    """Ranked by gain, each worth saying and priced; what can be applied fits and is as fast as was said."""
    plan = make_plan(public_model(model), read_machine(name), Budget(context=1024))
    advice = advise(plan)
    gains = [fix.gain for fix in advice.fixes]
    assert gains == sorted(gains, reverse=True)
    assert (advice.verdict is Verdict.FITS) == (plan.fits and not is_carried(plan))
    for fix in advice.fixes:
        assert fix.gain >= WORTH_SAYING
        assert fix.price
        if fix.wishes or fix.budget:
            better = applied(plan, fix)
            assert better.fits
            assert better.prediction.seconds_per_token == pytest.approx(fix.seconds_per_token)


def test_what_is_fast_as_it_is_needs_no_fix() -> None:
    assert fixes_of(make_plan(dense(), machine(accelerator(), ram(), disk()), SHORT)) == ()


@pytest.mark.parametrize("off", [0.4, 2.7, 20.0])
@pytest.mark.parametrize("here", [machine(), machine(accelerator(), ram(), disk()), CARD], ids=["cpu", "card", "spill"])
def test_a_run_that_was_off_makes_no_change_look_better(here: Machine, off: float) -> None:
    """What earlier runs say of the plan they say of its changes too: the same offers, gaining the same."""
    plan = make_plan(BIG, here, SHORT)
    told = corrected(plan, [run_off_by(off, plan)])
    assert told.prediction.seconds_per_token == pytest.approx(off * plan.prediction.seconds_per_token)
    assert advise(told).wishes == advise(plan).wishes
    before, after = fixes_of(plan), fixes_of(told)
    assert [fix.words for fix in after] == [fix.words for fix in before]
    assert [fix.gain for fix in after] == pytest.approx([fix.gain for fix in before])
    for fix in after:
        assert fix.gain == pytest.approx(told.prediction.seconds_per_token / fix.seconds_per_token)


def run_off_by(factor: float, plan: Plan) -> Run:
    """A run of this very plan that took so many times what was predicted."""
    predicted = Pace(per_token=plan.prediction.seconds_per_token)
    measured = Pace(per_token=factor * plan.prediction.seconds_per_token)
    names = identity_of(plan.machine), model_identity(plan.model), plan_identity(plan), kind_of(plan)
    return Run(*names, predicted, measured)


def test_quantising_is_not_offered_where_it_can_not_run() -> None:
    """C01, C03: not on devices without bitsandbytes, nor for what is quantised already."""
    sim = machine(accelerator("sim:0", free=140 * MIB, kind="sim"), ram(), disk(), rates=SLOW_CPU)
    for plan in (make_plan(BIG, sim, SHORT), make_plan(replace(BIG, quantization="gptq"), CARD, SHORT)):
        assert not [fix for fix in fixes_of(plan) if "bit" in fix.words]
    assert "4 bit" in named(make_plan(BIG, CARD, SHORT), "4 bit").words


def test_the_context_is_shortened_no_more_than_needed() -> None:
    """A10: with the largest context that fits."""
    model = dense(layers=8, hidden=256, intermediate=512, context=8192)
    room = make_plan(model, machine(accelerator(), ram()), Budget(context=3000)).prediction.use("cuda:0").used
    here = machine(accelerator(free=room * 20 // 19 + 1000), ram(), disk(), rates=QUICK_CARD)
    plan = make_plan(model, here, Budget(context=8192))
    fix = named(plan, "Shorten the context")
    assert fix.budget is not None
    assert fix.budget.context >= 3000
    assert not is_carried(applied(plan, fix))
    assert spills(make_plan(model, here, Budget(context=fix.budget.context + 64)))


def test_what_does_not_fit_is_told_the_longest_context_that_does() -> None:
    model = dense(layers=8, hidden=256, intermediate=512, context=8192)
    used = make_plan(model, machine(), Budget(context=2000)).prediction.use("cpu").used
    plan = make_plan(model, machine(), Budget.of([("cpu", used), ("disk", 0)], 8000))
    assert not plan.fits
    fix = named(plan, "Shorten the context")
    assert fix.gain == float("inf")
    assert fix.budget is not None
    assert 2000 <= fix.budget.context < 2100


def test_a_limit_that_costs_is_lifted() -> None:
    plan = make_plan(BIG, machine(accelerator(), ram(), disk(), rates=SLOW_CPU), Budget.of([("cuda:0", 90 * MIB)], 256))
    fix = named(plan, "Lift the limit of 90.0 MiB")
    assert fix.budget == Budget(context=256)
    assert not is_carried(applied(plan, fix))


def test_lifting_a_limit_comes_before_another_machine_however_little_it_gains() -> None:
    model = dense(layers=8, hidden=1024, intermediate=4096, quantization="fp8")
    assert model.shape is not None
    model = replace(model, shape=replace(model.shape, model_type="alone"))
    here = machine(ram(160 * MIB), disk(), rates=(("disk", 1e8),))
    plan = make_plan(model, here, Budget.of([("cpu", 120 * MIB)], 256))
    fixes = fixes_of(plan)
    assert [fix.words for fix in fixes] == ["Lift the limit of 120.0 MiB on RAM."]
    assert 1 < fixes[0].gain < WORTH_SAYING


def test_float32_is_offered_as_half_of_it() -> None:
    model = dense(layers=8, hidden=1024, intermediate=4096, dtype="float32")
    here = machine(accelerator(free=330 * MIB, dtypes=("float32", "float16")), ram(), disk(), rates=SLOW_CPU)
    fix = named(make_plan(model, here, SHORT), "float16 instead of float32")
    assert fix.wishes == Wishes(dtype="float16")


def test_pins_that_cost_are_named() -> None:
    slow = Wishes(pins=(("model.layers.*", "disk"),))
    plan = make_plan(dense(), machine(accelerator(), ram(), disk(), rates=QUICK_CARD), SHORT, slow)
    assert named(plan, "choose every place").wishes == Wishes()


def test_memory_that_other_programs_hold_is_named() -> None:
    busy = replace(accelerator(free=140 * MIB), total=1024 * MIB)
    plan = make_plan(BIG, machine(busy, ram(), disk(), rates=SLOW_CPU), SHORT)
    fix = named(plan, "Free memory on CUDA:0: other programs hold 884.0 MiB")
    assert fix.wishes is None
    assert fix.budget is None


def test_a_mac_is_told_the_command_that_lends_metal_more() -> None:
    metal = replace(accelerator("mps", 140 * MIB, kind="mps", shares_memory_with="cpu"), total=400 * MIB)
    fix = named(
        make_plan(BIG, machine(metal, ram(200 * MIB), disk(), rates=SLOW_CPU), SHORT), "iogpu.wired_limit_mb=340"
    )
    assert fix.gain > 1


def test_a_smaller_model_of_the_family_is_one_that_runs_here() -> None:
    plan = make_plan(public_model("llama-3.1-70b"), read_machine("desktop-rtx3090-24gb"), Budget(context=1024))
    fix = named(plan, "smaller model of its family")
    assert "meta-llama/Llama-3.1-8B" in fix.words
    assert fix.model == "llama-3.1-8b"
    assert fix.wishes is None
    there = make_plan(public_model(fix.model), plan.machine, plan.budget)
    assert there.fits
    assert there.prediction.seconds_per_token == fix.seconds_per_token


def test_what_nothing_saves_wants_the_smallest_machine_that_does() -> None:
    """For fp8 files nothing is offered but another machine: of those that hold all, the one with the least memory."""
    model = public_model("llama-3.1-70b")
    assert model.shape is not None
    model = replace(model, quantization="fp8", shape=replace(model.shape, model_type="alone"))
    plan = make_plan(model, read_machine("laptop-cpu-16gb"), Budget(context=1024))
    alone = [fix for fix in fixes_of(plan) if "another machine" in fix.words]
    assert len(alone) == 1
    holding = []
    for each in machine_names():
        other = make_plan(model, read_machine(each), Budget(context=1024))
        if other.fits and not is_carried(other):
            holding.append((memory_of(other.machine), read_machine_file(each).title))
    assert min(holding)[1] in alone[0].words
    assert alone[0].machine is not None
    there = make_plan(model, alone[0].machine.machine, Budget(context=1024))
    assert there.fits
    assert there.prediction.seconds_per_token == alone[0].seconds_per_token


def test_gguf_is_no_fix_for_anything() -> None:
    """Nothing here runs it: transformers would unpack it (see the engine's test of that)."""
    for name in ("llama-3.1-70b", "qwen3-8b", "gpt-oss-20b"):
        for here in ("laptop-cpu-16gb", "desktop-rtx3060-12gb"):
            plan = make_plan(public_model(name), read_machine(here), Budget(context=1024))
            assert not [fix for fix in fixes_of(plan) if "gguf" in fix.words.lower()]


def memory_of(machine: Machine) -> int:
    own = [device for device in machine.devices if device.id != "disk" and not device.shares_memory_with]
    return sum(device.total or 0 for device in own)


@pytest.mark.parametrize(
    ("least", "most", "limit"), [(1, 10, 7), (1, 10, 10), (1, 10, 1), (5, 5, 5), (1, 10, 0), (3, 2, 9)]
)
def test_the_longest_that_helps(least: int, most: int, limit: int) -> None:
    expected = None if most < least or limit < least else min(limit, most)
    assert longest(least, most, lambda number: number <= limit) == expected


def test_experts_that_were_placed_by_hand_are_moved_to_ram() -> None:
    """A12: attention stays where a person wants it; what is offered can be applied, and is as fast as was said."""
    model = public_model("qwen3-30b-a3b")
    here = machine(accelerator(free=12 * GIB), ram(64 * GIB), disk(), rates=(("cpu", 40e9),))
    for wishes in (
        Wishes(pins=(("*.experts", "disk"),)),
        Wishes(strategy="most-on-gpu", pins=(("*.experts", "disk"),)),
    ):
        plan = make_plan(model, here, SHORT, wishes)
        fix = named(plan, "experts to RAM")
        assert fix.price
        better = applied(plan, fix)
        assert better.fits
        assert better.prediction.seconds_per_token == pytest.approx(fix.seconds_per_token)
        away = {each.layer for each in better.placements if each.rests_on == "cpu" and each.size}
        assert away >= {layer.name for layer in model.layers if layer.kind is LayerKind.EXPERTS}
    by_hand = tuple((layer.name, "disk" if layer.kind is LayerKind.EXPERTS else "cuda:0") for layer in model.layers)
    better = applied(plan := make_plan(model, here, SHORT, Wishes(map=by_hand)), named(plan, "experts to RAM"))
    assert set(better.device_map().values()) == {"cuda:0", "cpu"}
    free = make_plan(model, here, SHORT)
    assert not [fix for fix in fixes_of(free) if "experts to RAM" in fix.words], "the plan's own choice is the fastest"
