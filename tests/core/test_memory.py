"""Bytes of weights, cache and working memory against sums done by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerlight.core import memory
from layerlight.core.device import Device
from layerlight.core.model import LayerKind, LinearShape, Tensor
from layerlight.core.planning.units import units_of
from tests.core.models import GIB, MIB, accelerator, dense, disk, layer, ram, tensor


def test_weights_are_counted_in_the_dtype_they_are_loaded_in() -> None:
    """A15: bytes are the headers' elements times the chosen dtype, whatever config.json says."""
    model = dense(dtype="bfloat16")
    assert sum(memory.loaded_size(each, "float32") for each in model.layers) == 2 * model.size
    assert sum(memory.loaded_size(each, "bfloat16") for each in model.layers) == model.size


def test_integers_keep_their_size() -> None:
    packed = layer("model.layers.0", LayerKind.DECODER, tensor("model.layers.0.q.qweight", 64, 64, dtype="int32"))
    assert memory.loaded_size(packed, "bfloat16") == 64 * 64 * 4


@pytest.mark.parametrize(
    ("quantization", "size"),
    [
        ("nf4", 128 * 64 // 2 + 128 * 4 + 64),
        ("fp4", 128 * 64 // 2 + 128 * 4 + 64),
        ("nf4-double", 128 * 64 // 2 + 128 + 4 + 1028 + 64),
        ("int8", 128 * 64 + 128 * 4),
    ],
)
def test_quantised_weights_bring_their_scales(quantization: str, size: int) -> None:
    linear = layer("model.layers.0", LayerKind.DECODER, tensor("model.layers.0.mlp.up_proj.weight", 128, 64))
    assert memory.loaded_size(linear, "bfloat16", quantization) == size


def test_turned_weights_have_a_scale_for_each_output() -> None:
    """GPT-2's weights lie input by output."""
    turned = layer("transformer.h.0", LayerKind.DECODER, tensor("transformer.h.0.mlp.c_fc.weight", 64, 256))
    assert memory.loaded_size(turned, "bfloat16", "int8") == 64 * 256 + 4 * 256


@pytest.mark.parametrize(
    ("name", "quantised"), [("encoder.layers.0.mlp.fc1", True), ("embeddings.position_embedding", False)]
)
def test_towers_are_quantised_but_not_their_tables(name: str, quantised: bool) -> None:
    found = tensor(f"model.vision_tower.{name}.weight", 64, 64)
    tower = layer("model.vision_tower", LayerKind.TOWER, found)
    assert memory.quantizable(found, tower) is quantised


def packed() -> list[Tensor]:
    return [
        tensor("model.layers.0.mlp.up_proj.weight", 128, 256, dtype="float8_e4m3fn"),
        tensor("model.layers.0.mlp.up_proj.weight_scale_inv", 1, 2, dtype="float32"),
        tensor("model.layers.0.mlp.experts.down_proj_blocks", 4, 64, 8, 16, dtype="uint8"),
        tensor("model.layers.0.mlp.experts.down_proj_scales", 4, 64, 8, dtype="uint8"),
        tensor("model.layers.0.input_layernorm.weight", 256),
    ]


def test_packed_weights_expand_where_nothing_computes_in_them() -> None:
    """Twice the bytes for fp8, four times for mxfp4, and their scales are gone."""
    found = layer("model.layers.0", LayerKind.DECODER, *packed())
    assert memory.loaded_size(found, "bfloat16") == sum(each.size for each in packed())
    expanded = 2 * (128 * 256 + 4 * 64 * 8 * 32 + 256)
    assert memory.loaded_size(found, "bfloat16", expands=True) == expanded


@pytest.mark.parametrize(
    ("quantization", "on_accelerator", "each"),
    [(None, True, 0), ("nf4", True, 2), ("nf4-double", False, 7), ("int8", True, 0), ("int8", False, 10)],
)
def test_a_quantised_weight_is_turned_back_one_at_a_time(
    quantization: str | None, on_accelerator: bool, each: int
) -> None:
    model = dense(hidden=64, intermediate=128)
    shape = model.shape
    assert shape is not None
    largest = max(unit.largest_quantized for unit in units_of(model, shape, 64, "bfloat16", quantization))
    assert memory.dequantized_bytes(largest, "bfloat16", quantization, on_accelerator) == each * 64 * 128


@pytest.mark.parametrize(
    ("method", "devices", "expanding"),
    [
        ("fp8", (ram(),), True),
        ("fp8", (accelerator(capability=(8, 6)), ram()), True),
        ("fp8", (accelerator(capability=(8, 9)), ram()), False),
        ("fp8", (accelerator("xpu:0", kind="xpu"), ram()), False),
        ("fp8", (accelerator("mps", kind="mps"), ram()), True),
        ("mxfp4", (accelerator(capability=(9, 0)), ram()), True),
        ("gptq", (ram(),), False),
        (None, (ram(),), False),
    ],
)
def test_which_machine_computes_in_packed_weights(
    method: str | None, devices: tuple[Device, ...], expanding: bool
) -> None:
    assert memory.expands(method, devices) is expanding


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.mlp.experts.3.up_proj.weight",
        "model.layers.0.mlp.gate.weight",
        "model.layers.0.block_sparse_moe.gate.weight",
        "model.layers.0.self_attn.q_proj.bias",
    ],
)
def test_what_bitsandbytes_leaves_is_counted_whole(name: str) -> None:
    shape = (64,) if "norm" in name or "bias" in name else (64, 64)
    kept = layer("model.layers.0", LayerKind.DECODER, tensor(name, *shape))
    assert memory.loaded_size(kept, "bfloat16", "nf4") == kept.size


def test_embedding_and_head_stay_unquantised() -> None:
    model = dense()
    for name in ("model.embed_tokens", "lm_head", "model.norm"):
        assert memory.loaded_size(model.layer(name), "bfloat16", "nf4") == model.layer(name).size


@pytest.mark.parametrize(
    ("kind", "context", "tokens"),
    [
        ("full_attention", 1000, 1000),
        ("sliding_attention", 1000, 127 + 488),
        ("sliding_attention", 1024, 127 + 512),
        ("chunked_attention", 4096, 127 + 512),
        ("sliding_attention", 100, 100),
        ("linear_attention", 1000, 0),
        ("dummy", 1000, 0),
    ],
)
def test_kv_cache_by_kind_of_attention(kind: str, context: int, tokens: int) -> None:
    """A window's cache is a part of the tensor that also holds the chunk before it."""
    shape = replace(dense().shape, layer_types=(kind,) * 4, sliding_window=128)  # type: ignore[type-var]
    assert memory.kv_bytes(shape, 0, context, "bfloat16") == 2 * 2 * 16 * tokens * 2


@pytest.mark.parametrize("kind", ["linear_attention", "hybrid"])
def test_a_constant_state_is_counted_by_kind(kind: str) -> None:
    linear = LinearShape("mamba2", 64, 4, 256, convolution=300, recurrence=1000, channels=100)
    shape = replace(dense().shape, layer_types=(kind,), linear=linear)  # type: ignore[type-var]
    attention = 2 * 2 * 16 * 77 * 2 if kind == "hybrid" else 0
    assert memory.kv_bytes(shape, 0, 77, "bfloat16", batch=3) == 3 * (300 * 2 + 1000 * 4 + attention)


@pytest.mark.parametrize(
    ("cache", "size"),
    [
        (None, 64 * 1000 * 2),
        ("fp8", 64 * 1000 + 8),
        ("int8", 64 * 127 * 2 + 64 * 873 + 4 * 873),
        ("int4", 64 * 127 * 2 + 64 * 873 // 2 + 4 * 873),
        ("int2", 64 * 127 * 2 + 64 * 873 // 4 + 4 * 873),
    ],
)
def test_a_quantised_cache_and_a_batch(cache: str | None, size: int) -> None:
    """In integers a scale and a zero point for 64 elements, and the newest 127 tokens as they are; see the engine's
    test against transformers' own caches."""
    shape = dense().shape
    assert shape is not None
    assert memory.kv_bytes(shape, 0, 1000, "bfloat16", batch=2, cache=cache) == 2 * size


def test_latent_attention_caches_the_compressed_vector() -> None:
    shape = replace(dense().shape, latent_rank=512, latent_rope_dim=64)  # type: ignore[type-var]
    assert memory.kv_bytes(shape, 0, 100, "bfloat16") == 100 * 576 * 2


@pytest.mark.parametrize(
    ("dtype", "device_kind", "each"),
    [("bfloat16", "cpu", 10), ("float16", "mps", 10), ("bfloat16", "cuda", 8), ("float32", "cpu", 8)],
)
def test_eager_scores_at_their_softmax(dtype: str, device_kind: str, each: int) -> None:
    """Scores, a float32 copy where the kernel needs one, the result in float32, and that in the scores' dtype."""
    shape = replace(dense().shape, heads=8)  # type: ignore[type-var]
    at = [memory.working_bytes(shape, length, dtype, "eager", 512, device_kind=device_kind) for length in (4096, 8192)]
    width = 4 if dtype == "float32" else 2
    others = 4096 * (24 + 512 * width + 2 * 8 * 16 * width)
    assert at[1] - at[0] == 8 * 512 * 4096 * each + others


def test_a_batch_works_on_as_many() -> None:
    shape = dense().shape
    assert shape is not None
    one = memory.working_bytes(shape, 2048, "bfloat16", "sdpa", 512)
    assert memory.working_bytes(shape, 2048, "bfloat16", "sdpa", 512, batch=3) == 3 * one


def test_a_large_vocabulary_decides_a_small_model() -> None:
    """Logits in the model's dtype, in float32 and sorted while a token is drawn."""
    shape = replace(dense().shape, vocabulary=2_000_000)  # type: ignore[type-var]
    assert memory.working_bytes(shape, 64, "bfloat16", "sdpa", 512) == 24 * 64 + 2_000_000 * (2 + 32)


@pytest.mark.parametrize(
    ("device", "size"),
    [
        (accelerator(free=1 * GIB), GIB // 20),
        (accelerator(free=80 * GIB), 512 * MIB),
        (ram(64 * GIB), GIB),
        (disk(), 0),
    ],
)
def test_the_margin_is_a_twentieth_up_to_a_bound(device: object, size: int) -> None:
    assert memory.margin(device) == size  # type: ignore[arg-type]
