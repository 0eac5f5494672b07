"""Entries of config.json that no model can have, and every config that transformers itself makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import CONFIG_MAPPING
from transformers.activations import ACT2CLS
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from layerlight.core.errors import BrokenModel
from layerlight.core.inspecting.config_file import ConfigFile
from layerlight.core.inspecting.config_values import ACTIVATIONS, ROPE_TYPES, implausible
from layerlight.core.inspection import inspect_folder, require_runnable
from layerlight.core.machines.public_models import public_models
from layerlight.core.messages import LoadRequest, LoadStarted
from layerlight.engine.engine import TorchEngine
from tests.engine.events import Events
from tests.engine.tiny_models import request_for, write_model

NAN = float("nan")
WRONG: list[tuple[str, Any]] = [
    *(
        (name, value)
        for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size")
        for value in (NAN, -1, 0, 2.5, "32", True, 2**62)
    ),
    ("hidden_size", None), ("num_hidden_layers", None), ("vocab_size", None),
    *(("max_position_embeddings", value) for value in (NAN, -1, 0, "long")),
    *(("head_dim", value) for value in (NAN, -1, 0, "8")),
    *(("intermediate_size", value) for value in (NAN, -1, "64", 2**62)),
    ("num_attention_heads", 3), ("num_key_value_heads", 3),
    *(("rms_norm_eps", value) for value in (NAN, float("inf"), -1, -1e-6, "small")),
    *((name, value) for name in ("eos_token_id", "bos_token_id") for value in ("</s>", [0, "</s>"], 1.5, True)),
    ("pad_token_id", "</s>"),
    ("hidden_act", "zzz"), ("hidden_act", 3),
    *(("rope_parameters", {"rope_type": "default", "rope_theta": 1e4} | wrong) for wrong in (
        {"rope_type": "zzz"}, {"rope_type": 3}, {"rope_theta": NAN}, {"rope_theta": -1.0}, {"rope_theta": "x"},
        {"rope_type": "linear", "factor": NAN},
    )),
    ("rope_parameters", "default"), ("rope_scaling", [1]),
    ("dtype", "zzz"), ("torch_dtype", "zzz"),
    ("attention_dropout", NAN), ("tie_word_embeddings", "yes"), ("text_config", 3), ("quantization_config", "nf4"),
]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LoadRequest]:
    folder = write_model(tmp_path_factory.mktemp("whole") / "model", "tied")
    return folder, request_for(folder)


@pytest.mark.parametrize(("field", "value"), WRONG, ids=str)
def test_a_value_that_can_not_be_is_named_at_the_scan_and_at_the_load(
    field: str, value: Any, whole: tuple[Path, LoadRequest], engine: TorchEngine
) -> None:
    """E08: no default stands in for it, nothing is loaded, and no library's words are shown."""
    folder, request = whole
    config = folder / "config.json"
    before = config.read_text()
    config.write_text(json.dumps(json.loads(before) | {field: value}))
    try:
        model = inspect_folder(folder)
        assert field in model.problems[0] or "does not come out even" in model.problems[0]
        assert model.shape is None
        assert model.context_length is None
        events = Events()
        for refuse in (lambda: require_runnable(model), lambda: engine.load(request, events.job())):
            with pytest.raises(BrokenModel, match=r"config\.json") as refused:
                refuse()
            assert "Error" not in str(refused.value)
        assert not events.of(LoadStarted)
    finally:
        config.write_text(before)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"head_dim": 7}, "head_dim"), ({"layer_types": "x"}, "layer_types"),
        ({"initializer_range": "x"}, "initializer_range"),
        ({"head_dim": None, "hidden_size": 33}, "hidden_size"), ({"mlp_bias": "x"}, "mlp_bias"),
    ],
)  # fmt: skip
def test_what_only_the_library_knows_to_be_wrong_is_named_by_its_entry(
    changes: dict[str, Any], named: str, whole: tuple[Path, LoadRequest], engine: TorchEngine
) -> None:
    folder, request = whole
    config = folder / "config.json"
    before = config.read_text()
    config.write_text(json.dumps(json.loads(before) | changes))
    try:
        with pytest.raises(BrokenModel, match=f"config.json.*{named}") as refused:
            engine.load(request, Events().job())
        assert "Error" not in str(refused.value)
    finally:
        config.write_text(before)


@pytest.mark.parametrize(("text", "sound"), [("[1]", False), ("3", False), ("{", True), ("", True), ("{}", True)])
def test_settings_that_are_none(text: str, sound: bool, whole: tuple[Path, LoadRequest], engine: TorchEngine) -> None:
    """generation_config.json of the wrong type stops a load in transformers; one that is no JSON is left out."""
    folder, request = whole
    file = folder / "generation_config.json"
    before = file.read_text()
    file.write_text(text)
    try:
        assert bool(inspect_folder(folder).problems) is not sound
        if sound:
            engine.load(request, Events().job())
            return
        with pytest.raises(BrokenModel, match=r"generation_config\.json holds no settings"):
            engine.load(request, Events().job())
    finally:
        file.write_text(before)


def _default_configs() -> list[str]:
    return sorted({*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES})


def test_no_config_of_the_library_is_called_implausible() -> None:
    """Every type that writes text, as transformers writes its defaults down."""
    called: dict[str, Any] = {}
    compared = 0
    for model_type in _default_configs():
        try:
            config: dict[str, Any] = json.loads(CONFIG_MAPPING[model_type]().to_json_string(use_diff=False))
        except Exception:  # noqa: BLE001 - a few can't be made without a part of theirs
            continue
        compared += 1
        if found := implausible(ConfigFile(config)):
            called[model_type] = found
    assert compared > 150
    assert called == {}


def test_no_public_model_is_called_implausible() -> None:
    assert {each.name: found for each in public_models() if (found := implausible(ConfigFile(each.config)))} == {}


def test_the_names_are_the_librarys() -> None:
    assert set(ACT2CLS) == ACTIVATIONS
    assert set(ROPE_INIT_FUNCTIONS) <= ROPE_TYPES


PACKED: dict[str, dict[str, Any]] = {
    "bitsandbytes": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "gptq": {"bits": 4, "group_size": 128},
    "awq": {"bits": 4},
    "fp8": {"weight_block_size": [128, 128]},
}


@pytest.mark.parametrize("method", sorted(PACKED))
def test_plain_weights_under_a_quantised_config_are_said_at_the_scan(
    method: str, whole: tuple[Path, LoadRequest], engine: TorchEngine
) -> None:
    """E09: not an assertion after loading; and without the entry the same files are whole."""
    folder, request = whole
    config = folder / "config.json"
    before = config.read_text()
    stored = {"quantization_config": {"quant_method": method, **PACKED[method]}}
    config.write_text(json.dumps(json.loads(before) | stored))
    try:
        model = inspect_folder(folder)
        assert any(f"quantised with {method}, but the files hold plain bfloat16" in each for each in model.problems)
        with pytest.raises(BrokenModel):
            require_runnable(model)
        if method == "bitsandbytes":
            with pytest.raises(BrokenModel, match="hold plain bfloat16"):
                engine.load(request, Events().job())
    finally:
        config.write_text(before)
    assert inspect_folder(folder).problems == ()
