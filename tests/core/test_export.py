"""Plans for elsewhere: maps that are read again, and refused where they do not belong."""

from __future__ import annotations

import ast
import json
from dataclasses import replace

import pytest

from layerlight.core.device import Budget
from layerlight.core.errors import BadRequest, MapMismatch
from layerlight.core.export import device_map, max_memory, plan_json, python_snippet
from layerlight.core.inspecting.config_model import model_from_config
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan, Wishes
from layerlight.core.planning.placement_map import read_map
from tests.core.models import accelerator, dense, disk, machine, ram

HERE = machine(accelerator(), accelerator("xpu:1", kind="xpu"), ram(), disk())
PLACES = (("model.layers.0", "cuda:0"), ("model.layers.1", "xpu:1"), ("model.layers.2", "disk"), ("lm_head", "cpu"))


def plan(quantization: str | None = None, pins: tuple[tuple[str, str], ...] = PLACES) -> Plan:
    wishes = Wishes(quantization=quantization, pins=() if quantization else pins)
    return make_plan(dense(), HERE, Budget(context=128), wishes)


def test_the_device_map_is_complete_and_speaks_as_transformers_does() -> None:
    found = device_map(plan())
    assert set(found) == {layer.name for layer in dense().layers}
    assert [found[name] for name, _ in PLACES] == [0, "xpu:1", "disk", "cpu"]


def test_a_saved_plan_is_read_again_and_gives_the_same_places() -> None:
    saved = plan()
    again = make_plan(dense(), HERE, saved.budget, Wishes(map=read_map(plan_json(saved), saved.model)))
    assert again.device_map() == saved.device_map()
    assert again.prediction.places == saved.prediction.places


def test_a_plan_saved_for_another_model_of_the_same_layers_is_refused_by_name() -> None:
    """A17."""
    other = replace(dense(hidden=128), name="other")
    with pytest.raises(MapMismatch, match="saved for dense, which has") as refused:
        read_map(plan_json(plan()), other)
    assert "lan again" in refused.value.hint
    assert read_map(json.dumps(plan().device_map()), other), "a plain map does not tell its model"


def test_memory_is_told_for_places_that_transformers_has_keys_for() -> None:
    found = max_memory(plan())
    assert found.keys() == {0, "cpu"}
    assert found[0] == plan().prediction.use("cuda:0").weights


@pytest.mark.parametrize("quantization", [None, "nf4", "fp4", "int8"])
def test_the_snippet_is_python_and_says_all_that_was_planned(quantization: str | None) -> None:
    found = plan(quantization)
    text = python_snippet(found)
    names = {
        target.id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name) and target.id.isupper()
    }
    assert names == {"FOLDER": "/models/dense", "DEVICE_MAP": device_map(found), "MAX_MEMORY": max_memory(found)}
    assert "dtype=torch.bfloat16" in text
    assert ("BitsAndBytesConfig(" in text) == (quantization is not None)
    assert quantization is None or ("load_in_8bit=True" if quantization == "int8" else repr(quantization)) in text


def with_experts(pins: tuple[tuple[str, str], ...]) -> Plan:
    config = {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 500,
        "max_position_embeddings": 256, "num_local_experts": 4, "num_experts_per_tok": 2, "torch_dtype": "bfloat16",
    }  # fmt: skip
    return make_plan(model_from_config(config, "mixtral"), HERE, Budget(context=128), Wishes(pins=pins))


def test_no_module_of_the_device_map_lies_in_another() -> None:
    """transformers would move what is inside along with what is around it."""
    together = device_map(with_experts((("*", "cuda:0"),)))
    assert together.keys() == {"model.embed_tokens", "model.rotary_emb", "model.norm", "lm_head"} | {
        f"model.layers.{index}" for index in range(2)
    }
    apart = device_map(with_experts((("*", "cuda:0"), ("model.layers.0.mlp.experts", "cpu"))))
    assert {name: place for name, place in apart.items() if "layers.0" in name} == {
        "model.layers.0.self_attn": 0, "model.layers.0.mlp.gate": 0, "model.layers.0.input_layernorm": 0,
        "model.layers.0.post_attention_layernorm": 0, "model.layers.0.mlp.experts": "cpu",
    }  # fmt: skip
    assert apart["model.layers.1"] == 0


def test_experts_apart_on_several_accelerators_are_not_exported_for_transformers() -> None:
    several = with_experts((("*.0", "cuda:0"), ("*.1*", "xpu:1"), ("model.layers.0.mlp.experts", "cpu")))
    with pytest.raises(BadRequest, match="several accelerators"):
        python_snippet(several)
    assert json.loads(plan_json(several))["device_map"]["model.layers.0.mlp.experts"] == "cpu"
