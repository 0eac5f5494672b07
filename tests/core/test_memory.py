"""Bytes of weights, cache and working memory against sums done by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerlight.core import memory
from layerlight.core.model import LayerKind
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
    [("nf4", 128 * 64 // 2 + 128 * 4), ("fp4", 128 * 64 // 2 + 128 * 4), ("int8", 128 * 64 + 128 * 4)],
)
def test_quantised_weights_bring_their_scales(quantization: str, size: int) -> None:
    linear = layer("model.layers.0", LayerKind.DECODER, tensor("model.layers.0.mlp.up_proj.weight", 128, 64))
    assert memory.loaded_size(linear, "bfloat16", quantization) == size


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
    ("kind", "tokens"), [("full_attention", 1000), ("sliding_attention", 128), ("chunked_attention", 128)]
)
def test_kv_cache_by_kind_of_attention(kind: str, tokens: int) -> None:
    shape = replace(dense().shape, layer_types=(kind,) * 4, sliding_window=128)  # type: ignore[type-var]
    assert memory.kv_bytes(shape, 0, 1000, "bfloat16") == 2 * 2 * 16 * tokens * 2


def test_latent_attention_caches_the_compressed_vector() -> None:
    shape = replace(dense().shape, latent_rank=512, latent_rope_dim=64)  # type: ignore[type-var]
    assert memory.kv_bytes(shape, 0, 100, "bfloat16") == 100 * 576 * 2


def test_eager_attention_needs_the_scores_that_sdpa_does_not() -> None:
    shape = dense().shape
    assert shape is not None
    eager = memory.working_bytes(shape, 2048, "bfloat16", "eager", 512)
    assert eager - memory.working_bytes(shape, 2048, "bfloat16", "sdpa", 512) == shape.heads * 512 * 2048 * 10


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
