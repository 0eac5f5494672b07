"""A config of every kind of language model, small, as config.json would say it."""

from __future__ import annotations

from typing import Any

DENSE = {
    "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "vocab_size": 131, "pad_token_id": 0, "max_position_embeddings": 4096,
}  # fmt: skip
HEADS = {**DENSE, "head_dim": 16}
WINDOW = {**HEADS, "sliding_window": 50}
LATENT = {
    **DENSE, "num_key_value_heads": 8, "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "n_group": 2, "topk_group": 1, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 16, "moe_intermediate_size": 64, "num_experts_per_tok": 2,
}  # fmt: skip
EXPERTS = {**HEADS, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
LOCAL_EXPERTS = {**DENSE, "num_local_experts": 4, "num_experts_per_tok": 2}
MAMBA_2 = {
    **DENSE, "mamba_n_heads": 8, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_d_head": 32, "mamba_d_conv": 3,
    "mamba_expand": 2, "num_experts_per_tok": 0, "num_local_experts": 0, "shared_intermediate_size": 96,
}  # fmt: skip
DELTA = {
    **EXPERTS, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 24, "shared_expert_intermediate_size": 64,
}  # fmt: skip
STATE_SPACE = {"hidden_size": 128, "num_hidden_layers": 2, "vocab_size": 131, "state_size": 8}
GPT_2 = {"n_embd": 128, "n_head": 8, "n_layer": 2, "vocab_size": 131, "n_positions": 1024}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": ("llama", {**DENSE, "num_key_value_heads": 8}),
    "grouped": ("llama", DENSE),
    "one key-value head": ("llama", {**DENSE, "num_key_value_heads": 1}),
    "multi-query falcon": ("falcon", {**DENSE, "multi_query": True}),
    "multi-query bigcode": ("gpt_bigcode", {**GPT_2, "multi_query": True}),
    "fused projections": ("phi3", DENSE),
    "norm of queries": ("qwen3", HEADS),
    "latent": ("deepseek_v3", LATENT),
    "latent 2": ("deepseek_v2", LATENT),
    "latent, dense": ("minicpm3", LATENT),
    "latent glm": ("glm4_moe_lite", LATENT),
    "every layer slides": ("mistral", WINDOW),
    "every second slides": ("gemma2", WINDOW),
    "five of six slide": ("gemma3_text", {**WINDOW, "num_hidden_layers": 7}),
    "three of four slide": ("cohere2", WINDOW),
    "the later ones slide": ("qwen2", {**WINDOW, "use_sliding_window": True, "max_window_layers": 2}),
    "sinks": ("gpt_oss", {**WINDOW, **LOCAL_EXPERTS, "num_experts_per_tok": 4}),
    "chunked": ("llama4_text", {**HEADS, **LOCAL_EXPERTS, "attention_chunk_size": 50, "intermediate_size_mlp": 352,
                                "num_experts_per_tok": 1}),
    "shared cache": ("gemma3n_text", {**WINDOW, "num_hidden_layers": 10, "num_kv_shared_layers": 4,
                                      "vocab_size_per_layer_input": 131, "hidden_size_per_layer_input": 8,
                                      "laurel_rank": 4, "activation_sparsity_pattern": None}),
    "wide full layers": ("gemma4_text", {**WINDOW, "num_hidden_layers": 12, "global_head_dim": 32,
                                         "num_kv_shared_layers": 4, "vocab_size_per_layer_input": 131,
                                         "hidden_size_per_layer_input": 8}),
    "experts": ("mixtral", LOCAL_EXPERTS),
    "many small experts": ("qwen3_moe", EXPERTS),
    "shared experts": ("qwen2_moe", {**EXPERTS, "shared_expert_intermediate_size": 96}),
    "granite hybrid": ("granitemoehybrid", {**MAMBA_2, "layer_types": ["mamba", "attention", "mamba", "mamba"]}),
    "bamba": ("bamba", {**MAMBA_2, "attn_layer_indices": [1]}),
    "jamba": ("jamba", {**EXPERTS, "attn_layer_period": 4, "attn_layer_offset": 1, "mamba_d_state": 8,
                        "mamba_dt_rank": 8, "use_mamba_kernels": False}),
    "both at once": ("falcon_h1", {**MAMBA_2, "mamba_d_ssm": 128, "mamba_n_heads": 8, "mamba_d_head": 16,
                                   "mamba_n_groups": 1, "head_dim": 16}),
    "nemotron": ("nemotron_h", {**HEADS, "layers_block_type": ["mamba", "attention", "mlp", "moe"],
                                "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 16,
                                "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
                                "moe_shared_expert_intermediate_size": 64, "n_group": 1, "topk_group": 1}),
    "delta and experts": ("qwen3_next", DELTA),
    "delta": ("qwen3_5_text", DELTA),
    "delta olmo": ("olmo_hybrid", DENSE),
    "convolutions": ("lfm2", {**DENSE, "layer_types": ["conv", "full_attention", "conv", "conv"],
                              "block_auto_adjust_ff_dim": False}),
    "mamba": ("mamba", {**STATE_SPACE, "conv_kernel": 4}),
    "falcon mamba": ("falcon_mamba", STATE_SPACE),
    "mamba 2": ("mamba2", {**STATE_SPACE, "num_heads": 8, "head_dim": 32, "n_groups": 2}),
    "gpt-2": ("gpt2", GPT_2),
    "alibi": ("bloom", {"hidden_size": 128, "n_layer": 2, "n_head": 8, "vocab_size": 131}),
    "alibi mpt": ("mpt", {"d_model": 128, "n_heads": 8, "n_layers": 2, "vocab_size": 131}),
}  # fmt: skip
"""(model type, its config) by what is particular about it."""

SEEING = (
    "gemma3",
    {
        "text_config": {**WINDOW, "model_type": "gemma3_text"},
        "vision_config": {
            "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2,
            "image_size": 28, "patch_size": 14, "vision_use_head": False, "model_type": "siglip_vision_model",
        },
        "mm_tokens_per_image": 4,
    },
)  # fmt: skip
"""A model that also sees."""
