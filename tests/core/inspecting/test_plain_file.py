"""Plain files: pipes, devices, loops and hostile JSON in a model folder end in words, at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from layerlight.core.errors import NotAModel
from layerlight.core.inspecting.plain_file import read_json, read_plain
from layerlight.core.inspection import inspect_folder
from tests.model_folders import write_index, write_json, write_llama

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps its pipes and devices out of folders")

OPENED_BY_NAME = (
    "config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "tokenizer.model", "merges.txt",
    "adapter_config.json", "model_index.json", "m.gguf",
)  # fmt: skip
DEEP = "[" * 100_000 + "]" * 100_000


@posix
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", OPENED_BY_NAME)
def test_a_pipe_or_a_device_in_place_of_a_file_is_named_and_never_read(tmp_path: Path, name: str, kind: str) -> None:
    folder = write_llama(tmp_path / "tiny")
    (folder / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    with pytest.raises(NotAModel, match=name):
        inspect_folder(folder)


@posix
def test_a_pipe_that_no_loader_opens_does_no_harm(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "tiny")
    os.mkfifo(folder / "notes.pipe")
    assert inspect_folder(folder).problems == ()


@posix
def test_a_pipe_in_a_pipelines_part_or_as_a_caches_reference_is_not_read(tmp_path: Path) -> None:
    write_json(tmp_path / "model_index.json", {"unet": ["diffusers", "UNet2DConditionModel"]})
    (tmp_path / "unet").mkdir()
    os.mkfifo(tmp_path / "unet" / "model.safetensors")
    assert "not a plain file" in inspect_folder(tmp_path).problems[0]
    cache = tmp_path / "models--a--b"
    write_llama(cache / "snapshots" / "1")
    (cache / "refs").mkdir()
    os.mkfifo(cache / "refs" / "main")
    assert inspect_folder(cache).name == "a/b"


@posix
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "model.safetensors.index.json"])
def test_a_link_to_itself_ends_in_words(tmp_path: Path, name: str) -> None:
    folder = write_llama(tmp_path / "tiny")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(name)
    model = inspect_folder(folder)
    assert model.problems or "index.json" in model.notes[0]


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors", "config.json"])
def test_a_folder_in_place_of_a_file_is_a_problem(tmp_path: Path, name: str) -> None:
    folder = write_llama(tmp_path / "tiny")
    (folder / name).unlink()
    (folder / name).mkdir()
    assert inspect_folder(folder).problems


@pytest.mark.parametrize("name", ["config.json", "adapter_config.json", "model_index.json", "tokenizer_config.json"])
def test_json_nested_without_end_is_no_crash(tmp_path: Path, name: str) -> None:
    folder = tmp_path if name.startswith(("adapter", "model_index")) else write_llama(tmp_path / "tiny")
    (folder / name).write_text(DEEP)
    assert inspect_folder(folder).problems or name == "tokenizer_config.json"


@pytest.mark.parametrize("needed", [True, False])
def test_an_index_nested_without_end_is_said_where_it_matters(tmp_path: Path, needed: bool) -> None:
    folder = write_llama(tmp_path / "tiny")
    (folder / "model.safetensors.index.json").write_text(DEEP)
    if needed:
        (folder / "model.safetensors").unlink()
    model = inspect_folder(folder)
    assert ("nested too deeply" in model.problems[0]) if needed else ("not needed" in model.notes[0])


@pytest.mark.parametrize("part", ["..", "/etc", "../..", "a/b", "x" * 5000, "a\0b", "."])
def test_a_pipelines_part_stays_inside_its_folder(tmp_path: Path, part: str) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    write_json(tmp_path / "model_index.json", {part: ["diffusers", "UNet2DConditionModel"]})
    model = inspect_folder(tmp_path)
    assert "is missing" in model.problems[0]
    assert model.files == ()


@pytest.mark.parametrize("file", ["a\0b", "x" * 5000, "../a", "/etc/passwd", "", ".", "C:\\a"])
def test_an_indexs_files_stay_inside_its_folder(tmp_path: Path, file: str) -> None:
    folder = write_llama(tmp_path / "tiny")
    (folder / "model.safetensors").unlink()
    write_index(folder, {"model.norm.weight": file})
    assert inspect_folder(folder).problems


def test_no_more_is_read_than_was_allowed(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    path.write_bytes(b"[" + b" " * 100 + b"]")
    with pytest.raises(OSError, match="longer than 50 bytes"):
        read_plain(path, 50)
    assert read_json(path) == []
