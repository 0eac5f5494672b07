"""Small random models of every kind whose bytes a plan must get right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerlight.bench.random_model import write_tokenizer

CONTEXT = 1024

_SIZES = {
    "vocab_size": 258, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "max_position_embeddings": CONTEXT, "bos_token_id": 256, "eos_token_id": 257,
    "pad_token_id": 257, "tie_word_embeddings": False,
}  # fmt: skip
_LATENT = {
    "num_key_value_heads": 8, "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2,
    "topk_group": 1, "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 32, "moe_intermediate_size": 128, "num_experts_per_tok": 2,
}  # fmt: skip
_MAMBA = {
    "mamba_n_heads": 16, "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_d_head": 32, "mamba_d_conv": 4,
    "mamba_expand": 2, "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 256,
    "layer_types": ["mamba", "attention", "mamba", "mamba"],
}  # fmt: skip
_EXPERTS = {"head_dim": 32, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
_WINDOW = {"head_dim": 32, "sliding_window": 100, "num_hidden_layers": 7}
_GPT_2 = {
    "n_embd": 256, "n_head": 8, "n_layer": 4, "vocab_size": 258, "n_positions": CONTEXT, "bos_token_id": 256,
    "eos_token_id": 257,
}  # fmt: skip
_TOWER = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14, "vision_use_head": False, "model_type": "siglip_vision_model",
}  # fmt: skip
_ALL_HEADS = {**_SIZES, "num_key_value_heads": 8}


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of model. `quantization` is done while loading, `stored` lies in the files."""

    name: str
    model_type: str
    config: dict[str, Any]
    quantization: str | None = None
    stored: str | None = None
    kv: str = ""
    """What its KV cache is kept in, where it is not as computed."""


SHAPES = (
    Shape("dense", "llama", _ALL_HEADS),
    Shape("GQA", "llama", _SIZES),
    Shape("dense, fp8 cache", "llama", _ALL_HEADS, kv="fp8"),
    Shape("GQA, fp8 cache", "llama", _SIZES, kv="fp8"),
    Shape("MLA", "deepseek_v3", _SIZES | _LATENT),
    Shape("MoE", "mixtral", _SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    Shape("MoE, small experts", "qwen3_moe", _SIZES | _EXPERTS),
    Shape("sliding", "gemma3_text", _SIZES | _WINDOW | {"tie_word_embeddings": True}),
    Shape("sliding, all", "mistral", _SIZES | _WINDOW),
    Shape("hybrid", "granitemoehybrid", _SIZES | _MAMBA),
    Shape("tied", "llama", _SIZES | {"tie_word_embeddings": True}),
    Shape(
        "VLM",
        "gemma3",
        {
            "text_config": _SIZES | _WINDOW | {"model_type": "gemma3_text"},
            "vision_config": _TOWER,
            "mm_tokens_per_image": 4,
            "image_token_index": 255, "boi_token_index": 254, "eoi_token_index": 253,
        },
    ),
    Shape("nf4", "llama", _SIZES, quantization="nf4"),
    Shape("nf4, double", "llama", _SIZES, quantization="nf4-double"),
    Shape("int8", "llama", _SIZES, quantization="int8"),
    Shape("fp8 files", "llama", _SIZES | {"intermediate_size": 768}, stored="fp8"),
    Shape("GPT-2", "gpt2", _GPT_2),
    Shape("GPT-2 in int8", "gpt2", _GPT_2, quantization="int8"),
)  # fmt: skip


def write_shape(shape: Shape, folder: Path) -> Path:
    """A whole bf16 model folder with random weights, its tokenizer a byte a token."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(shape.model_type, **shape.config)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    if shape.stored == "fp8":
        _store_in_fp8(folder)
    return folder


def _store_in_fp8(folder: Path) -> None:
    """Rewrites linear weights in fp8 with one scale a block, as DeepSeek's files have them."""
    import torch
    from safetensors.torch import load_file, save_file

    block = 128
    written: dict[str, torch.Tensor] = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        if weight.dim() == 2 and "_proj." in name:
            written[name] = weight.to(torch.float8_e4m3fn)
            scales = [-(-length // block) for length in weight.shape]
            written[f"{name}_scale_inv"] = torch.ones(scales, dtype=torch.float32)
        else:
            written[name] = weight
    save_file(written, folder / "model.safetensors", metadata={"format": "pt"})
    _change_config(folder, lambda content: content.update(quantization_config={
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [block, block],
    }))  # fmt: skip


def _change_config(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads((folder / "config.json").read_text())
    change(content)
    (folder / "config.json").write_text(json.dumps(content))
