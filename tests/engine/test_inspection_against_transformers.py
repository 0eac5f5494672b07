"""Inspection against transformers itself: names cover the loaded model exactly once, bytes are the loaded model's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layerlight.core.inspecting.config_defaults import config_defaults, model_types
from layerlight.core.inspecting.pickle_header import read_pickle_header
from layerlight.core.inspecting.text_shape import text_shape
from layerlight.core.inspection import inspect_folder
from layerlight.core.model import LayerKind, Model
from tests.model_folders import llama_shapes, write_llama, write_pickle, write_tokenizer

pytestmark = pytest.mark.engine

TINY = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GPT = {
    "vocab_size": 64,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16, "num_local_experts": 4, "num_experts": 4}
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
PLAIN = {"hidden_size": 32, "num_hidden_layers": 3, "vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2}

CAUSAL: dict[str, dict[str, Any]] = {
    "llama": TINY,
    "llama tied": {**TINY, "tie_word_embeddings": True},
    "mistral": {**TINY, "head_dim": 8, "sliding_window": 16},
    "qwen2": {**TINY, "tie_word_embeddings": True},
    "qwen3": {**TINY, "head_dim": 16},
    "qwen3_moe": {**TINY, **EXPERTS, "head_dim": 8},
    "mixtral": {**TINY, **EXPERTS},
    "gemma2": {**TINY, "head_dim": 16},
    "gemma3_text": {**TINY, "head_dim": 16, "sliding_window": 16},
    "phi3": TINY,
    "phi": TINY,
    "gpt2": GPT,
    "gptj": {**GPT, "rotary_dim": 4, "n_inner": 48},
    "gpt_bigcode": GPT,
    "gpt_neox": {**TINY, "tie_word_embeddings": False},
    "falcon": {**TINY, "new_decoder_architecture": False, "alibi": False},
    "bloom": {"vocab_size": 64, "hidden_size": 32, "n_layer": 3, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2},
    "opt": {**TINY, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "mamba": {**PLAIN, "state_size": 4, "pad_token_id": 0},
    "gpt_oss": {**TINY, **EXPERTS, "head_dim": 8, "sliding_window": 16},
    "granitemoehybrid": {
        **TINY, **EXPERTS, "layer_types": ["mamba", "attention", "mamba"], "mamba_n_heads": 4, "mamba_d_head": 16,
        "mamba_n_groups": 1, "shared_intermediate_size": 16, "position_embedding_type": "rope",
    },
    "deepseek_v3": {
        **TINY, **EXPERTS, "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
        "n_shared_experts": 1, "first_k_dense_replace": 1,
    },
    "olmo2": TINY,
    "stablelm": TINY,
    "smollm3": {**TINY, "pad_token_id": 0},
    "lfm2": {**TINY, "layer_types": ["conv", "full_attention", "conv"]},
}  # fmt: skip

SEEING: dict[str, dict[str, Any]] = {
    "gemma3": {
        "text_config": {**TINY, "head_dim": 8, "sliding_window": 16},
        "vision_config": {**VISION, "image_size": 28, "patch_size": 14},
        "mm_tokens_per_image": 4,
    },
    "qwen2_5_vl": {
        "text_config": {
            **TINY, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
        },
        "vision_config": {
            "hidden_size": 32, "depth": 2, "num_heads": 4, "out_hidden_size": 32, "intermediate_size": 48,
        },
    },
    "llava": {
        "text_config": {"model_type": "llama", **TINY},
        "vision_config": {"model_type": "clip_vision_model", **VISION, "image_size": 28, "patch_size": 14},
    },
    "idefics3": {
        "text_config": {"model_type": "llama", **TINY},
        "vision_config": {**VISION, "image_size": 28, "patch_size": 14},
        "scale_factor": 2,
    },
}  # fmt: skip


def build(kind: str, settings: dict[str, Any]) -> Any:
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(kind.split()[0], **settings)
    auto = transformers.AutoModelForCausalLM
    if config_defaults(config.model_type).use == "vision":  # type: ignore[union-attr]
        auto = transformers.AutoModelForImageTextToText
    torch.manual_seed(0)
    return auto.from_config(config, dtype=torch.bfloat16)


@pytest.fixture(scope="module", params=[*CAUSAL, *SEEING])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Path]:
    kind = request.param
    model = build(kind, {**CAUSAL, **SEEING}[kind])
    folder = tmp_path_factory.mktemp("inspected") / kind.replace(" ", "-")
    model.save_pretrained(folder, max_shard_size="60KB")
    write_tokenizer(folder, chat_template=True)
    return kind, model, folder


def covering(names: list[str], parameter: str) -> list[str]:
    """The layers that hold a parameter; one that lies inside another, as experts do, in place of that."""
    found = [name for name in names if parameter == name or parameter.startswith(name + ".")]
    return [name for name in found if not any(other.startswith(name + ".") for other in found)]


def test_layers_cover_the_loaded_model_once(case: tuple[str, Any, Path]) -> None:
    _, live, folder = case
    model = inspect_folder(folder)
    assert model.problems == ()
    names = [layer.name for layer in model.layers]
    assert len(set(names)) == len(names)
    held = [*dict(live.named_parameters(remove_duplicate=False)), *dict(live.named_buffers(remove_duplicate=False))]
    wrong = {name: covering(names, name) for name in held if len(covering(names, name)) != 1}
    assert wrong == {}
    modules = dict(live.named_modules())
    assert [name for name in names if name not in modules and name not in held] == []


def test_layer_bytes_are_the_loaded_models(case: tuple[str, Any, Path]) -> None:
    """Parameters and persistent buffers in the files' dtype, tied weights once."""
    _, live, folder = case
    model = inspect_folder(folder)
    persistent = live.state_dict(keep_vars=True)
    sizes = dict.fromkeys((layer.name for layer in model.layers), 0)
    seen: set[int] = set()
    for name, tensor in persistent.items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            sizes[covering(list(sizes), name)[0]] += tensor.nbytes
    assert {layer.name: layer.size for layer in model.layers} == sizes
    assert model.size == sum(sizes.values())
    assert model.dtype == "bfloat16"


def test_tied_weights_are_the_loaded_models(case: tuple[str, Any, Path]) -> None:
    _, live, folder = case
    model = inspect_folder(folder)
    names = [layer.name for layer in model.layers]
    tied = {
        frozenset((covering(names, target)[0], covering(names, source)[0]))
        for target, source in live.all_tied_weights_keys.items()
    }
    assert {frozenset(group) for group in model.tied} == tied


def test_order_and_shape(case: tuple[str, Any, Path]) -> None:
    kind, live, folder = case
    model = inspect_folder(folder)
    text = live.config.get_text_config(decoder=True)
    assert [layer.index for layer in model.layers if layer.kind is LayerKind.DECODER] == list(range(3))
    assert model.layers[-1].kind is LayerKind.HEAD
    shape = model.shape
    assert shape is not None
    assert (shape.layers, shape.hidden_size, shape.vocabulary) == (3, 32, text.vocab_size)
    assert check_cache(kind, live, model) == []


def check_cache(kind: str, live: Any, model: Model) -> list[str]:
    """Layer types and windows, as transformers' own cache takes them; what keeps a constant state is one type here."""
    from transformers.cache_utils import get_layer_types_and_kwargs

    shape = model.shape
    assert shape is not None
    types, arguments = get_layer_types_and_kwargs(live.config.get_text_config(decoder=True))
    ours = [*shape.layer_types] or ["full_attention"] * shape.layers
    wrong = []
    for index, (mine, theirs, argument) in enumerate(zip(ours, types, arguments, strict=True)):
        if mine.replace("mamba", "linear_attention") != ("linear_attention" if theirs == "conv" else theirs):
            wrong.append(f"layer {index} is {theirs}, not {mine}")
        if theirs == "sliding_attention" and argument["sliding_window"] != shape.sliding_window:
            wrong.append(f"window of layer {index} is {argument['sliding_window']}, not {shape.sliding_window}")
    return wrong


def test_defaults_are_those_of_the_installed_transformers() -> None:
    """The table of model types that core carries, so that it never imports the library."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    )

    causal = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - {"gemma4_assistant"}
    assert model_types("causal") == causal
    assert model_types("vision") == set(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES) - causal


@pytest.mark.parametrize("model_type", ["llama", "mistral", "gemma2", "gemma3_text", "qwen3", "gpt2", "falcon", "opt"])
def test_a_config_without_figures_takes_its_types_defaults(model_type: str) -> None:
    import transformers

    from layerlight.core.inspecting.config_file import ConfigFile

    live = transformers.AutoConfig.for_model(model_type)
    shape = text_shape(ConfigFile({"model_type": model_type}))
    assert shape is not None
    assert shape.hidden_size == live.hidden_size
    assert shape.layers == live.num_hidden_layers
    assert shape.heads == live.num_attention_heads
    assert shape.vocabulary == live.vocab_size
    assert shape.context_length == live.max_position_embeddings
    assert shape.head_dim == getattr(live, "head_dim", None) or live.hidden_size // live.num_attention_heads


def test_a_folder_written_without_torch_loads_with_the_map_of_its_layers(tmp_path: Path) -> None:
    """Disjoint, complete names: half of the layers on disk, none misread, no weight left without a place."""
    import torch
    import transformers

    folder = write_llama(tmp_path / "tiny", shards=3, num_hidden_layers=12)
    layers = inspect_folder(folder).layers
    device_map = {layer.name: "disk" if (layer.index or 0) % 2 else "cpu" for layer in layers}
    load = transformers.AutoModelForCausalLM.from_pretrained
    split, problems = load(folder, dtype=torch.float32, device_map=device_map, output_loading_info=True)
    assert not any(problems.values())
    whole = load(folder, dtype=torch.float32)
    ids = torch.arange(8)[None]
    assert torch.equal(split(ids).logits, whole(ids).logits)
    assert transformers.AutoTokenizer.from_pretrained(folder).encode("w5 w7") == [9, 11]


@pytest.mark.parametrize("zipped", [True, False])
def test_pickles_that_torch_wrote(tmp_path: Path, zipped: bool) -> None:
    """B01's `.bin`, today's form and the old one, tied weights sharing a storage."""
    import torch

    path = tmp_path / "pytorch_model.bin"
    shared = torch.nn.Parameter(torch.randn(8, 4, dtype=torch.bfloat16))
    state = {"a": shared, "b": shared, "c": torch.zeros(3, dtype=torch.int64), "d": torch.randn(6, 2)[:, :1]}
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    found = {each.tensor.name: each for each in read_pickle_header(path)}
    assert {name: each.tensor.shape for name, each in found.items()} == {
        name: tuple(t.shape) for name, t in state.items()
    }
    assert {name: each.tensor.size for name, each in found.items()} == {name: t.nbytes for name, t in state.items()}
    assert [each.tensor.dtype for each in found.values()] == ["bfloat16", "bfloat16", "int64", "float32"]
    assert found["a"].storage == found["b"].storage != found["c"].storage


def test_a_pickle_written_without_torch_is_one_that_torch_reads(tmp_path: Path) -> None:
    import torch

    shapes = llama_shapes()
    path = write_pickle(tmp_path / "pytorch_model.bin", shapes)
    state = torch.load(path, weights_only=True, mmap=True)
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == shapes
    assert all(tensor.isfinite().all() for tensor in state.values())
