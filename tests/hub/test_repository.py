"""hub:org/name: only a config and headers are read, and each way of not getting them is one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layerlight.cli import main
from layerlight.core.device import Budget
from layerlight.core.errors import BadRequest, BrokenModel, DownloadFailed, LayerlightError, NotAModel
from layerlight.core.inspection import inspect_folder
from layerlight.core.placing import make_plan
from layerlight.hub import repository
from layerlight.hub.repository import hub_model
from layerlight.ui import inspector
from tests.core.models import machine
from tests.hub.conftest import FakeHub
from tests.model_folders import write_llama, write_pickle, write_safetensors

NAME = "tiny/llama"


def _upload(hub: FakeHub, folder: Path, name: str = NAME) -> None:
    for file in folder.iterdir():
        hub.files[f"{name}/{file.name}"] = file.read_bytes()


@pytest.mark.parametrize("shards", [0, 3])
@pytest.mark.parametrize("tied", [False, True])
def test_the_model_is_the_one_that_a_download_would_hold(
    fake_hub: FakeHub, tmp_path: Path, shards: int, tied: bool
) -> None:
    folder = write_llama(tmp_path / "tiny", shards=shards, tie_word_embeddings=tied)
    _upload(fake_hub, folder)
    model, config = hub_model(NAME)
    there = inspect_folder(folder)
    assert config == json.loads((folder / "config.json").read_text("utf-8"))
    assert (model.name, model.folder, model.problems) == (NAME, "", ())
    assert (model.layers, model.tied, model.shape, model.dtype) == (there.layers, there.tied, there.shape, there.dtype)
    plans = [make_plan(each, machine(), Budget(context=64)) for each in (model, there)]
    assert plans[0].prediction == plans[1].prediction
    assert {each.rpartition("/")[2].rpartition(".")[2] for each in fake_hub.asked} <= {"json", "safetensors"}


def test_the_window_gets_it_with_its_config_and_with_why_it_can_not_be_loaded(
    fake_hub: FakeHub, tmp_path: Path
) -> None:
    folder = write_llama(tmp_path / "tiny")
    _upload(fake_hub, folder)
    found = inspector.hub_model(NAME)
    assert (found.model.name, found.identity) == (NAME, "")
    assert json.loads(found.config or "") == json.loads((folder / "config.json").read_text("utf-8"))
    assert NAME in found.unloadable
    config = json.loads((folder / "config.json").read_text("utf-8"))
    fake_hub.files[f"{NAME}/config.json"] = json.dumps(
        {**config, "model_type": "bert", "architectures": ["BertModel"]}
    ).encode()
    with pytest.raises(LayerlightError):
        inspector.hub_model(NAME)


def test_no_weight_is_downloaded(fake_hub: FakeHub, tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "wide", vocab_size=4096, hidden_size=64, intermediate_size=96)
    _upload(fake_hub, folder)
    hub_model(NAME)
    assert fake_hub.sent < 110_000 < (folder / "model.safetensors").stat().st_size


def test_without_safetensors_files_the_config_alone_is_planned(fake_hub: FakeHub, tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "tiny")
    sizes = [layer.size for layer in inspect_folder(folder).layers]
    (folder / "model.safetensors").unlink()
    write_pickle(folder / "pytorch_model.bin", {"x.weight": (2, 2)})
    _upload(fake_hub, folder)
    model, _ = hub_model(NAME)
    assert [layer.size for layer in model.layers] == sizes
    assert any("no safetensors files" in note for note in model.notes)
    assert not any("pytorch_model.bin" in each for each in fake_hub.asked)


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (403, "GatedRepo", DownloadFailed, "gated"),
        (401, "GatedRepo", DownloadFailed, "gated"),
        (404, "RepoNotFound", NotAModel, "no model"),
        (401, "", NotAModel, "no model"),
        (404, "EntryNotFound", NotAModel, "lacks"),
        (429, "", DownloadFailed, "429"),
        (503, "", DownloadFailed, "503"),
    ],
)
def test_each_refusal_is_told_apart(
    fake_hub: FakeHub, status: int, code: str, kind: type[LayerlightError], words: str
) -> None:
    fake_hub.refusals[NAME] = (status, code)
    with pytest.raises(kind, match=words) as found:
        hub_model(NAME)
    assert NAME in found.value.message
    assert "\n" not in str(found.value)
    assert len(fake_hub.asked) == 1, "a refusal is final: asking again only lets a person wait"


@pytest.mark.parametrize("name", ["", "a/b/c", "../x", "a b", "org/na--me", "https://example.org/x", "org/"])
def test_what_is_no_name_is_refused_without_asking(fake_hub: FakeHub, name: str) -> None:
    with pytest.raises(BadRequest, match="no name on the Hub"):
        hub_model(name)
    assert fake_hub.asked == []


@pytest.mark.usefixtures("no_route")
def test_without_a_route_it_is_one_sentence_and_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with pytest.raises(DownloadFailed, match="can't be reached"):
        hub_model(NAME)
    assert waits == []


def test_a_hub_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    asked = threading.Event()
    monkeypatch.setattr(repository, "FIRST_ANSWER", 0.01)
    monkeypatch.setattr(repository, "_file", lambda *words: asked.wait())
    try:
        with pytest.raises(DownloadFailed, match="can't be reached"):
            hub_model(NAME)
    finally:
        asked.set()


def test_offline_by_the_person_s_own_wish_is_said_so(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadFailed, match="HF_HUB_OFFLINE"):
        hub_model(NAME)
    assert fake_hub.asked == []


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", b"{"),
        ("config.json", b""),
        ("model.safetensors", b"\x08\0\0\0\0\0\0\0not json"),
        ("model.safetensors", b""),
        ("model.safetensors", b"\xff" * 64),
        (
            "model.safetensors",
            b'\x4a\0\0\0\0\0\0\0{"lm_head.weight": {"dtype": "F16", "shape": [9, 9], "data_offsets": [0, 9]}}',
        ),
        ("model.safetensors.index.json", b'{"weight_map": {}}'),
        ("model.safetensors.index.json", b'{"weight_map": {"a": 1}}'),
        ("model.safetensors.index.json", b"[1]"),
    ],
)
def test_files_that_contradict_themselves_are_broken(
    fake_hub: FakeHub, tmp_path: Path, file: str, content: bytes
) -> None:
    _upload(fake_hub, write_llama(tmp_path / "tiny"))
    if "index" in file:
        del fake_hub.files[f"{NAME}/model.safetensors"]
    fake_hub.files[f"{NAME}/{file}"] = content
    with pytest.raises(BrokenModel):
        hub_model(NAME)


def test_a_file_that_the_index_names_and_the_hub_lacks_is_named(fake_hub: FakeHub, tmp_path: Path) -> None:
    _upload(fake_hub, write_llama(tmp_path / "tiny", shards=3))
    del fake_hub.files[f"{NAME}/model-00002-of-00003.safetensors"]
    with pytest.raises(NotAModel, match="model-00002-of-00003"):
        hub_model(NAME)


def test_a_config_without_end_is_given_up(fake_hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "LARGEST_CONFIG", 10)
    _upload(fake_hub, write_llama(tmp_path / "tiny"))
    with pytest.raises(BrokenModel, match="far too large"):
        hub_model(NAME)


def test_layers_that_no_file_holds_are_a_problem(fake_hub: FakeHub, tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "tiny")
    write_safetensors(folder / "model.safetensors", {"model.layers.0.mlp.up_proj.weight": (48, 32)})
    _upload(fake_hub, folder)
    model, _ = hub_model(NAME)
    assert model.problems


def test_the_terminal_plans_it(fake_hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _upload(fake_hub, write_llama(tmp_path / "tiny"))
    assert main(["plan", f"hub:{NAME}", "--machine", "laptop-cpu-16gb", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["source"], found["model"]["name"], found["fits"]) == ("hub", NAME, True)
    assert main(["plan", f"hub:{NAME}", "--machine", "laptop-cpu-16gb", "--export", "python"]) == 0
    assert f"FOLDER = {NAME!r}" in capsys.readouterr().out


@pytest.mark.usefixtures("no_route")
def test_the_terminal_says_one_sentence_without_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", f"hub:{NAME}"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[0].startswith("The download failed: The Hub can't be reached")
    assert "Traceback" not in said.err


def test_a_model_on_the_hub_can_not_be_run(fake_hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"hub:{NAME}", "--prompt", "x"]) == 2
    assert "planned, not run" in capsys.readouterr().err
    assert fake_hub.asked == []


def test_asking_imports_neither_torch_nor_qt() -> None:
    code = (
        "import sys, layerlight.hub.repository\n"
        "assert not {'torch', 'PySide6', 'transformers'} & set(sys.modules), 'too much'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
