"""Where the experts of a layer are a module of their own: what a plan may keep apart from the layer's attention.

Only types whose layers hold no tensors of their own on the way to the experts are here: such a tensor would be in
neither part. Routers and experts that every token passes stay with the layer.
"""

from __future__ import annotations

_MLP = """
aria aria_text cohere2_moe deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5_moe exaone_moe flex_olmo glm4_moe
glm4_moe_lite glm4v_moe glm_moe_dsa gpt_oss kimi_linear mellum minimax mixtral olmoe phimoe qwen2_moe qwen3_5_moe
qwen3_5_moe_text qwen3_moe qwen3_next qwen3_vl_moe solar_open
"""
_MODULES = {
    **dict.fromkeys(_MLP.split(), "mlp.experts"),
    **dict.fromkeys(("jamba", "llama4", "llama4_text"), "feed_forward.experts"),
    **dict.fromkeys(
        ("granitemoe", "granitemoe_swa", "granitemoehybrid", "granitemoeshared"), "block_sparse_moe.experts"
    ),
    "nemotron_h": "mixer.experts",
}

EXPERT_TYPES = frozenset(_MODULES)


def experts_module(model_type: str) -> str | None:
    """The path of the experts inside a decoder layer of this type; None where they are no part of their own."""
    return _MODULES.get(model_type)
