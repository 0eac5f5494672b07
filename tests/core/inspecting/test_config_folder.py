"""A folder that holds a config and no weights yet: planned to the byte, never run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layerlight import plan
from layerlight.core.errors import BrokenModel, LayerlightError, WrongKindOfModel
from layerlight.core.inspecting.config_folder import is_config_alone, require_plannable
from layerlight.core.inspecting.weight_files import INDEX
from layerlight.core.inspection import inspect_folder, require_runnable
from tests.core.models import machine
from tests.model_folders import llama_config, write_json, write_llama


def _emptied(folder: Path, index: int | None = None) -> Path:
    """The folder without its weights, and with an index that tells of so many bytes."""
    for file in folder.iterdir():
        if file.name != "config.json":
            file.unlink()
    if index is not None:
        write_json(folder / INDEX, {"metadata": {"total_size": index}, "weight_map": {"x": "a.safetensors"}})
    return folder


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("index", [None, 0, 10**12])
def test_its_plan_is_that_of_the_whole_folder(tmp_path: Path, tied: bool, index: int | None) -> None:
    folder = write_llama(tmp_path / "tiny", tie_word_embeddings=tied)
    whole = plan(folder, context=64, machine=machine())
    alone = plan(_emptied(folder, index), context=64, machine=machine())
    assert alone.device_map() == whole.device_map()
    assert alone.prediction.places == whole.prediction.places
    assert any("config.json" in note for note in alone.model.notes)
    assert any(INDEX in note for note in alone.model.notes) is (index == 10**12)


def test_it_is_told_from_a_whole_one_and_refused_to_run(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "tiny")
    assert not is_config_alone(inspect_folder(folder))
    found = inspect_folder(_emptied(folder))
    assert is_config_alone(found)
    with pytest.raises(BrokenModel, match="can't be run"):
        require_runnable(found)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("{", LayerlightError),
        ("[]", LayerlightError),
        (json.dumps({"model_type": "clip", "architectures": ["CLIPModel"]}), WrongKindOfModel),
        (json.dumps(llama_config(quantization_config={"quant_method": "gptq"})), LayerlightError),
        (json.dumps(llama_config(num_hidden_layers=10**9)), LayerlightError),
    ],
)
def test_a_config_that_tells_too_little_is_refused_in_words(
    tmp_path: Path, content: str, kind: type[LayerlightError]
) -> None:
    (tmp_path / "config.json").write_text(content, "utf-8")
    with pytest.raises(kind):
        require_plannable(inspect_folder(tmp_path))


def test_weights_that_are_broken_are_not_replaced_by_the_config(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "tiny")
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(BrokenModel):
        require_plannable(inspect_folder(folder))
