"""Plans over tables of machines and models."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerlight.core.device import Budget, Device, Machine
from layerlight.core.errors import BadRequest, DoesNotFit, MapMismatch, UnknownPlace, WrongKindOfModel
from layerlight.core.model import ModelKind
from layerlight.core.placing import default_context, make_plan, require_fit
from layerlight.core.plan import Plan, Wishes
from layerlight.core.planning.placement_map import read_map
from layerlight.core.planning.runtime import RING_BUFFERS
from tests.core.models import GIB, MIB, SLOW_CPU, accelerator, dense, disk, machine, ram

CONTEXT = Budget(context=256)


def place_counts(plan: Plan) -> dict[str, int]:
    places = [placement.rests_on for placement in plan.placements]
    return {place: places.count(place) for place in plan.places}


def limited(*limits: tuple[str, int], context: int = 256) -> Budget:
    return Budget.of(limits, context=context)


def test_a_model_that_fits_one_device_stays_on_it() -> None:
    plan = make_plan(dense(), machine(accelerator(), accelerator("cuda:1"), ram(), disk()), CONTEXT)
    assert plan.places == ("cuda:0",)
    assert plan.fits
    assert all(placement.runs_on == "cuda:0" for placement in plan.placements)


def test_the_second_device_is_used_when_it_alone_is_large_enough() -> None:
    small, large = accelerator(free=200_000), accelerator("cuda:1", 8 * GIB)
    assert make_plan(dense(), machine(small, large, ram()), CONTEXT).places == ("cuda:1",)


def test_layers_that_do_not_fit_rest_in_ram_and_run_on_the_accelerator() -> None:
    model = dense(layers=8, hidden=256, intermediate=512)
    whole = make_plan(model, machine(accelerator(), ram()), CONTEXT).prediction.use("cuda:0").used
    plan = make_plan(model, machine(accelerator(free=whole), ram(), disk()), CONTEXT)
    assert plan.places == ("cuda:0", "cpu")
    carried = [placement for placement in plan.placements if placement.rests_on == "cpu"]
    assert carried
    assert all(placement.runs_on == "cuda:0" for placement in carried)
    assert plan.prediction.use("cuda:0").kv == sum(2 * 2 * 64 * 256 * 2 for _ in range(8)), (
        "all the KV is where layers run"
    )
    assert plan.prediction.use("cpu").kv == 0


def test_ram_that_is_too_small_leaves_layers_on_disk() -> None:
    model = dense(layers=8, hidden=256, intermediate=512)
    used = make_plan(model, machine(), CONTEXT).prediction.use("cpu").used
    plan = make_plan(model, machine(), limited(("cpu", used - 4 * MIB)))
    assert plan.fits
    assert plan.places == ("cpu", "disk")
    assert {placement.runs_on for placement in plan.placements} == {"cpu"}
    assert plan.prediction.use("cpu").kv == sum(2 * 2 * 64 * 256 * 2 for _ in range(8))


def test_a_smaller_layer_fills_the_room_a_large_one_left() -> None:
    """A13: an embedding that is too large does not send every later layer away."""
    model = dense(layers=4, vocabulary=20000)
    plan = make_plan(model, machine(accelerator(free=9 * MIB // 2), ram(), rates=SLOW_CPU), CONTEXT)
    assert plan.placement("model.embed_tokens").rests_on == "cpu"
    assert place_counts(plan)["cuda:0"] >= 4


def test_an_accelerator_too_small_for_anything_is_left_empty() -> None:
    plan = make_plan(dense(), machine(accelerator(free=1000), ram(), disk()), CONTEXT)
    assert plan.fits
    assert plan.places == ("cpu",)
    assert {placement.runs_on for placement in plan.placements} == {"cpu"}


@pytest.mark.parametrize("order", list(permutations([("cuda:0", 900_000), ("cuda:1", 900_000), ("cpu", 10 * MIB)])))
def test_the_order_of_limits_changes_nothing(order: tuple[tuple[str, int], ...]) -> None:
    """A04."""
    here = machine(accelerator(), accelerator("cuda:1"), ram(), disk())
    plans = [make_plan(dense(layers=8), here, limited(*each)) for each in (order, sorted(order))]
    assert plans[0] == plans[1]


def test_disk_zero_means_never_and_says_the_shortfall() -> None:
    """A04: refused with the missing bytes."""
    plan = make_plan(dense(), machine(), limited(("cpu", 600_000), ("disk", 0)))
    assert not plan.fits
    assert "disk" not in plan.places
    with pytest.raises(DoesNotFit) as refused:
        require_fit(plan)
    assert str(plan.shortfall) in refused.value.message
    assert refused.value.hint
    more = limited(("cpu", 600_000 + plan.shortfall), ("disk", 0))
    assert make_plan(dense(), machine(), more).fits, "the shortfall is the truth"


@pytest.mark.parametrize("place", ["cuda:0", "gpu", "-1", "mps", "sim:3"])
def test_limits_for_devices_of_another_machine(place: str) -> None:
    """A19."""
    with pytest.raises(UnknownPlace, match=place):
        make_plan(dense(), machine(), limited((place, GIB)))


def test_every_place_forbidden() -> None:
    with pytest.raises(DoesNotFit):
        make_plan(dense(), machine(), limited(("cpu", 0), ("disk", 0)))


def test_tied_weights_rest_together_and_count_once() -> None:
    model = dense(tied=True)
    plan = make_plan(model, machine(), limited(("cpu", 420_000)))
    assert plan.placement("lm_head").rests_on == plan.placement("model.embed_tokens").rests_on
    assert sum(placement.size for placement in plan.placements) == model.size


def test_unified_memory_is_one_pool_without_a_second_tier() -> None:
    """D07: a Mac's RAM is not added to what Metal may use."""
    shared = accelerator("mps", 8 * MIB, kind="mps", shares_memory_with="cpu")
    mac = machine(shared, ram(16 * MIB), disk(), rates=SLOW_CPU)
    plan = make_plan(dense(layers=40, hidden=128), mac, CONTEXT)
    assert plan.fits
    assert plan.places == ("mps", "disk")
    assert {placement.runs_on for placement in plan.placements} == {"mps"}


def test_unified_memory_whose_accelerator_is_forbidden_runs_on_the_cpu() -> None:
    mac = machine(accelerator("mps", 8 * MIB, kind="mps", shares_memory_with="cpu"), ram(16 * MIB), disk())
    assert make_plan(dense(), mac, limited(("mps", 0))).places == ("cpu",)


@pytest.mark.parametrize(
    ("runs", "own", "chosen"),
    [
        (("float32", "float16"), "bfloat16", "float16"),
        (("float32",), "bfloat16", "float32"),
        (("float32", "float16", "bfloat16"), "bfloat16", "bfloat16"),
        (("float32", "bfloat16"), "float16", "bfloat16"),
        ((), "bfloat16", "bfloat16"),
    ],
)
def test_the_dtype_is_one_a_probe_ran(runs: tuple[str, ...], own: str, chosen: str) -> None:
    here = machine(accelerator("mps", kind="mps", shares_memory_with="cpu", dtypes=runs), ram())
    plan = make_plan(dense(dtype=own), here, CONTEXT)
    assert plan.dtype == chosen
    assert bool(plan.notes) == (chosen != own)


def test_quantised_models_never_have_a_disk_entry() -> None:
    model = dense(layers=8, hidden=256, intermediate=512)
    plan = make_plan(model, machine(), limited(("cpu", 3 * MIB)), Wishes(quantization="nf4"))
    assert not plan.fits
    assert "disk" not in plan.places
    with pytest.raises(DoesNotFit) as refused:
        require_fit(plan)
    assert "disk" in refused.value.hint or "fit" in refused.value.hint


def test_quantised_models_do_not_part_between_an_accelerator_and_ram() -> None:
    model = dense(layers=8, hidden=256, intermediate=512)
    plan = make_plan(model, machine(accelerator(free=3 * MIB), ram(), disk()), CONTEXT, Wishes(quantization="int8"))
    assert plan.fits
    assert plan.places == ("cpu",)


def test_a_device_without_bitsandbytes_is_not_used_for_quantised_models() -> None:
    plan = make_plan(dense(), machine(accelerator("sim:0", kind="sim"), ram()), CONTEXT, Wishes(quantization="nf4"))
    assert plan.places == ("cpu",)
    assert {p.dtype for p in plan.placements if p.layer.startswith("model.layers")} == {"nf4"}


def test_quantising_twice_is_refused() -> None:
    with pytest.raises(BadRequest, match="gptq"):
        make_plan(dense(quantization="gptq"), machine(), CONTEXT, Wishes(quantization="nf4"))


@pytest.mark.parametrize(
    "wishes", [Wishes(dtype="int8"), Wishes(dtype="bf17"), Wishes(quantization="q4_k_m"), Wishes(attention="flash3")]
)
def test_wishes_that_mean_nothing(wishes: Wishes) -> None:
    with pytest.raises(BadRequest) as refused:
        make_plan(dense(), machine(), CONTEXT, wishes)
    assert refused.value.hint


@pytest.mark.parametrize("context", [0, -1, 257, 262144])
def test_a_context_the_model_was_not_made_for(context: int) -> None:
    """A10: refused at plan time."""
    with pytest.raises(BadRequest):
        make_plan(dense(context=256), machine(), Budget(context=context))


@pytest.mark.parametrize(
    "kind", [ModelKind.ENCODER, ModelKind.IMAGE, ModelKind.ADAPTER, ModelKind.GGUF, ModelKind.UNKNOWN]
)
def test_models_that_do_not_write_text(kind: ModelKind) -> None:
    with pytest.raises(WrongKindOfModel, match=kind.value):
        make_plan(dense(kind=kind), machine(), CONTEXT)


def test_the_context_is_at_most_the_models() -> None:
    assert default_context(dense(context=256)) == 256
    assert default_context(dense(context=32768)) == 4096


def hand_map(model_layers: int, place: str = "cpu") -> tuple[tuple[str, str], ...]:
    return tuple((layer.name, place) for layer in dense(layers=model_layers).layers)


def test_a_map_by_hand_is_kept() -> None:
    wished = tuple((name, "disk" if "layers.1" in name else place) for name, place in hand_map(4))
    plan = make_plan(dense(), machine(), CONTEXT, Wishes(map=wished))
    assert plan.device_map() == dict(wished)


@pytest.mark.parametrize(("made_for", "used_on"), [(4, 6), (6, 4)])
def test_a_map_of_another_model_is_refused_by_name(made_for: int, used_on: int) -> None:
    """A17."""
    with pytest.raises(MapMismatch, match=r"model\.layers\.4") as refused:
        make_plan(dense(layers=used_on), machine(), CONTEXT, Wishes(map=hand_map(made_for)))
    assert "lan" in refused.value.hint


def test_a_map_of_another_machine_is_refused_by_name() -> None:
    with pytest.raises(UnknownPlace, match="cuda:1"):
        make_plan(dense(), machine(), CONTEXT, Wishes(map=hand_map(4, "cuda:1")))


def test_a_map_that_parts_tied_weights_is_refused() -> None:
    parted = tuple((name, "disk" if name == "lm_head" else place) for name, place in hand_map(4))
    with pytest.raises(MapMismatch, match="lm_head"):
        make_plan(dense(tied=True), machine(), CONTEXT, Wishes(map=parted))


def test_a_quantised_map_with_a_disk_entry_is_refused() -> None:
    wished = tuple((name, "disk" if "layers.1" in name else place) for name, place in hand_map(4))
    with pytest.raises(DoesNotFit, match="bitsandbytes"):
        make_plan(dense(), machine(), CONTEXT, Wishes(map=wished, quantization="nf4"))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"a": "cpu", "b": 0}),
        json.dumps({"device_map": {"a": "cpu", "b": "cuda:0"}}),
        json.dumps({"placements": [{"layer": "a", "rests_on": "cpu"}, {"layer": "b", "rests_on": "cuda:0"}]}),
    ],
)
def test_maps_are_read_in_every_form_they_are_written(text: str) -> None:
    assert read_map(text) == (("a", "cpu"), ("b", "cuda:0"))


@pytest.mark.parametrize("text", ["", "[1]", "{", '"cpu"', '{"placements": [{"layer": "a"}]}', "\x00"])
def test_what_is_no_map(text: str) -> None:
    with pytest.raises(BadRequest):
        read_map(text)


sizes = st.integers(0, 4 * MIB)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    devices: list[Device] = [accelerator(f"cuda:{i}", draw(sizes)) for i in range(draw(st.integers(0, 3)))]
    return machine(*devices, ram(draw(sizes)), disk())


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(machines(), st.integers(1, 12), st.sampled_from([32, 64, 128]), st.booleans(), st.data())
def test_every_plan_is_complete_and_within_its_limits(
    here: Machine, layers: int, hidden: int, tied: bool, data: st.DataObject
) -> None:
    model = dense(layers=layers, hidden=hidden, tied=tied)
    limits = [
        (device.id, data.draw(sizes)) for device in here.devices if data.draw(st.booleans()) and device.id != "disk"
    ]
    budget = limited(*limits)
    try:
        plan = make_plan(model, here, budget)
    except DoesNotFit:
        return
    assert [placement.layer for placement in plan.placements if placement.layer != "lm_head"] == [
        layer.name for layer in model.layers if layer.name != "lm_head"
    ], "complete, each layer once, in the model's order"
    assert sum(plan.bytes_on(place) for place in plan.places) == model.size
    for use in plan.prediction.places:
        assert use.weights == plan.bytes_on(use.place)
        assert use.over > 0 or use.capacity is None or use.used <= use.capacity
        limit = budget.limit(use.place)
        assert not plan.fits or limit is None or use.used <= limit
    assert make_plan(model, here, replace(budget, limits=tuple(sorted(limits)))) == plan


def test_the_ring_of_layers_on_disk_has_its_room_in_ram() -> None:
    """Three of the largest layers on disk are in RAM at once: the plan counts them, and keeps its limit with them."""

    model = dense(8)
    here = machine(ram(), disk())
    whole = make_plan(model, here, Budget(context=64))
    assert whole.device_map() == dict.fromkeys(whole.device_map(), "cpu")
    tight = whole.prediction.use("cpu").used - 2 * whole.placement("model.layers.0").size
    plan = make_plan(model, here, Budget((("cpu", tight),), context=64))
    there = [each for each in plan.placements if each.rests_on == "disk"]
    assert there
    largest = max(each.size for each in there)
    before, now = whole.prediction.use("cpu"), plan.prediction.use("cpu")
    assert now.working == before.working + RING_BUFFERS * largest
    assert now.weights + sum(each.size for each in there) == before.weights
    assert now.used <= tight


def test_a_layer_waits_for_its_share_of_what_the_disk_takes_longer() -> None:
    model = dense(8)
    slow = machine(ram(), disk(), rates=(("cpu", 20e9), ("disk-ring", 1e6), ("overhead:cpu", 1e-6)))
    plan = make_plan(model, slow, Budget(context=64), Wishes(pins=(("model.layers.2-4", "disk"),)))
    seconds = dict(plan.prediction.seconds_per_layer)
    assert sum(seconds.values()) == pytest.approx(plan.prediction.seconds_per_token)
    assert seconds["model.layers.2"] == pytest.approx(seconds["model.layers.4"])
    assert seconds["model.layers.2"] > 100 * seconds["model.layers.1"]
