"""Pins: read as they are written, kept by the plan, and refused in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerlight.core.device import Budget
from layerlight.core.errors import BadRequest, DoesNotFit, MapMismatch
from layerlight.core.model import LayerKind, Model
from layerlight.core.placing import make_plan, require_fit
from layerlight.core.plan import Plan, Wishes
from layerlight.core.planning.pins import parse_pin
from tests.core.models import MIB, SLOW_CPU, accelerator, dense, disk, layer, machine, ram, tensor

RATES = (*SLOW_CPU, ("overhead:cuda:0", 1e-6), ("overhead:cuda:1", 1e-6))
HERE = machine(accelerator(), accelerator("cuda:1"), ram(), disk(), rates=RATES)
CONTEXT = Budget(context=256)


def pinned(*pins: str, layers: int = 12, tied: bool = False) -> Plan:
    return make_plan(dense(layers=layers, tied=tied), HERE, CONTEXT, Wishes(pins=tuple(map(parse_pin, pins))))


def on(plan: Plan, place: str) -> list[str]:
    return [each.layer for each in plan.placements if each.rests_on == place]


@pytest.mark.parametrize(
    ("pin", "layers"),
    [
        ("model.layers.3=cpu", ["model.layers.3"]),
        ("model.layers.1=cpu", ["model.layers.1"]),
        ("model.layers.9-11=cpu", [f"model.layers.{index}" for index in (9, 10, 11)]),
        ("model.layers.2-2=cpu", ["model.layers.2"]),
        (" lm_head = cpu ", ["lm_head"]),
        ("model.layers.1*=cpu", [f"model.layers.{index}" for index in (1, 10, 11)]),
        ("*norm=cpu", ["model.norm"]),
    ],
)
def test_a_unit_a_range_and_a_pattern(pin: str, layers: list[str]) -> None:
    plan = pinned(pin)
    assert on(plan, "cpu") == layers
    assert len(on(plan, "cuda:0")) == 15 - len(layers), "the rest is planned around it"
    assert {each.reason for each in plan.placements if each.layer in layers} == {"Pinned to RAM by hand."}


def test_everything_can_be_pinned_and_the_later_pin_counts() -> None:
    plan = pinned("*=cpu", "model.layers.0-3=cuda:0", "model.layers.3=disk")
    assert on(plan, "cuda:0") == ["model.layers.0", "model.layers.1", "model.layers.2"]
    assert on(plan, "disk") == ["model.layers.3"]
    assert len(on(plan, "cpu")) == 11


def test_what_shares_weights_is_pinned_together() -> None:
    plan = pinned("lm_head=cpu", tied=True)
    assert on(plan, "cpu") == ["model.embed_tokens", "lm_head"]
    with pytest.raises(MapMismatch, match="share weights"):
        pinned("lm_head=cuda:1", "model.embed_tokens=cpu", tied=True)


@pytest.mark.parametrize(
    "words", ["", "=", "cuda:0", "model.norm=", "=cpu", "a b=cpu", "model.layers.7-3=cpu", "model.layers.0-99999=cpu"]
)
def test_what_is_no_pin(words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_pin(words)
    assert refused.value.hint


@pytest.mark.parametrize("pin", ["model.layers.40=cpu", "model.layers.20-30=cpu", "transformer.*=cpu", "layers=cpu"])
def test_a_pin_of_another_model_is_refused_with_names_of_this_one(pin: str) -> None:
    """A17."""
    with pytest.raises(BadRequest) as refused:
        pinned(pin)
    assert "model.layers" in refused.value.hint


@pytest.mark.parametrize(
    ("pin", "instead"),
    [
        ("model.layers.0-999=cpu", "model.layers.0-3"),
        ("model.layers.2-4=cpu", "model.layers.2-3"),
        ("*.layers.0-4=cpu", "*.layers.0-3"),
    ],
)
def test_a_range_that_goes_on_after_the_last_layer_is_refused_with_its_name(pin: str, instead: str) -> None:
    with pytest.raises(BadRequest) as refused:
        pinned(pin, layers=4)
    assert "“model.layers.3”" in refused.value.message
    assert instead in refused.value.hint


@pytest.mark.parametrize("pin", ["model.layers.0-3=cpu", "model.layers.3-3=cpu", "*.layers.0-3=cpu"])
def test_a_range_up_to_the_last_layer_is_taken(pin: str) -> None:
    assert "model.layers.3" in on(pinned(pin, layers=4), "cpu")


@pytest.mark.parametrize("place", ["cuda:7", "gpu", "mps"])
def test_a_pin_to_a_place_of_another_machine_is_refused(place: str) -> None:
    """A19."""
    with pytest.raises(BadRequest, match=place) as refused:
        pinned(f"*={place}")
    assert "cuda:0, cuda:1, cpu, disk" in refused.value.hint


def test_a_pin_to_a_place_with_a_limit_of_0_is_refused() -> None:
    with pytest.raises(BadRequest, match="a limit of 0"):
        make_plan(dense(), HERE, Budget.of([("disk", 0)], 256), Wishes(pins=(("lm_head", "disk"),)))


def test_impossible_pins_are_refused_with_the_shortfall_in_bytes() -> None:
    model = dense(layers=8, hidden=256, intermediate=512)
    pins = (("model.layers.*", "cuda:0"),)
    tight = Budget.of([("cuda:0", 4 * MIB)], 256)
    plan = make_plan(model, HERE, tight, Wishes(pins=pins))
    assert not plan.fits
    with pytest.raises(DoesNotFit) as refused:
        require_fit(plan)
    assert f"{plan.shortfall} bytes" in refused.value.message
    assert refused.value.hint == "The plan made without the pins fits."
    enough = Budget.of([("cuda:0", 4 * MIB + plan.shortfall)], 256)
    assert make_plan(model, HERE, enough, Wishes(pins=pins)).fits, "the shortfall is the truth"


def test_quantised_layers_are_not_pinned_to_the_disk() -> None:
    """C01."""
    with pytest.raises(DoesNotFit, match="bitsandbytes"):
        make_plan(dense(), HERE, CONTEXT, Wishes(quantization="nf4", pins=(("model.layers.1", "disk"),)))


def with_experts_apart() -> Model:
    """A layer whose experts are a layer of their own."""
    experts = layer(
        "model.layers.1.mlp.experts", LayerKind.EXPERTS, tensor("model.layers.1.mlp.experts.gate_up_proj", 4, 64, 64)
    )
    model = dense()
    assert model.shape is not None
    shape = replace(model.shape, experts=4, experts_per_token=1)
    at = [each.name for each in model.layers].index("model.layers.1") + 1
    return replace(model, layers=(*model.layers[:at], experts, *model.layers[at:]), shape=shape)


def test_experts_may_rest_elsewhere_but_run_with_their_layer_or_in_ram() -> None:
    """A12: hidden states are added up inside the layer. From RAM its experts are carried, or computed with there."""
    pins = (("model.layers.*", "cuda:0"), ("*.experts", "cpu"))
    plan = make_plan(with_experts_apart(), HERE, CONTEXT, Wishes(pins=pins))
    assert on(plan, "cpu") == ["model.layers.1.mlp.experts"]
    slow_bus = replace(HERE, bandwidths=(("bus", 1e6), ("handover", 1e-6)))
    for here, runs in ((HERE, "cuda:0"), (slow_bus, "cpu")):
        plan = make_plan(with_experts_apart(), here, CONTEXT, Wishes(pins=pins))
        assert plan.placement("model.layers.1.mlp.experts").runs_on == runs
        assert plan.placement("model.layers.1").runs_on == "cuda:0"
    parted = (("model.layers.*", "cuda:0"), ("*.experts", "cuda:1"))
    with pytest.raises(MapMismatch, match=r"model\.layers\.1.* and its experts would run on cuda:0 and cuda:1"):
        make_plan(with_experts_apart(), HERE, CONTEXT, Wishes(pins=parted))
    by_hand = tuple(
        (each.name, "cuda:1" if "experts" in each.name else "cuda:0") for each in with_experts_apart().layers
    )
    with pytest.raises(MapMismatch, match="its experts"):
        make_plan(with_experts_apart(), HERE, CONTEXT, Wishes(map=by_hand))


@pytest.mark.parametrize(("method", "runs"), [(None, "cpu"), ("fp8", "cuda:0"), ("gptq", "cuda:0"), ("mxfp4", "cpu")])
def test_packed_experts_are_carried_unless_they_are_expanded(method: str | None, runs: str) -> None:
    """A CPU has no kernel for fp8 or GPTQ; mxfp4 becomes the model's dtype while it is loaded."""
    here = machine(accelerator(capability=(8, 9)), ram(), disk(), rates=(("bus", 1e6), ("handover", 1e-6)))
    model = replace(with_experts_apart(), quantization=method)
    plan = make_plan(model, here, CONTEXT, Wishes(pins=(("model.layers.*", "cuda:0"), ("*.experts", "cpu"))))
    assert plan.placement("model.layers.1.mlp.experts").runs_on == runs


def test_experts_can_not_rest_beside_an_accelerator_that_has_ram_for_its_memory() -> None:
    """On a Mac they are not planned there, and why is said; from disk they are carried."""
    mac = machine(accelerator("mps", kind="mps", shares_memory_with="cpu"), ram(), disk())
    at_metal = ("model.layers.*", "mps")
    with pytest.raises(DoesNotFit, match="MPS has RAM for its memory") as refused:
        make_plan(with_experts_apart(), mac, CONTEXT, Wishes(pins=(at_metal, ("*.experts", "cpu"))))
    assert "disk" in refused.value.hint
    plan = make_plan(with_experts_apart(), mac, CONTEXT, Wishes(pins=(at_metal, ("*.experts", "disk"))))
    assert {each.runs_on for each in plan.placements} == {"mps"}


def test_a_range_of_experts_is_pinned_as_layers_are() -> None:
    """Experts are layers of their own: their layer's pin says nothing of them."""
    model = with_experts_apart()
    pins = (("model.layers.0-3", "cuda:0"), parse_pin("model.layers.1-1.mlp.experts=cpu"))
    plan = make_plan(model, HERE, CONTEXT, Wishes(pins=pins))
    assert on(plan, "cpu") == ["model.layers.1.mlp.experts"]
    parsed = parse_pin("model.layers.*.mlp.experts=cpu")
    assert on(make_plan(model, HERE, CONTEXT, Wishes(pins=(parsed,))), "cpu") == ["model.layers.1.mlp.experts"]
