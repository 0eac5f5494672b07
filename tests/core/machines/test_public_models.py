"""Models that exist as numbers only: what a config alone tells, and the public shapes that come with the program."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from layerlight.core.device import Budget
from layerlight.core.errors import BadRequest, LayerlightError, WrongKindOfModel
from layerlight.core.inspecting.config_model import model_from_config
from layerlight.core.inspecting.parameter_shapes import COMPUTED_TYPES
from layerlight.core.machines.machine_files import read_machine
from layerlight.core.machines.public_models import find_public_model, public_model, public_model_names, public_models
from layerlight.core.machines.resources import resource_folder
from layerlight.core.model import LayerKind, Model
from layerlight.core.placing import make_plan

NAMES = public_model_names()
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def stored_elements(model: Model) -> int:
    return sum(tensor.elements for layer in model.layers for tensor in layer.tensors)


# -- the public shapes -------------------------------------------------------------------------------------------------


def test_there_are_about_twenty_from_3_to_671_billion() -> None:
    sizes = [each.parameters for each in public_models()]
    assert len([size for size in sizes if size > 3e9]) >= 20
    assert sizes == sorted(sizes)
    assert 670e9 < sizes[-1] < 672e9
    assert len(set(NAMES)) == len(NAMES)
    types = {str(each.config["model_type"]) for each in public_models()}
    assert types >= COMPUTED_TYPES - {"gemma", "gemma3_text", "granite", "smollm3"}
    for each in public_models():
        assert each.source
        assert each.confidence in ("specified", "recalled")


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_counted_exactly(name: str) -> None:
    """A01: to the last parameter what transformers counts on an empty model, each tied weight once."""
    assert public_model(name).parameters == find_public_model(name).parameters


@pytest.mark.parametrize("name", NAMES)
def test_every_public_model_is_whole(name: str) -> None:
    model = public_model(name)
    assert model.shape is not None
    assert not model.problems
    assert model.kind.generates_text
    assert model.name == name
    assert model.architecture == find_public_model(name).config["architectures"][0]  # type: ignore[index]
    decoders = [layer for layer in model.layers if layer.kind is LayerKind.DECODER]
    assert [layer.index for layer in decoders] == list(range(model.shape.layers))
    assert [layer.kind for layer in model.layers].count(LayerKind.HEAD) == 1
    assert len({layer.name for layer in model.layers}) == len(model.layers)
    assert model.size == sum(tensor.size for layer in model.layers for tensor in layer.tensors)
    assert model.components[0].size == model.size
    if model.quantization is None:
        width = 4 if model.dtype == "float32" else 2
        assert model.size == width * model.parameters


@pytest.mark.parametrize(("name", "published"), [("gpt-oss-20b", 21_511_953_984), ("gpt-oss-120b", 120_412_337_472)])
def test_mxfp4_files_are_counted_as_they_are_stored(name: str, published: int) -> None:
    """The public count of these files takes a packed byte for two elements and counts the scales as well."""
    model = public_model(name)
    packed = sum(t.elements for each in model.layers for t in each.tensors if t.name.endswith("_blocks"))
    assert stored_elements(model) + packed == published
    assert model.dtype == "uint8"


def test_fp8_files_are_counted_as_they_are_stored() -> None:
    """The public count of DeepSeek-V3's files, 684,531,386,000, is this, and the layer that predicts a second token.

    That layer is a decoder layer with experts, embedding and head of its own, two norms, and a projection of two
    hidden states to one; routers hold a bias for each expert beside it, which the loaded model keeps as a buffer.
    """
    model = public_model("deepseek-v3")
    parts = ("model.layers.60", "model.layers.60.mlp.experts")
    layer = sum(tensor.elements for name in parts for tensor in model.layer(name).tensors)
    tables = sum(tensor.elements for name in ("model.embed_tokens", "lm_head") for tensor in model.layer(name).tensors)
    hidden = 7168
    projection = 2 * hidden * hidden
    extra = layer + tables + 3 * hidden + projection
    biases = (58 + 1) * 256
    assert stored_elements(model) + extra + biases == pytest.approx(684_531_386_000, abs=10_000)
    assert model.dtype == "float8_e4m3fn"
    assert model.quantization == "fp8"


@pytest.mark.parametrize("name", NAMES)
def test_every_public_model_can_be_planned(name: str) -> None:
    """C01: a plan is made without a file; whether it fits is the plan's answer, never an error."""
    plan = make_plan(public_model(name), read_machine("desktop-rtx3060-12gb"), Budget(context=512))
    assert sorted(each.layer for each in plan.placements) == sorted(layer.name for layer in plan.model.layers)
    assert plan.prediction.seconds_per_token > 0


@pytest.mark.parametrize("asked", ["qwen3-8b", "Qwen/Qwen3-8B", " QWEN3-8B "])
def test_a_model_is_found_by_its_name_and_its_repository(asked: str) -> None:
    assert find_public_model(asked).name == "qwen3-8b"


@pytest.mark.parametrize(
    ("asked", "near"), [("qwen3-7b", "qwen3-8b"), ("deepseek", "deepseek-v3"), ("llama", "llama-3.2-3b"), ("", "gpt2")]
)
def test_an_unknown_model_lists_near_ones(asked: str, near: str) -> None:
    with pytest.raises(BadRequest) as refused:
        find_public_model(asked)
    assert near in refused.value.hint


def test_the_data_holds_nothing_that_is_not_read() -> None:
    """A misspelt field would silently be left out."""
    data = json.loads((resource_folder("models") / "public_models.json").read_text("utf-8"))
    assert len(data) == len(NAMES)
    data[0]["colour"] = "red"
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(data, type=list[type(public_models()[0])])  # type: ignore[misc]


# -- a config alone ----------------------------------------------------------------------------------------------------


def test_a_config_becomes_layers_with_exact_tensors() -> None:
    model = model_from_config(LLAMA, "tiny", "/models/tiny")
    assert [layer.name for layer in model.layers] == [
        "model.embed_tokens",
        "model.rotary_emb",
        "model.layers.0",
        "model.layers.1",
        "model.layers.2",
        "model.norm",
        "lm_head",
    ]
    shapes = {tensor.name: tensor.shape for tensor in model.layer("model.layers.1").tensors}
    assert shapes["model.layers.1.self_attn.k_proj.weight"] == (32, 64)
    assert shapes["model.layers.1.mlp.down_proj.weight"] == (64, 96)
    assert model.folder == "/models/tiny"
    assert model.dtype == "bfloat16"
    assert model.tied == ()
    assert any("no weight file was read" in note for note in model.notes)


def test_a_tied_head_has_no_bytes_of_its_own() -> None:
    model = model_from_config({**LLAMA, "tie_word_embeddings": True}, "tiny")
    assert model.tied == (("model.embed_tokens", "lm_head"),)
    assert model.layer("lm_head").size == 0
    assert model.parameters == model_from_config(LLAMA, "tiny").parameters - 64 * 100


@pytest.mark.parametrize(
    ("said", "dtype", "noted"),
    [
        ({"torch_dtype": "float16"}, "float16", False),
        ({"torch_dtype": None, "dtype": "torch.float32"}, "float32", False),
        ({"torch_dtype": "int7"}, "bfloat16", True),
        ({"torch_dtype": None}, "bfloat16", True),
    ],
)
def test_the_dtype_is_the_configs_or_is_said_to_be_assumed(said: dict[str, Any], dtype: str, noted: bool) -> None:
    model = model_from_config({**LLAMA, **said}, "tiny")
    assert model.dtype == dtype
    assert any("assumed" in note for note in model.notes) is noted


@pytest.mark.parametrize(
    ("settings", "scales"),
    [({"weight_block_size": [32, 32]}, (2, 3)), ({}, (1,)), ({"weight_block_size": "?"}, (1,))],
)
def test_fp8_scales_follow_the_configs_blocks(settings: dict[str, Any], scales: tuple[int, ...]) -> None:
    model = model_from_config({**LLAMA, "quantization_config": {"quant_method": "fp8", **settings}}, "tiny")
    held = {tensor.name: tensor for tensor in model.layer("model.layers.0").tensors}
    assert held["model.layers.0.mlp.down_proj.weight"].dtype == "float8_e4m3fn"
    assert held["model.layers.0.mlp.down_proj.weight_scale_inv"].shape == scales
    assert held["model.layers.0.input_layernorm.weight"].dtype == "bfloat16"
    assert model.parameters == model_from_config(LLAMA, "tiny").parameters


def test_fp8_leaves_out_what_the_config_leaves_out() -> None:
    settings = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.1"]}
    model = model_from_config({**LLAMA, "quantization_config": settings}, "tiny")
    assert {tensor.dtype for tensor in model.layer("model.layers.1").tensors} == {"bfloat16"}
    assert {tensor.dtype for tensor in model.layer("model.layers.2").tensors} > {"float8_e4m3fn"}


MIXTRAL = {**LLAMA, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
DEEPSEEK = {**LLAMA, "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "n_routed_experts": 4}
GEMMA = {
    "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {**LLAMA, "model_type": "gemma3_text"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "kind", "said"),
    [
        ({}, WrongKindOfModel, "does not describe a language model"),
        ({"model_type": "llama", "hidden_size": "wide"}, None, ""),
        ({**LLAMA, "model_type": "bert", "architectures": ["BertModel"]}, WrongKindOfModel, "does not write"),
        ({**LLAMA, "model_type": "unheard-of"}, BadRequest, "“unheard-of”"),
        ({**LLAMA, "model_type": "bloom", "architectures": ["BloomForCausalLM"]}, BadRequest, "“bloom”"),
        (MIXTRAL, BadRequest, "how many experts"),
        (DEEPSEEK, BadRequest, "“kv_lora_rank”"),
        (GEMMA, BadRequest, "vision tower"),
        ({**GEMMA, "vision_config": {"hidden_size": 10**9}}, BadRequest, "can't be"),
        ({**GEMMA, "vision_config": {"patch_size": 0}}, BadRequest, "can't be"),
        ({**LLAMA, "num_hidden_layers": 10**9}, BadRequest, "1000000000 layers"),
        ({**LLAMA, "quantization_config": {"quant_method": "gptq"}}, BadRequest, "gptq"),
    ],
)
def test_a_config_that_does_not_tell_is_refused_in_words(
    config: dict[str, Any], kind: type[LayerlightError] | None, said: str
) -> None:
    """Nothing is guessed: what the config leaves open is named. What the library assumes by itself is filled in."""
    if kind is None:
        assert model_from_config(config, "defaults").parameters > 6e9
        return
    with pytest.raises(kind) as refused:
        model_from_config(config, "it")
    assert said in refused.value.message
    assert refused.value.hint
