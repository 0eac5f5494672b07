"""Tiny random models that also see, as transformers writes their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from tests.engine.tiny_models import byte_tokenizer

TEXT: dict[str, Any] = {
    "vocab_size": 258, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1,
    "initializer_range": 0.25,
}  # fmt: skip
TOWER = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 28,
    "patch_size": 14,
}  # fmt: skip
ROTARY = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}}
LLAMA = {"model_type": "llama", **TEXT}
CLIP = {"model_type": "clip_vision_model", **TOWER}

SEEING: dict[str, dict[str, Any]] = {
    "gemma3": {
        "text_config": {**TEXT, "head_dim": 8, "sliding_window": 8}, "vision_config": TOWER, "mm_tokens_per_image": 4,
    },
    "qwen2_5_vl": {
        "text_config": {**TEXT, **ROTARY},
        "vision_config": {
            "hidden_size": 32, "depth": 2, "num_heads": 4, "out_hidden_size": 32, "intermediate_size": 48,
        },
    },
    "llava": {"text_config": LLAMA, "vision_config": CLIP},
    "llava_next": {"text_config": LLAMA, "vision_config": CLIP},
    "idefics3": {"text_config": LLAMA, "vision_config": TOWER, "scale_factor": 2},
    "smolvlm": {"text_config": LLAMA, "vision_config": TOWER, "scale_factor": 2},
    "mllama": {
        "text_config": {
            **TEXT, "num_hidden_layers": 4, "cross_attention_layers": [1],
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        },
        "vision_config": {
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_global_layers": 1,
            "attention_heads": 4, "image_size": 28, "patch_size": 14, "vision_output_dim": 64,
            "intermediate_layers_indices": [0],
        },
    },
}  # fmt: skip
"""By type, with what is particular: windows, three rotary axes, an old tower, a parameter that stands alone, input sent
to where the first weight is, and a language model that loads alone from a file that holds more."""


READ_OUTSIDE: dict[str, dict[str, Any]] = {
    "gemma4": {
        "text_config": {
            **TEXT, "head_dim": 8, "global_head_dim": 8, "sliding_window": 8, "vocab_size_per_layer_input": 258,
            "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 0,
        },
    },
    "llama4": {
        "text_config": {
            **TEXT, "head_dim": 8, "intermediate_size_mlp": 64, "num_local_experts": 2, "interleave_moe_layer_step": 2,
            "attn_temperature_tuning": False,
        },
        "vision_config": {
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": 28, "patch_size": 14, "vision_output_dim": 32, "projector_input_dim": 32,
            "projector_output_dim": 32,
        },
    },
}  # fmt: skip
"""Types of which transformers looks at the table of embeddings outside its own pass."""


def write_seeing(folder: Path, kind: str, chat_template: str | None = None) -> Path:
    """A whole bf16 model folder of this kind, its towers in it."""
    torch.manual_seed(7)
    config = AutoConfig.for_model(kind, **{**SEEING, **READ_OUTSIDE}[kind])
    AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    byte_tokenizer(chat_template).save_pretrained(folder)
    return folder
