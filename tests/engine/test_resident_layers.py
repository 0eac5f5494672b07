"""Layers that are pages of their files become memory of the process: the same tokens, told, and never halfway."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from layerlight.core.machines.local_memory import ram
from layerlight.core.messages import LayerPlaced
from layerlight.engine import file_pages, resident_layers
from layerlight.engine.engine import TorchEngine
from layerlight.engine.file_pages import FileViews
from tests.engine.events import Events, ask, text_request
from tests.engine.tiny_models import request_for

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which memory shows which file"),
]
Folder = Callable[[str], Path]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading begins with the load's end."""
    monkeypatch.setattr(resident_layers, "LEISURE", 0.0)


def _load(engine: TorchEngine, folder: Path) -> None:
    engine.load(request_for(folder, dtype="bfloat16"), Events().job())


def _viewed(engine: TorchEngine) -> set[str]:
    """Names of weights that are views of files."""
    views = FileViews()
    assert engine.loaded is not None
    return {name for name, weight in engine.loaded.model.named_parameters() if views.at(weight.data_ptr())}


def _read(engine: TorchEngine) -> None:
    assert engine.resident is not None
    engine.resident.wait()


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mixtral"])
@pytest.mark.usefixtures("at_once")
def test_the_same_tokens_and_bytes(kind: str, engine: TorchEngine, model_folder: Folder) -> None:
    """Tied weights stay one; tables of embeddings, of which a pass needs few rows, stay as they are."""
    _load(engine, model_folder(kind))
    assert engine.loaded is not None
    viewed = _viewed(engine)
    before = {name: weight.clone() for name, weight in engine.loaded.model.state_dict().items()}
    tied = engine.loaded.model.get_output_embeddings().weight is engine.loaded.model.get_input_embeddings().weight
    _read(engine)
    assert _viewed(engine) == viewed
    first = ask(engine)
    assert not any("layers." in name or ".h." in name for name in _viewed(engine))
    assert ask(engine).tokens == first.tokens
    for name, weight in engine.loaded.model.state_dict().items():
        torch.testing.assert_close(weight, before[name], rtol=0, atol=0, msg=name)
    output, table = engine.loaded.model.get_output_embeddings(), engine.loaded.model.get_input_embeddings()
    assert (output.weight is table.weight) == tied


@pytest.mark.usefixtures("at_once")
def test_it_is_told_after_the_answer(engine: TorchEngine, model_folder: Folder) -> None:
    _load(engine, model_folder("llama"))
    _read(engine)
    events = Events()
    engine.generate(text_request(), events.job())
    told = {event.placed.layer: event.placed.mapped for event in events.of(LayerPlaced)}
    assert told
    assert not any(told.values())
    assert engine.loaded is not None
    assert {each.layer for each in engine.loaded.placed if not each.mapped} >= set(told)


@pytest.mark.usefixtures("at_once")
def test_without_room_they_stay(engine: TorchEngine, model_folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident_layers, "ram", lambda: replace(ram(), free=1024))
    _load(engine, model_folder("llama"))
    viewed = _viewed(engine)
    _read(engine)
    ask(engine)
    assert _viewed(engine) == viewed


@pytest.mark.usefixtures("at_once")
def test_beside_layers_on_disk_they_stay(engine: TorchEngine, model_folder: Folder) -> None:
    """Where there is no room for all layers in RAM there is none to hold one twice."""
    load = request_for(model_folder("llama"), lambda index, _: "disk" if index == 2 else "cpu", dtype="bfloat16")
    engine.load(load, Events().job())
    viewed = _viewed(engine)
    _read(engine)
    ask(engine)
    assert viewed
    assert _viewed(engine) == viewed


@pytest.mark.usefixtures("at_once")
def test_during_an_answer_one_is_read_after_the_other_is_taken(engine: TorchEngine, model_folder: Folder) -> None:
    """Nothing before the first token; then each waits for the pass that takes the one before it."""
    _load(engine, model_folder("llama"))
    assert engine.loaded is not None
    assert engine.resident is not None
    engine.resident.close()
    engine.resident = resident_layers.ResidentLayers(engine.loaded.model, engine.loaded.placed)
    with engine.resident.answering(engine.loaded.model) as begun:
        assert engine.resident.ready == 0
        begun()
        while any("layers." in name for name in _viewed(engine)):
            with torch.inference_mode():
                engine.loaded.model(torch.ones(1, 1, dtype=torch.long))
            assert engine.resident.ready <= 1
    engine.resident.wait()


def _replaced(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        copy = path.with_suffix(".new")
        copy.write_bytes(path.read_bytes())
        copy.replace(path)


def _gone(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.unlink()


@pytest.mark.parametrize("change", [_replaced, _gone])
@pytest.mark.usefixtures("at_once")
def test_another_file_of_that_name_is_not_read(
    change: Callable[[Path], None], engine: TorchEngine, tmp_path: Path, model_folder: Folder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What is viewed stays right whatever becomes of the name."""
    folder = tmp_path / "own"
    folder.mkdir()
    for path in model_folder("llama").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    written_views = file_pages.written_views

    def changed() -> frozenset[int]:
        change(folder)
        return written_views()

    monkeypatch.setattr(file_pages, "written_views", changed)
    _load(engine, folder)
    viewed = _viewed(engine)
    _read(engine)
    assert engine.loaded is not None
    assert engine.resident is not None
    with engine.resident.answering(engine.loaded.model), torch.inference_mode():
        engine.loaded.model(torch.ones(1, 1, dtype=torch.long))
    assert _viewed(engine) == viewed


@pytest.mark.usefixtures("at_once")
def test_what_was_written_to_a_view_is_kept(
    engine: TorchEngine, model_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in no file."""
    monkeypatch.setattr(resident_layers, "LEISURE", 60.0)
    _load(engine, model_folder("llama"))
    assert engine.loaded is not None
    assert engine.resident is not None
    norm = engine.loaded.model.model.norm.weight
    with torch.no_grad():
        norm[0] = 7.0
    engine.resident.close()
    monkeypatch.setattr(resident_layers, "LEISURE", 0.0)
    engine.resident = resident_layers.ResidentLayers(engine.loaded.model, engine.loaded.placed)
    _read(engine)
    ask(engine)
    assert norm[0] == 7.0


def test_unloading_does_not_wait_for_leisure(
    engine: TorchEngine, model_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is gone, and nothing holds the weights."""
    monkeypatch.setattr(resident_layers, "LEISURE", 3600.0)
    _load(engine, model_folder("llama"))
    resident = engine.resident
    assert resident is not None
    engine.unload(Events().job())
    resident.wait()
    assert engine.resident is None
    assert not FileViews().of({os.path.realpath(path) for path in model_folder("llama").iterdir()})
