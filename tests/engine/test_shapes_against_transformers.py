"""Shapes computed from a config alone are the library's own: every name and every length, for every type known."""

from __future__ import annotations

from typing import Any

import pytest

from layerlight.core.inspecting.config_file import ConfigFile
from layerlight.core.inspecting.parameter_shapes import COMPUTED_TYPES, parameter_shapes
from layerlight.core.inspecting.text_shape import text_shape

pytestmark = pytest.mark.engine

DENSE = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 131, "pad_token_id": 0,
}  # fmt: skip
GEMMA = {**DENSE, "head_dim": 32}
MOE = {**DENSE, "moe_intermediate_size": 24, "num_experts_per_tok": 2}
LATENT = {
    **MOE, "n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
    "q_lora_rank": 20, "kv_lora_rank": 12, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 14,
}  # fmt: skip
HYBRID = {
    **DENSE, "shared_intermediate_size": 40, "num_local_experts": 0, "num_experts_per_tok": 0, "mamba_n_heads": 8,
    "mamba_n_groups": 2, "mamba_d_state": 6, "mamba_d_head": 16, "mamba_d_conv": 3, "mamba_expand": 2,
    "layer_types": ["mamba", "attention", "mamba"],
}  # fmt: skip
SIGLIP = {
    "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14, "vision_use_head": False, "model_type": "siglip_vision_model",
}  # fmt: skip
SEEING_GEMMA = {
    "text_config": {**GEMMA, "model_type": "gemma3_text"}, "vision_config": SIGLIP, "mm_tokens_per_image": 4,
}  # fmt: skip
GPT = {"n_embd": 48, "n_head": 4, "n_layer": 2, "vocab_size": 131}
QWEN_TOWER = {"depth": 2, "hidden_size": 32, "intermediate_size": 40, "num_heads": 2, "out_hidden_size": 64}

CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", DENSE),
    ("llama", {**DENSE, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("llama", {**DENSE, "head_dim": 24, "num_key_value_heads": None}),
    ("granite", {**DENSE, "attention_bias": True, "mlp_bias": True}),
    ("smollm3", {**DENSE, "attention_bias": True, "mlp_bias": True}),
    ("mistral", {**DENSE, "head_dim": 32}),
    ("mixtral", {**DENSE, "num_local_experts": 5}),
    ("qwen2", DENSE),
    ("qwen3", {**DENSE, "head_dim": 24}),
    ("qwen3", {**DENSE, "attention_bias": True}),
    ("qwen3_moe", {**MOE, "num_experts": 6}),
    ("qwen3_moe", {**MOE, "num_experts": 6, "decoder_sparse_step": 2}),
    ("qwen3_moe", {**MOE, "num_experts": 6, "mlp_only_layers": [0, 2]}),
    ("glm4_moe", {**LATENT, "attention_bias": True}),
    ("glm4_moe", {**LATENT, "use_qk_norm": True, "head_dim": 24}),
    ("phi3", DENSE),
    ("gemma", GEMMA),
    ("gemma2", GEMMA),
    ("gemma2", {**GEMMA, "attention_bias": True}),
    ("gemma3_text", {**GEMMA, "attention_bias": True}),
    ("gemma3", SEEING_GEMMA),
    ("gpt_oss", {**DENSE, "num_local_experts": 4, "head_dim": 24}),
    ("gpt_oss", {**DENSE, "num_local_experts": 4, "attention_bias": False}),
    ("deepseek_v3", LATENT),
    ("deepseek_v3", {**LATENT, "q_lora_rank": None, "attention_bias": True}),
    ("granitemoehybrid", HYBRID),
    ("granitemoehybrid", {**HYBRID, "num_local_experts": 4, "num_experts_per_tok": 2, "mamba_proj_bias": True}),
    ("granitemoehybrid", {**HYBRID, "mamba_conv_bias": False, "tie_word_embeddings": True}),
    ("qwen2_5_vl", {**DENSE, "vision_config": QWEN_TOWER}),
    ("gpt2", {**GPT, "n_positions": 64}),
    ("gpt2", {**GPT, "n_inner": 100, "tie_word_embeddings": False}),
]


def library_shapes(model_type: str, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    built = AutoConfig.for_model(model_type, **config)
    nested = model_type in ("gemma3", "qwen2_5_vl")
    with torch.device("meta"):
        model = (AutoModelForImageTextToText if nested else AutoModelForCausalLM).from_config(built)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(("model_type", "config"), CASES, ids=[f"{kind}-{at}" for at, (kind, _) in enumerate(CASES)])
def test_computed_shapes_are_the_librarys(model_type: str, config: dict[str, Any]) -> None:
    """A01: bytes told before a byte is read rest on the exact shape of every tensor."""
    read = ConfigFile({"model_type": model_type, **config})
    shape = text_shape(read)
    assert shape is not None
    assert parameter_shapes(read, shape) == library_shapes(model_type, config)


def test_every_type_that_is_offered_is_compared() -> None:
    assert {model_type for model_type, _ in CASES} == COMPUTED_TYPES
