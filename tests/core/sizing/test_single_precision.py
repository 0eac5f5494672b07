"""Weights that stay in float32, by type of model and dtype."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerlight.core import memory
from layerlight.core.device import Budget
from layerlight.core.model import LayerKind
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
from layerlight.core.sizing.single_precision import single_precision
from tests.core.models import dense, layer, machine, tensor


@pytest.mark.parametrize(
    ("model_type", "dtype", "name", "single"),
    [
        ("deepseek_v3", "bfloat16", "model.layers.3.mlp.gate.weight", True),
        ("deepseek_v3", "float16", "model.layers.3.mlp.gate.e_score_correction_bias", True),
        ("deepseek_v3", "bfloat16", "model.layers.3.mlp.gate_proj.weight", False),
        ("glm4v_moe_text", "bfloat16", "model.language_model.layers.3.mlp.gate.weight", True),
        ("mimo_v2_flash", "bfloat16", "model.layers.3.self_attn.gate.weight", False),
        ("gpt_oss", "float16", "model.layers.3.input_layernorm.weight", True),
        ("gpt_oss", "bfloat16", "model.layers.3.input_layernorm.weight", False),
        ("olmo_hybrid", "bfloat16", "model.layers.3.linear_attn.A_log", True),
        ("hy_v4", "bfloat16", "lm_head.weight", True),
    ],
)
def test_which_weights_stay(model_type: str, dtype: str, name: str, single: bool) -> None:
    found = single_precision(model_type, dtype)
    assert (found is not None and found.search(name) is not None) is single


@pytest.mark.parametrize("model_type", ["llama", "qwen3_moe", ""])
def test_most_types_keep_none(model_type: str) -> None:
    assert single_precision(model_type, "float16") is None


def test_the_plan_counts_them_whole() -> None:
    router = layer("model.layers.0", LayerKind.DECODER, tensor("model.layers.0.mlp.gate.weight", 8, 64), index=0)
    plain = dense(layers=1)
    held = tuple(router if each.index == 0 else each for each in plain.layers)
    sizes = []
    for model_type in ("deepseek_v3", "llama"):
        shape = replace(plain.shape, model_type=model_type)  # type: ignore[type-var]
        plan = make_plan(replace(plain, layers=held, shape=shape), machine(), Budget(context=64), Wishes("bfloat16"))
        sizes.append(plan.placement("model.layers.0").size)
    assert sizes == [4 * 8 * 64, 2 * 8 * 64]


def test_bitsandbytes_leaves_such_modules_as_they_are() -> None:
    name = "model.layers.0.self_attn.compressor.gate_proj.weight"
    held = layer("model.layers.0", LayerKind.DECODER, tensor(name, 64, 64), index=0)
    assert not memory.quantizable(held.tensors[0], held, "deepseek_v4")
    assert memory.quantizable(held.tensors[0], held, "llama")
