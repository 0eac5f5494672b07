"""Folders for layers on disk: one a run, none left behind, whoever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from layerlight.core.errors import BadRequest, DoesNotFit
from layerlight.core.folders import HOME_VARIABLE, own_folders
from layerlight.engine.engine import TorchEngine
from layerlight.engine.offload_folder import PREFIX, OffloadFolder, sweep

HOLDER = """
import sys
from pathlib import Path
from layerlight.engine.offload_folder import OffloadFolder
folder = OffloadFolder(Path(sys.argv[1]))
(folder.path / "weights.safetensors").write_bytes(b"x" * 100)
print(folder.path, flush=True)
sys.stdin.read()
"""


def _holder(root: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_dead_runs_go_and_live_ones_stay(tmp_path: Path) -> None:
    """B05: one run killed in the middle, one alive, a third one starting in the same folder."""
    killed, dead_path = _holder(tmp_path)
    alive, live_path = _holder(tmp_path)
    try:
        os.kill(killed.pid, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
        killed.communicate()
        assert dead_path.exists()
        mine = OffloadFolder(tmp_path)
        assert not dead_path.exists()
        assert (live_path / "weights.safetensors").exists()
        assert len({mine.path, dead_path, live_path}) == 3
        mine.remove()
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([live_path.name, f"{live_path.name}.lock"])
    finally:
        _end(alive)
    assert sweep(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_next_engine_clears_up_after_a_killed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B05: at its start, whether or not it will ever need the folder."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    killed, dead_path = _holder(own_folders().offload)
    _end(killed)
    assert dead_path.exists()
    TorchEngine().close()
    assert list(own_folders().offload.iterdir()) == []


def test_two_in_one_process_keep_apart(tmp_path: Path) -> None:
    first, second = OffloadFolder(tmp_path), OffloadFolder(tmp_path)
    assert first.path != second.path
    first.remove()
    first.remove()
    assert second.path.exists()
    second.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "another.lock").write_text("")
    (tmp_path / f"{PREFIX}without a lock").mkdir()
    OffloadFolder(tmp_path).remove()
    assert len(list(tmp_path.iterdir())) == 3


def test_room_is_asked_for_before_anything_is_written(tmp_path: Path) -> None:
    """B05: a full disk is said beforehand, with both sizes."""
    folder = OffloadFolder(tmp_path)
    folder.require_room(1)
    with pytest.raises(DoesNotFit, match=r"1024\.0 TiB must be written"):
        folder.require_room(2**50)
    folder.remove()


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadRequest, match="can't be used"):
        OffloadFolder(tmp_path / "file")
