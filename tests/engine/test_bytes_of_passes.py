"""The plan's formulas for cache and work against transformers itself, run on the meta device, for every kind."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from layerlight.core.inspecting.config_file import ConfigFile
from layerlight.core.inspecting.text_shape import text_shape
from layerlight.core.model import TextShape
from layerlight.core.sizing.kv_cache import kv_bytes
from layerlight.core.sizing.working_memory import passes_of, work_of, working_bytes
from layerlight.engine.empty_pass import PassBytes, pass_bytes
from tests.engine.model_kinds import KINDS, SEEING

pytestmark = pytest.mark.engine

CHUNK = 64
CONTEXT = 4 * CHUNK
NO_SDPA = frozenset({"gemma2", "gpt_oss", "mamba", "falcon_mamba", "mamba2", "bloom", "mpt"})
"""Types that transformers runs with eager attention only."""
LOOSE = {"olmo_hybrid": 0.25, "nemotron_h": 0.2, "jamba": 0.15}
"""Types whose linear layers are computed in a way of their own: the formula keeps more room for them."""

SHORT = {"qwen3_next": 0.1}
"""How far the formula may stay below: experts beside a linear layer, at a size where small tensors count."""


def shape_of(model_type: str, config: dict[str, Any]) -> TextShape:
    shape = text_shape(ConfigFile({"model_type": model_type, **config}))
    assert shape is not None
    return shape


def asked(model_type: str, config: dict[str, Any], context: int, attention: str, dtype: str) -> PassBytes:
    built = AutoConfig.for_model(model_type, **config)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(built, dtype=getattr(torch, dtype), attn_implementation=attention)
    found = pass_bytes(model.eval(), context, CHUNK)
    assert found is not None
    return found


@cache
def asked_kind(kind: str, attention: str) -> PassBytes:
    return asked(*described(kind), CONTEXT, attention, "bfloat16")


def described(kind: str) -> tuple[str, dict[str, Any]]:
    return SEEING if kind == "seeing" else KINDS[kind]


def kept(shape: TextShape, context: int, dtype: str) -> list[int]:
    return [kv_bytes(shape, index, context, dtype, chunk=CHUNK) for index in range(shape.layers)]


@pytest.mark.parametrize("kind", [*KINDS, "seeing"])
def test_every_layer_keeps_what_the_library_keeps(kind: str) -> None:
    """A15, shows 1: the cache of every layer, to the byte but for the window's own number."""
    found = asked_kind(kind, "eager").kv
    told = kept(shape_of(*described(kind)), CONTEXT, "bfloat16")
    assert len(found) == len(told)
    assert all(0 <= real - planned <= 8 for real, planned in zip(found, told, strict=True)), (found, told)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", [*KINDS, "seeing"])
def test_a_pass_needs_what_the_formula_says(kind: str, attention: str) -> None:
    """Shows 1: eager and sdpa apart, against the sum of cache and work, and never far below it."""
    model_type, config = described(kind)
    if attention == "sdpa" and model_type in NO_SDPA:
        pytest.skip(f"transformers has no sdpa for {model_type}")
    found = asked_kind(kind, attention)
    shape = shape_of(model_type, config)
    real = found.work.most + sum(found.kv)
    told = working_bytes(shape, CONTEXT, "bfloat16", attention, CHUNK) + sum(kept(shape, CONTEXT, "bfloat16"))
    assert -SHORT.get(model_type, 0.05) <= told / real - 1 <= LOOSE.get(model_type, 0.1), (told, real)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", [*KINDS, "seeing"])
def test_carried_weights_find_no_more_room_than_the_library_leaves(kind: str, attention: str) -> None:
    """What lies beside a module's own weights while it computes is never taken for much less than it is."""
    model_type, config = described(kind)
    if attention == "sdpa" and model_type in NO_SDPA:
        pytest.skip(f"transformers has no sdpa for {model_type}")
    found = asked_kind(kind, attention)
    shape = shape_of(model_type, config)
    assert found.work.in_modules <= found.work.most
    real = found.work.in_modules + sum(found.kv)
    told = work_of(shape, CONTEXT, "bfloat16", attention, CHUNK).in_modules + sum(kept(shape, CONTEXT, "bfloat16"))
    assert told / real - 1 >= -0.05, (told, real)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["grouped", "latent", "experts", "gpt-2", "shared cache"])
@pytest.mark.parametrize("device_kind", ["cpu", "cuda"])
def test_what_the_empty_model_says_goes_before_the_formula(kind: str, attention: str, device_kind: str) -> None:
    """On the CPU to the byte; on CUDA less what its softmax does not copy, as the formula says it."""
    found, shape = asked_kind(kind, attention), shape_of(*described(kind))
    cpu = work_of(shape, CONTEXT, "bfloat16", attention, CHUNK, told=found.work)
    assert cpu == found.work
    told = work_of(shape, CONTEXT, "bfloat16", attention, CHUNK, 3, device_kind, found.work)
    usual = [work_of(shape, CONTEXT, "bfloat16", attention, CHUNK, 3, each).most for each in ("cpu", device_kind)]
    assert told.most - 3 * cpu.most == usual[1] - usual[0]
    assert (told.most < 3 * cpu.most) is (device_kind == "cuda" and attention == "eager" and kind != "gpt-2")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("context", [CHUNK // 2, CHUNK, 3 * CHUNK + 20, 16 * CHUNK])
def test_contexts_of_any_length_in_every_dtype(context: int, attention: str, dtype: str) -> None:
    model_type, config = KINDS["grouped"]
    found = asked(model_type, config, context, attention, dtype)
    shape = shape_of(model_type, config)
    real = found.work.most + sum(found.kv)
    told = working_bytes(shape, context, dtype, attention, CHUNK) + sum(kept(shape, context, dtype))
    assert -0.05 <= told / real - 1 <= 0.1, (told, real)


def test_the_passes_that_may_be_the_most_demanding() -> None:
    assert passes_of(1024, 512) == ((512, 1024), (1, 1024))
    assert passes_of(1100, 512) == ((512, 1024), (76, 1100), (1, 1100))
    assert passes_of(300, 512) == ((300, 300), (1, 300))
