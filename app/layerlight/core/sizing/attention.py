"""Which implementation of attention a model type can be run with."""

from __future__ import annotations

_EAGER_ONLY = frozenset({
    "big_bird", "bloom", "cpmant", "deepseek_v4", "falcon_mamba", "gemma2", "gpt_neo", "gpt_neox_japanese", "gpt_oss",
    "granite_swa", "granitemoe_swa", "mamba", "mamba2", "mimo_v2_flash", "mpt", "openai-gpt", "reformer", "rembert",
    "roformer", "rwkv", "vaultgemma", "xglm", "xlm", "xlnet", "xlstm",
})  # fmt: skip
"""Types whose attention caps its scores, has sinks or a bias that torch's one kernel does not know, or that have none:
transformers refuses to build them with sdpa."""


def attention_for(model_type: str, wished: str) -> str:
    """`wished`, or `eager` where the type can't be run with sdpa."""
    return "eager" if model_type in _EAGER_ONLY else wished
