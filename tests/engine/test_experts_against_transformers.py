"""Experts are a layer of their own where transformers makes them a module of their own, by the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from layerlight.core.inspecting.expert_modules import EXPERT_TYPES, experts_module
from layerlight.core.inspection import inspect_folder
from layerlight.core.model import LayerKind
from tests.engine.model_kinds import EXPERTS, HEADS, LATENT, LOCAL_EXPERTS
from tests.engine.test_inspection_against_transformers import covering

SAVED: dict[str, dict[str, Any]] = {
    "mixtral": LOCAL_EXPERTS,
    "phimoe": LOCAL_EXPERTS,
    "olmoe": EXPERTS,
    "gpt_oss": {**HEADS, **LOCAL_EXPERTS},
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 96},
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "glm4_moe": {**LATENT, "head_dim": 16, "num_key_value_heads": 2},
    "dots1": {**LATENT, "num_key_value_heads": 2, "head_dim": 16},
    "ernie4_5_moe": {**HEADS, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 64},
    "granitemoe": LOCAL_EXPERTS,
    "jamba": {**EXPERTS, "attn_layer_period": 4, "attn_layer_offset": 1, "mamba_d_state": 8, "mamba_dt_rank": 8},
    "llama4_text": {**HEADS, **LOCAL_EXPERTS, "intermediate_size_mlp": 352, "num_experts_per_tok": 1},
}  # fmt: skip


def empty(model_type: str, **settings: Any) -> torch.nn.Module:
    """The model on the meta device; of types without settings their own default, with few layers."""
    config = transformers.AutoConfig.for_model(model_type, **settings)
    text = config.get_text_config()
    if not settings:
        text.num_hidden_layers = min(6, text.num_hidden_layers)
        if getattr(text, "layer_types", None):
            text.layer_types = list(text.layer_types)[: text.num_hidden_layers]
    causal = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    auto = transformers.AutoModelForCausalLM if model_type in causal else transformers.AutoModelForImageTextToText
    with torch.device("meta"):
        return auto.from_config(config)


@pytest.mark.parametrize("model_type", sorted(EXPERT_TYPES))
def test_the_module_is_the_librarys_and_nothing_lies_between_it_and_its_layer(model_type: str) -> None:
    model = empty(model_type, **SAVED.get(model_type, {}))
    path = experts_module(model_type)
    experts = [name for name, _ in model.named_modules() if name.endswith(f".{path}")]
    assert experts
    for name in experts:
        layer = name.removesuffix(f".{path}")
        assert layer.rpartition(".")[2].isdigit()
        way = [layer, *(f"{layer}.{path}"[:end] for end in _dots(f"{layer}.{path}") if end > len(layer))]
        for outer in way:
            module = model.get_submodule(outer)
            assert not [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)], outer


def _dots(name: str) -> list[int]:
    return [at for at, character in enumerate(name) if character == "."]


@pytest.mark.parametrize("kind", sorted(SAVED))
def test_a_saved_model_is_read_as_layers_and_their_experts(kind: str, tmp_path: Path) -> None:
    """Names in files differ from those in memory, and each expert may be a tensor; bytes are counted where they go."""
    config = transformers.AutoConfig.for_model(kind, **SAVED[kind] | {"hidden_size": 32, "num_hidden_layers": 4})
    live = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    live.save_pretrained(tmp_path)
    model = inspect_folder(tmp_path)
    sizes = dict.fromkeys((layer.name for layer in model.layers), 0)
    for name, tensor in live.state_dict().items():
        sizes[covering(list(sizes), name)[0]] += tensor.nbytes
    tied = {name for group in model.tied for name in group}
    assert {each.name: each.size for each in model.layers if each.name not in tied} == {
        name: size for name, size in sizes.items() if name not in tied
    }
    apart = [each for each in model.layers if each.kind is LayerKind.EXPERTS]
    modules = [name for name, _ in live.named_modules() if name.endswith(f".{experts_module(kind)}")]
    assert [each.name for each in apart] == modules
    for each in apart:
        at = model.layers.index(each)
        assert model.layers[at - 1].index == each.index
        assert model.layers[at - 1].kind is LayerKind.DECODER
        assert not [tensor for tensor in each.tensors if "shared" in tensor.name or "router" in tensor.name]
