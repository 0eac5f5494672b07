"""A plan becomes a request that needs nothing else."""

from __future__ import annotations

from dataclasses import replace

from layerlight.core.device import Budget, Device, Machine
from layerlight.core.load_request import load_request, loads_alike
from layerlight.core.messages import decode_request, encode
from layerlight.core.model import Component, Layer, LayerKind, Model, ModelKind, Tensor, TextShape
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
from tests.core.models import dense, machine

MODEL = Model(
    folder="/models/tiny",
    kind=ModelKind.CHAT,
    architecture="LlamaForCausalLM",
    components=(Component("model", "LlamaForCausalLM", 32),),
    layers=(
        Layer(
            "model.layers.0", "model", LayerKind.DECODER, 16, 32, 0,
            (Tensor("model.layers.0.mlp.up_proj.weight", "bfloat16", (4, 4), 32, "model.safetensors"),),
        ),
    ),
    dtype="bfloat16",
    shape=TextShape("llama", 4, 4, 1, 1, 1, 4, 8, context_length=64),
)  # fmt: skip


def test_the_request_carries_the_whole_plan() -> None:
    machine = Machine((Device("cpu", "cpu", "RAM", 2**30, 2**30),))
    plan = make_plan(
        MODEL, machine, Budget(context=32), Wishes(dtype="float32", quantization="int8", attention="eager")
    )
    request = load_request(plan, offload_folder="/big/disk")
    assert request.folder == "/models/tiny"
    assert request.placements == plan.placements
    assert (request.dtype, request.quantization, request.attention) == ("float32", "int8", "eager")
    assert (request.context, request.prefill_chunk) == (32, plan.prefill_chunk)
    assert request.offload_folder == "/big/disk"
    assert decode_request(encode(request)) == request


def test_plans_load_alike_whatever_their_exact_bytes_and_reasons() -> None:
    """What the empty model told after the load began makes no other plan of it."""
    plan = make_plan(dense(), machine(), Budget(context=64))
    told = replace(plan, placements=tuple(replace(each, size=each.size + 1, reason="") for each in plan.placements))
    assert loads_alike(plan, told)
    assert not loads_alike(plan, make_plan(dense(), machine(), Budget(context=65)))
    moved = (replace(plan.placements[0], rests_on="disk"), *plan.placements[1:])
    assert not loads_alike(plan, replace(plan, placements=moved))
