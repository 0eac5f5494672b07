"""A random model's folder is made once, whole or not at all, also by two processes at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerlight.bench import random_model
from layerlight.bench.random_model import random_llama

pytestmark = pytest.mark.engine


def test_what_another_process_made_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"

    def write(making: Path, config: object) -> None:
        (making / "weights").write_text("ours")
        folder.mkdir()
        (folder / "weights").write_text("theirs")

    monkeypatch.setattr(random_model, "_write", write)
    assert random_llama(folder) == folder
    assert (folder / "weights").read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_that_cannot_get_its_name_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"
    monkeypatch.setattr(random_model, "_write", lambda making, config: folder.write_text("a file"))
    with pytest.raises(OSError, match="model"):
        random_llama(folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_one_that_fails_in_its_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(making: Path, config: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(random_model, "_write", fail)
    with pytest.raises(OSError, match="disk full"):
        random_llama(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
