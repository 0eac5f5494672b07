"""config.json → TextShape, for the forms that real configs take."""

from __future__ import annotations

from typing import Any

import pytest

from layerlight.core.inspecting.config_file import ConfigFile
from layerlight.core.inspecting.text_shape import text_shape, tied_embeddings
from layerlight.core.model import TextShape

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip
QWEN = {**LLAMA, "model_type": "qwen2", "max_position_embeddings": 32768, "sliding_window": 131072}
GEMMA3 = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
        "sliding_window": 1024, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    },
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
}  # fmt: skip


def shape(config: dict[str, Any]) -> TextShape:
    found = text_shape(ConfigFile(config))
    assert found is not None
    return found


def test_a_plain_config() -> None:
    assert shape(LLAMA) == TextShape("llama", 4096, 14336, 32, 32, 8, 128, 128256, 131072)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
             "vocab_size": 50257},
            (768, 3072, 12, 12, 12, 64, 50257, 1024),
        ),
        (
            {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32,
             "multi_query": True, "vocab_size": 65024},
            (4544, 18176, 32, 71, 1, 64, 65024, 2048),
        ),
        (
            {"model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128, "num_kv_heads": 8,
             "num_hidden_layers": 60, "new_decoder_architecture": True, "vocab_size": 65024},
            (8192, 32768, 60, 128, 8, 64, 65024, 2048),
        ),
        (
            {"model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880,
             "seq_length": 2048},
            (1024, 4096, 24, 16, 16, 64, 250880, None),
        ),
        (
            {"model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
             "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 151936},
            (2560, 9728, 36, 32, 8, 128, 151936, 32768),
        ),
        (
            {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "expansion_ratio": 4,
             "vocab_size": 50432, "max_seq_len": 2048, "attn_config": {"kv_n_heads": 8}},
            (4096, 16384, 32, 32, 8, 128, 50432, None),
        ),
        (
            {"model_type": "opt", "hidden_size": 512, "ffn_dim": 2048, "num_attention_heads": 16,
             "num_hidden_layers": 24, "vocab_size": 50272, "max_position_embeddings": 2048},
            (512, 2048, 24, 16, 16, 32, 50272, 2048),
        ),
        (GEMMA3, (2560, 10240, 34, 8, 4, 256, 262208, 131072)),
        (
            {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}, "vision_config": {}},
            (4096, 11008, 32, 32, 32, 128, 32064, 2048),
        ),
    ],
)  # fmt: skip
def test_names_and_defaults_of_many_types(config: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    found = shape(config)
    assert (
        found.hidden_size,
        found.intermediate_size,
        found.layers,
        found.heads,
        found.key_value_heads,
        found.head_dim,
        found.vocabulary,
        found.context_length,
    ) == expected


def windows(config: dict[str, Any]) -> str:
    """One letter a layer: s, c, l, f; empty when all attend to everything."""
    return "".join(kind[0] for kind in shape(config).layer_types)


@pytest.mark.parametrize(
    ("config", "pattern", "window"),
    [
        (LLAMA, "", None),
        ({**LLAMA, "model_type": "mistral", "sliding_window": None}, "", None),
        ({**LLAMA, "model_type": "mistral", "sliding_window": 4096, "num_hidden_layers": 3}, "sss", 4096),
        ({**LLAMA, "model_type": "mistral", "num_hidden_layers": 3}, "sss", 4096),
        (QWEN, "", None),
        ({**QWEN, "use_sliding_window": False}, "", None),
        ({**QWEN, "use_sliding_window": True, "max_window_layers": 2, "num_hidden_layers": 4}, "ffss", 131072),
        ({**LLAMA, "model_type": "gemma2", "sliding_window": 4096, "num_hidden_layers": 4}, "sfsf", 4096),
        (GEMMA3, "sssssf" * 5 + "ssss", 1024),
        ({**LLAMA, "model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window_pattern": 2}, "sfsf", 4096),
        ({**LLAMA, "model_type": "cohere2", "num_hidden_layers": 5}, "sssfs", 4096),
        ({**LLAMA, "model_type": "llama4_text", "num_hidden_layers": 5}, "cccfc", 8192),
        ({**LLAMA, "model_type": "qwen3_next", "num_hidden_layers": 5}, "lllfl", None),
        ({**LLAMA, "model_type": "phi3", "sliding_window": 2047, "num_hidden_layers": 2}, "ss", 2047),
        (
            {**LLAMA, "model_type": "gpt_oss", "sliding_window": 128, "num_hidden_layers": 2,
             "layer_types": ["sliding_attention", "full_attention"]},
            "sf",
            128,
        ),
        ({**LLAMA, "layer_types": ["full_attention"] * 32, "sliding_window": 7}, "", None),
    ],
)  # fmt: skip
def test_windows(config: dict[str, Any], pattern: str, window: int | None) -> None:
    assert (windows(config), shape(config).sliding_window) == (pattern, window)


def test_latent_attention_and_experts() -> None:
    found = shape(
        {**LLAMA, "model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": 64, "n_routed_experts": 256,
         "num_experts_per_tok": 8}
    )  # fmt: skip
    assert (found.latent_rank, found.latent_rope_dim, found.experts, found.experts_per_token) == (512, 64, 256, 8)


def test_a_state_space_model_has_no_cache_of_keys() -> None:
    found = shape({"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 2, "vocab_size": 50280})
    assert (found.key_value_heads, found.context_length) == (0, None)
    assert found.layer_types == ("linear_attention",) * 2


@pytest.mark.parametrize(
    ("rope", "length"),
    [
        (None, 32768),
        ({"type": "linear", "factor": 4.0}, 32768),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
        ({"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}, 163840),
        ({"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 4096}, 32768),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 32768),
        ({"type": "yarn", "factor": "much"}, 32768),
        ({"type": "yarn", "factor": float("inf"), "original_max_position_embeddings": 4096}, 32768),
    ],
)
def test_scaled_positions(rope: dict[str, Any] | None, length: int) -> None:
    for key in ("rope_scaling", "rope_parameters"):
        assert shape({**QWEN, key: rope}).context_length == length


@pytest.mark.parametrize(
    ("config", "tied"),
    [
        ({"model_type": "llama"}, False),
        ({"model_type": "llama", "tie_word_embeddings": True}, True),
        ({"model_type": "gemma2"}, True),
        ({"model_type": "gemma2", "tie_word_embeddings": False}, False),
        ({"model_type": "gemma3", "text_config": {"tie_word_embeddings": False}}, True),
        ({"model_type": "unheard_of"}, False),
    ],
)
def test_tied_embeddings(config: dict[str, Any], tied: bool) -> None:
    assert tied_embeddings(ConfigFile(config)) is tied


@pytest.mark.parametrize("config", [{}, {"model_type": "unheard_of"}, {"hidden_size": 8}, {"vocab_size": 9}])
def test_no_shape_where_none_is_described(config: dict[str, Any]) -> None:
    assert text_shape(ConfigFile(config)) is None
