"""The KV cache in 8 bit as a choice of the plan: its bytes, its seconds, where it is offered, and where refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerlight.core.device import Budget, Machine
from layerlight.core.errors import BadRequest
from layerlight.core.fixes import Fix, fixes_of
from layerlight.core.load_request import load_request
from layerlight.core.model import LinearShape, Model
from layerlight.core.placing import make_plan, what_would_fit
from layerlight.core.plan import PREFILL_CHUNK, Plan, Wishes
from layerlight.core.planning.kv_choice import why_not
from layerlight.core.planning.workload import USUAL, Workload
from layerlight.core.sizing.kv_cache import kv_bytes, packed_bytes
from layerlight.core.sizing.told_bytes import ToldBytes
from tests.core.models import MIB, accelerator, dense, disk, machine, ram

LONG = 8192
FP8 = Wishes(kv="fp8")
LINEAR = LinearShape("mamba", 8, 2, 16, 8, 8, 8)
MODEL = dense(layers=8, hidden=256, intermediate=512, context=LONG)
QUICK = ("overhead:cuda:0", 1e-9)
CARD = machine(accelerator(), ram(), disk())


def changed(**shape: object) -> Model:
    assert MODEL.shape is not None
    return replace(MODEL, shape=replace(MODEL.shape, **shape))  # type: ignore[arg-type]


def both(model: Model, here: Machine, context: int = LONG, **wishes: object) -> tuple[Plan, Plan]:
    """(as computed, in 8 bit)."""
    usual = Wishes(**wishes)  # type: ignore[arg-type]
    budget = Budget(context=context)
    return make_plan(model, here, budget, usual), make_plan(model, here, budget, replace(usual, kv="fp8"))


def offered(plan: Plan) -> list[Fix]:
    return [fix for fix in fixes_of(plan) if fix.wishes is not None and fix.wishes.kv]


REFUSED = {
    "latents": ({"latent_rank": 16, "latent_rope_dim": 8}, "latents"),
    "windows": ({"layer_types": ("sliding_attention", "full_attention") * 4, "sliding_window": 64}, "window"),
    "chunks": ({"layer_types": ("chunked_attention",) * 8, "sliding_window": 64}, "window"),
    "linear": ({"layer_types": ("linear_attention", "full_attention") * 4, "linear": LINEAR}, "constant state"),
    "hybrid": ({"layer_types": ("hybrid",) * 8, "linear": LINEAR}, "constant state"),
    "borrowed": ({"layer_types": (*("full_attention",) * 6, "dummy", "dummy")}, "another layer's"),
    "no attention": ({"key_value_heads": 0}, "no keys and values"),
}


@pytest.mark.parametrize(("shape", "words"), REFUSED.values(), ids=REFUSED)
def test_families_that_can_not_are_told_why_and_never_offered_it(shape: dict[str, object], words: str) -> None:
    model = changed(**shape)
    assert model.shape is not None
    assert words in why_not(model.shape, CARD)
    with pytest.raises(BadRequest, match=words):
        make_plan(model, CARD, Budget(context=64), FP8)
    tight = Budget.of([("cuda:0", 4 * MIB), ("cpu", 4 * MIB), ("disk", 0)], 64)
    assert offered(make_plan(model, CARD, tight)) == []


@pytest.mark.parametrize(
    ("caches", "words"), [(("fp8",), ""), (None, ""), ((), "CUDA:0 (cuda:0) can't keep keys and values in fp8")]
)
def test_a_device_is_believed_only_where_it_was_asked(caches: tuple[str, ...] | None, words: str) -> None:
    assert MODEL.shape is not None
    here = machine(accelerator(caches=caches), ram(), disk())
    said = why_not(MODEL.shape, here)
    assert said.startswith(words) if words else not said


def test_another_word_is_no_cache() -> None:
    with pytest.raises(BadRequest, match="no KV cache"):
        make_plan(MODEL, CARD, Budget(context=64), Wishes(kv="int3"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_its_bytes_are_counted_and_so_is_what_turning_back_takes(dtype: str) -> None:
    usual, packed = both(MODEL, CARD, dtype=dtype)
    before, after = (plan.prediction.use("cuda:0") for plan in (usual, packed))
    assert MODEL.shape is not None
    assert after.kv == sum(kv_bytes(MODEL.shape, index, LONG, dtype, cache="fp8") for index in range(8))
    assert before.working < after.working < before.working + before.kv // 4
    saved = before.used - after.used
    assert saved > before.kv // 4
    assert packed.notes == (
        f"The KV cache in fp8 takes {saved / MIB:.1f} MiB less at the peak; every pass turns it back.",
    )
    assert usual.notes == ()


def test_what_the_empty_model_told_is_packed_too() -> None:
    told = tuple(1000 * (index + 1) for index in range(8))
    model = replace(MODEL, told=(ToldBytes("bfloat16", None, "sdpa", LONG, PREFILL_CHUNK, kv=told),))
    packed = make_plan(model, CARD, Budget(context=LONG), FP8)
    assert packed.prediction.use("cuda:0").kv == sum(packed_bytes(size, "bfloat16") for size in told)


def test_where_it_saves_nothing_that_is_said_and_it_is_not_offered() -> None:
    """One layer: what it turns back is as large as all that it keeps."""
    model = dense(layers=1, hidden=256, intermediate=512, context=LONG, key_value_heads=4)
    usual, packed = both(model, CARD)
    assert packed.prediction.use("cuda:0").used >= usual.prediction.use("cuda:0").used
    assert "saves nothing here" in packed.notes[0]
    short = Budget.of([("cuda:0", 0), ("cpu", usual.prediction.use("cuda:0").used - MIB), ("disk", 0)], LONG)
    tight = make_plan(model, CARD, short)
    assert not tight.fits
    assert offered(tight) == []


def test_it_is_offered_where_it_makes_fit_what_does_not() -> None:
    usual, packed = both(MODEL, machine(ram(), disk()))
    room = (usual.prediction.use("cpu").used + packed.prediction.use("cpu").used) // 2
    here = machine(ram(), disk())
    plan = make_plan(MODEL, here, Budget.of([("cpu", room), ("disk", 0)], LONG))
    assert not plan.fits
    (fix,) = offered(plan)
    assert (fix.wishes, fix.budget) == (FP8, plan.budget)
    assert fix.gain == float("inf")
    assert "95 of 100" in fix.price
    applied = make_plan(MODEL, here, plan.budget, fix.wishes)
    assert applied.fits
    assert applied.prediction.seconds_per_token == fix.seconds_per_token
    assert load_request(applied).kv == "fp8"
    assert offered(applied) == []


def test_it_is_what_would_fit_where_no_shorter_context_does() -> None:
    here = machine(ram(), disk())
    model = dense(layers=32, hidden=64, intermediate=128, context=500)
    _, packed = both(model, here, 500)
    room = packed.prediction.use("cpu").used + 1000
    plan = make_plan(model, here, Budget.of([("cpu", room), ("disk", 0)], 500))
    assert not plan.fits
    assert what_would_fit(plan) == "With the KV cache in fp8 it would fit."


def test_on_a_mac_that_was_not_asked_it_is_not_offered() -> None:
    mac = machine(accelerator("mps", kind="mps", shares_memory_with="cpu"), ram(), disk())
    usual = make_plan(MODEL, mac, Budget(context=LONG)).prediction.use("mps").used
    plan = make_plan(MODEL, mac, Budget.of([("mps", usual - MIB), ("cpu", 0), ("disk", 0)], LONG))
    assert not plan.fits
    assert offered(plan) == []


def test_turning_back_costs_seconds_on_a_cpu() -> None:
    """Where everything fits in RAM as it is, a cache in 8 bit is slower: nothing is gained, and it is not offered."""
    usual, packed = both(MODEL, machine(ram(), disk()), workload=Workload(prompt=2000))
    assert packed.prediction.seconds_per_token > usual.prediction.seconds_per_token
    assert packed.prediction.prefill_seconds > usual.prediction.prefill_seconds
    assert offered(usual) == []


@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
def test_what_this_machine_measured_of_turning_back_counts(place: str) -> None:
    devices = (ram(), disk()) if place == "cpu" else (accelerator(), ram(), disk())
    slow, fast = (
        make_plan(MODEL, machine(*devices, rates=(QUICK, (f"turned-back:{place}", rate))), Budget(context=LONG), FP8)
        for rate in (1e9, 1e12)
    )
    elements = fast.prediction.use(place).kv * USUAL.mean_length / LONG
    more = slow.prediction.seconds_per_token - fast.prediction.seconds_per_token
    assert more == pytest.approx(elements * (1e-9 - 1e-12), rel=0.01)


def test_where_it_frees_room_for_layers_a_token_is_faster() -> None:
    model = dense(layers=8, hidden=1024, intermediate=4096, key_value_heads=4, context=2 * LONG)
    whole = make_plan(model, CARD, Budget(context=2 * LONG), FP8).prediction.use("cuda:0").used
    here = machine(
        accelerator(free=whole * 20 // 19 + MIB), ram(), disk(), rates=(("cpu", 1e8), ("bus:cuda:0:to-pageable", 1e8))
    )
    usual, packed = both(model, here, 2 * LONG)
    assert packed.prediction.seconds_per_token < usual.prediction.seconds_per_token / 1.5
    assert [fix.wishes for fix in offered(usual)] == [FP8]
