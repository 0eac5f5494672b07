"""Weights that stay in float32 whatever dtype is asked for: transformers' own lists, by model type."""

from __future__ import annotations

import re
from functools import cache

TRANSFORMERS = "5.24"
"""The version these lists were read from; a test holds them against the installed one."""

_ROUTER = ("e_score_correction_bias", "gate.weight")
_INKLING_2 = (
    "attention_input", "e_score_correction_bias", "final_input", "mlp.gate.weight", "mlp_input",
    "post_attention_convolution", "post_mlp_convolution", "sconv.conv1d",
)  # fmt: skip
_HYPER = (
    "base", "e_score_correction_bias", "fn", "gate.weight", "hc_base", "hc_fn", "hc_scale", "k_norm", "lm_head",
    "scale", "sinks", "weights_proj",
)  # fmt: skip

ALWAYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((
        "axk1", "axk2", "deepseek_v3", "deepseek_v32", "dots1", "dots3_note", "ernie4_5_moe", "ernie4_5_vl_moe",
        "exaone_moe", "glm4_moe", "glm4_moe_lite", "glm4v_moe", "glm_moe_dsa", "hy_v3", "nemotron_h", "sarvam_mla",
        "sarvam_moe", "solar_open",
    ), _ROUTER),
    **dict.fromkeys(("deepseek_v2", "deepseek_ocr2", "unlimited_ocr"), ("gate.weight",)),
    **dict.fromkeys(("beam", "mimo_v2_flash"), ("e_score_correction_bias", "mlp.gate.weight")),
    "afmoe": ("expert_bias",),
    "apertus1p5": ("audio_tokenizer", "vision_tokenizer"),
    "bailing_hybrid": ("A_log", "conv1d", "dt_bias", *_ROUTER),
    "deepseek_v4": (
        "attn_hc", "e_score_correction_bias", "ffn_hc", "hc_head", "input_layernorm", "kv_norm", "norm",
        "position_bias", "post_attention_layernorm", "q_a_norm", "sinks",
    ),
    "flint": ("gate.weight", "sinks"),
    "glm5_next": (
        "A_log", "attn_hc.base", "attn_hc.scale", "conv1d", "dt_bias", "ffn_hc.base", "ffn_hc.scale", *_ROUTER
    ),
    "hy_v4": _HYPER,
    "hy_v4_vl": _HYPER,
    "inkling": (
        "attn_sconv", "e_score_correction_bias", "gate.global_scale", "k_sconv", "mlp_sconv", "v_sconv"
    ),
    "inkling2": _INKLING_2,
    "inkling2_loop": (*_INKLING_2, "forget_gate_proj", "message_gate_proj", "message_input"),
    "kimi_linear": ("dt_bias", *_ROUTER),
    "kolibri1": ("e_score_correction_bias",),
    "mistral_large4": ("mlp.gate.weight", "rotary_emb"),
    "muse_spark": (
        "e_score_correction_bias", "mlp.gate.weight", "post_attention_residual_gate", "post_feedforward_residual_gate"
    ),
}  # fmt: skip
"""Patterns of names that stay in float32 in bfloat16 and float16 alike (`_keep_in_fp32_modules_strict`)."""

HALF: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("axk2", "deepseek_v32", "glm_moe_dsa", "mistral_large4"), ("indexer.weights_proj",)),
    **dict.fromkeys(("instructblip", "instructblipvideo"), ("query_tokens",)),
    "afmoe": (
        "input_layernorm", "k_norm", "norm", "post_attention_layernorm", "post_mlp_layernorm", "pre_mlp_layernorm",
        "q_norm",
    ),
    "blip-2": ("qformer", "query_tokens"),
    "deepseek_v4": (
        "self_attn.compressor.gate_proj", "self_attn.compressor.indexer.gate_proj",
        "self_attn.compressor.indexer.kv_proj", "self_attn.compressor.indexer.scorer.weights_proj",
        "self_attn.compressor.kv_proj",
    ),
    "gpt_oss": ("input_layernorm", "norm", "post_attention_layernorm"),
    "longcat_flash": ("classifier.weight",),
    "rwkv": ("time_decay", "time_first"),
    "udop": ("wo",),
}  # fmt: skip
"""The same in float16 only (`_keep_in_fp32_modules`); bitsandbytes leaves these modules as they are in any dtype."""

BUILT: dict[str, tuple[str, ...]] = {
    "olmo_hybrid": ("linear_attn.A_log",), "xlnet": ("rel_attn", "mask_emb"),
    "zaya": ("balancing_biases",),
}  # fmt: skip
"""Weights that a type's own code makes in float32, which a load keeps."""

_SUFFIXES = re.compile(r"_(?:text|mm_model|text_model)$")


def family_of(model_type: str) -> str:
    """The type whose lists hold for a language model: its own, or that of the model that it is a part of."""
    return _SUFFIXES.sub("", model_type)


@cache
def single_precision(model_type: str, dtype: str) -> re.Pattern[str] | None:
    """Finds the names of weights that stay in float32 when a model is loaded in `dtype`; None where none does."""
    family = family_of(model_type)
    names = set(BUILT.get(family, ()))
    names.update(ALWAYS.get(family, ()) if dtype in ("bfloat16", "float16") else ())
    names.update(HALF.get(family, ()) if dtype == "float16" else ())
    # as transformers does it: anywhere in a name, a dot standing for any character
    return re.compile("|".join(name.replace("*", ".*") for name in sorted(names))) if names else None


@cache
def unquantized(model_type: str) -> tuple[str, ...]:
    """Ends of names of the modules that bitsandbytes leaves as they are, beside those that it always does."""
    return tuple(sorted(HALF.get(family_of(model_type), ())))
