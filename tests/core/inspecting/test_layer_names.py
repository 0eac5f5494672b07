"""Names in files → modules of the loaded model, for the forms in which files are published."""

from __future__ import annotations

import pytest

from layerlight.core.inspecting.layer_names import NameRules, kind_of, loaded_name, stack_of, unit_of
from layerlight.core.inspecting.layers import layers_of
from layerlight.core.model import LayerKind, Tensor

TEXT = "model.layers.0.self_attn.q_proj.weight"
NESTED = "model.language_model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("model_type", "nested", "name", "loaded"),
    [
        ("llama", False, TEXT, TEXT),
        ("llama", False, "layers.0.self_attn.q_proj.weight", TEXT),
        ("llama", False, "lm_head.weight", "lm_head.weight"),
        ("llama", False, "model.layers.0.self_attn.rotary_emb.inv_freq", None),
        ("llama", False, "model.layers.7.mlp.up_proj.weight", None),
        ("gpt2", False, "h.0.attn.c_attn.bias", "transformer.h.0.attn.c_attn.bias"),
        ("gpt2", False, "h.0.attn.bias", None),
        ("gpt2", False, "transformer.h.0.attn.masked_bias", None),
        ("gpt2", False, "transformer.wte.weight", "transformer.wte.weight"),
        ("bloom", False, "word_embeddings_layernorm.bias", "transformer.word_embeddings_layernorm.bias"),
        ("gpt_neox", False, "embed_out.weight", "lm_head.weight"),
        ("gpt_neox", False, "gpt_neox.layers.0.attention.bias", None),
        ("gpt_neox", False, "gpt_neox.layers.0.attention.dense.bias", "gpt_neox.layers.0.attention.dense.bias"),
        ("opt", False, "decoder.layers.0.fc1.weight", "model.decoder.layers.0.fc1.weight"),
        ("mamba", False, "layers.0.mixer.D", "backbone.layers.0.mixer.D"),
        ("deepseek_v3", False, "model.layers.61.eh_proj.weight", None),
        ("qwen3_next", False, "mtp.fc.weight", None),
        ("mixtral", False, "model.layers.0.block_sparse_moe.gate.weight", "model.layers.0.mlp.gate.weight"),
        (
            "mixtral", False, "model.layers.0.block_sparse_moe.experts.3.w1.weight",
            "model.layers.0.mlp.experts.3.w1.weight",
        ),
        (
            "granitemoe", False, "model.layers.0.block_sparse_moe.input_linear.weight",
            "model.layers.0.block_sparse_moe.experts.gate_up_proj",
        ),
        ("gemma3", True, "language_model.model.layers.0.self_attn.q_proj.weight", NESTED),
        ("gemma3", True, "language_model.lm_head.weight", "lm_head.weight"),
        ("gemma3", True, "vision_tower.post_layernorm.bias", "model.vision_tower.post_layernorm.bias"),
        ("gemma3", True, "multi_modal_projector.norm.weight", "model.multi_modal_projector.norm.weight"),
        ("gemma3", True, "vision_tower.encoder.layers.26.fc.bias", "model.vision_tower.encoder.layers.26.fc.bias"),
        ("qwen2_5_vl", True, TEXT, NESTED),
        ("qwen2_5_vl", True, NESTED, NESTED),
        ("qwen2_5_vl", True, "visual.blocks.0.norm1.weight", "model.visual.blocks.0.norm1.weight"),
        ("llava", True, "model.language_model.model.layers.0.self_attn.q_proj.weight", NESTED),
        ("llava_next", True, "image_newline", "model.image_newline"),
        ("idefics3", True, "model.text_model.layers.0.mlp.fc.weight", "model.text_model.layers.0.mlp.fc.weight"),
        ("llama4", True, "language_model.model.layers.0.self_attn.q_proj.weight", TEXT),
        ("llama4", True, "vision_model.layernorm_pre.weight", None),
        ("qwen3_5", True, NESTED, TEXT),
        ("qwen3_5", True, "model.visual.blocks.0.norm1.weight", None),
        ("unheard_of", False, "encoder.block.0.weight", "encoder.block.0.weight"),
    ],
)  # fmt: skip
def test_the_name_after_loading(model_type: str, nested: bool, name: str, loaded: str | None) -> None:
    assert loaded_name(name, NameRules(model_type, nested, layers=7)) == loaded


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("model.language_model.layers.11.mlp.experts.3.w1.weight", "model.language_model.layers.11"),
        ("model.language_model.embed_tokens.weight", "model.language_model.embed_tokens"),
        ("model.vision_tower.encoder.layers.26.fc.bias", "model.vision_tower"),
        ("model.projector.weight", "model.projector"),
        ("model.image_newline", "model.image_newline"),
        ("lm_head.weight", "lm_head"),
    ],
)
def test_the_module_that_moves_whole(name: str, unit: str) -> None:
    assert unit_of(name, "model.language_model.layers") == unit


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("model.layers.11.mlp.experts.3.w1.weight", "model.layers.11.mlp.experts"),
        ("model.layers.11.mlp.experts.gate_up_proj", "model.layers.11.mlp.experts"),
        ("model.layers.11.mlp.shared_experts.up_proj.weight", "model.layers.11"),
        ("model.layers.11.mlp.gate.weight", "model.layers.11"),
        ("model.embed_tokens.weight", "model.embed_tokens"),
    ],
)
def test_experts_are_a_module_beside_their_layer(name: str, unit: str) -> None:
    """Router and shared experts stay with the layer."""
    assert unit_of(name, "model.layers", "mlp.experts") == unit


def test_the_stack_is_the_language_models_list_not_a_towers() -> None:
    names = [f"model.vision_tower.layers.{index}.x" for index in range(40)]
    names += [f"model.language_model.layers.{index}.mlp.experts.{index * 9}.x" for index in range(4)]
    assert stack_of(names) == "model.language_model.layers"
    assert stack_of(["lm_head.weight"]) is None
    assert stack_of([f"model.layers.{'9' * 5000}.weight"]) is None


def test_no_name_is_the_beginning_of_another_modules() -> None:
    """A map that names `model.layers.1` must not be read as naming layers 10 to 19 too: whole modules, no parents."""
    tensors = [Tensor(f"model.layers.{index}.w", "float32", (1,), 4, "f") for index in range(25)]
    tensors += [Tensor(name, "float32", (1,), 4, "f") for name in ("model.embed_tokens.weight", "lm_head.weight")]
    layers, left_out = layers_of(tensors, NameRules("llama", layers=25))
    names = [layer.name for layer in layers]
    assert left_out == 0
    assert "model" not in names
    assert "" not in names
    assert not [(a, b) for a in names for b in names if b.startswith(a + ".")]
    assert [layer.index for layer in layers if layer.index is not None] == list(range(25))


@pytest.mark.parametrize(
    ("unit", "kind"),
    [
        ("model.vision_tower", LayerKind.TOWER),
        ("model.multi_modal_projector", LayerKind.TOWER),
        ("model.image_newline", LayerKind.TOWER),
        ("model.view_separator", LayerKind.TOWER),
        ("model.generation_head", LayerKind.TOWER),
        ("model.language_model.embed_tokens", LayerKind.EMBEDDING),
        ("model.language_model.norm", LayerKind.NORM),
        ("model.language_model.per_layer_model_projection", LayerKind.OTHER),
        ("model.language_model.per_layer_projection_norm", LayerKind.NORM),
        ("model.language_model.layers.1", LayerKind.DECODER),
        ("lm_head", LayerKind.HEAD),
    ],
)
def test_towers_are_what_stands_beside_the_language_model(unit: str, kind: LayerKind) -> None:
    """Gemma 4 projects in every pass over text: what lies in its language model is priced."""
    assert kind_of(unit, "model.language_model.layers", NameRules("gemma4", nested=True)) is kind
