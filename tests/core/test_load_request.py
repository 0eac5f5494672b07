"""A plan becomes a request that needs nothing else."""

from __future__ import annotations

from layerlight.core.device import Budget, Device, Machine
from layerlight.core.load_request import load_request
from layerlight.core.messages import decode_request, encode
from layerlight.core.model import Component, Layer, LayerKind, Model, ModelKind, Tensor, TextShape
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes

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
