"""Models and machines made of numbers, for planning without a file."""

from __future__ import annotations

from layerlight.core.device import Device, Machine
from layerlight.core.model import DTYPE_SIZES, Component, Layer, LayerKind, Model, ModelKind, Tensor, TextShape

MIB = 2**20
GIB = 2**30


def tensor(name: str, *shape: int, dtype: str = "bfloat16") -> Tensor:
    size = DTYPE_SIZES[dtype]
    for length in shape:
        size *= length
    return Tensor(name, dtype, shape, size, "model.safetensors")


def layer(name: str, kind: LayerKind, *tensors: Tensor, index: int | None = None) -> Layer:
    elements = sum(each.elements for each in tensors)
    return Layer(name, "model", kind, elements, sum(each.size for each in tensors), index, tensors)


def dense(
    layers: int = 4,
    hidden: int = 64,
    intermediate: int = 128,
    vocabulary: int = 500,
    heads: int = 4,
    key_value_heads: int = 2,
    context: int = 256,
    tied: bool = False,
    dtype: str = "bfloat16",
    quantization: str | None = None,
    kind: ModelKind = ModelKind.CHAT,
) -> Model:
    """A Llama of any size."""
    head_dim = hidden // heads
    decoder = [
        layer(
            f"model.layers.{i}",
            LayerKind.DECODER,
            tensor(f"model.layers.{i}.self_attn.q_proj.weight", hidden, hidden, dtype=dtype),
            tensor(f"model.layers.{i}.self_attn.k_proj.weight", key_value_heads * head_dim, hidden, dtype=dtype),
            tensor(f"model.layers.{i}.self_attn.v_proj.weight", key_value_heads * head_dim, hidden, dtype=dtype),
            tensor(f"model.layers.{i}.self_attn.o_proj.weight", hidden, hidden, dtype=dtype),
            tensor(f"model.layers.{i}.mlp.gate_proj.weight", intermediate, hidden, dtype=dtype),
            tensor(f"model.layers.{i}.mlp.up_proj.weight", intermediate, hidden, dtype=dtype),
            tensor(f"model.layers.{i}.mlp.down_proj.weight", hidden, intermediate, dtype=dtype),
            tensor(f"model.layers.{i}.input_layernorm.weight", hidden, dtype=dtype),
            tensor(f"model.layers.{i}.post_attention_layernorm.weight", hidden, dtype=dtype),
            index=i,
        )
        for i in range(layers)
    ]
    table = tensor("model.embed_tokens.weight", vocabulary, hidden, dtype=dtype)
    head = () if tied else (tensor("lm_head.weight", vocabulary, hidden, dtype=dtype),)
    every = (
        layer("model.embed_tokens", LayerKind.EMBEDDING, table),
        *decoder,
        layer("model.norm", LayerKind.NORM, tensor("model.norm.weight", hidden, dtype=dtype)),
        layer("lm_head", LayerKind.HEAD, *head),
    )
    return Model(
        folder="/models/dense",
        kind=kind,
        architecture="LlamaForCausalLM",
        components=(Component("model", "LlamaForCausalLM", sum(each.size for each in every)),),
        layers=every,
        dtype=dtype,
        name="dense",
        shape=TextShape(
            "llama", hidden, intermediate, layers, heads, key_value_heads, head_dim, vocabulary, context_length=context
        ),
        tied=(("model.embed_tokens", "lm_head"),) if tied else (),
        quantization=quantization,
    )


def accelerator(place: str = "cuda:0", free: int = 8 * GIB, kind: str = "cuda", **more: object) -> Device:
    return Device(place, kind, place.upper(), total=free, free=free, **more)  # type: ignore[arg-type]


def ram(free: int = 16 * GIB) -> Device:
    return Device("cpu", "cpu", "RAM", total=free, free=free)


def disk(free: int = 500 * GIB) -> Device:
    return Device("disk", "disk", "Disk", total=free, free=free)


def machine(*devices: Device, rates: tuple[tuple[str, float], ...] = ()) -> Machine:
    return Machine(devices or (ram(), disk()), rates)


SLOW_CPU = (("cpu", 1e8), ("matrix:cpu:bfloat16", 1e8))
"""Rates of a processor that is never worth computing on beside an accelerator."""
