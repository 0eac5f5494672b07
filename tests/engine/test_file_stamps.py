"""A folder's files are the same until one of them is written, replaced, added or taken away."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from layerlight.engine import engine as engine_module
from layerlight.engine.checking import check
from layerlight.engine.engine import TorchEngine
from layerlight.engine.file_stamps import stamps
from tests.engine.events import Events
from tests.engine.tiny_models import request_for


def _write(folder: Path) -> None:
    (folder / "below" / "b.bin").write_bytes(b"other")


def _touch(folder: Path) -> None:
    os.utime(folder / "a.bin", ns=(1, 1))


def _replace(folder: Path) -> None:
    was = (folder / "a.bin").stat()
    (folder / "new").write_bytes(b"1234")
    os.utime(folder / "new", ns=(was.st_atime_ns, was.st_mtime_ns))
    (folder / "new").replace(folder / "a.bin")


def _add(folder: Path) -> None:
    (folder / "below" / "c.bin").touch()


def _take_away(folder: Path) -> None:
    (folder / "a.bin").unlink()


@pytest.mark.parametrize("change", [_write, _touch, _replace, _add, _take_away])
def test_each_change_shows(change: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for name in ("a.bin", "below/b.bin"):
        (tmp_path / name).write_bytes(b"1234")
    before = stamps(str(tmp_path))
    assert stamps(str(tmp_path)) == before
    change(tmp_path)
    assert stamps(str(tmp_path)) != before


def test_files_behind_links_count(tmp_path: Path) -> None:
    """In a cache of downloads they are links to elsewhere."""
    folder, real = tmp_path / "folder", tmp_path / "real"
    folder.mkdir()
    real.write_bytes(b"1234")
    (folder / "a.bin").symlink_to(real)
    (folder / "nowhere").symlink_to(tmp_path / "gone")
    before = stamps(str(folder))
    real.write_bytes(b"12345")
    assert stamps(str(folder)) != before


def test_a_folder_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert stamps(str(tmp_path / "gone")) == ()


@pytest.mark.parametrize(("changed", "times"), [(False, 1), (True, 2)])
def test_a_model_is_checked_again_only_when_its_files_changed(
    changed: bool,
    times: int,
    engine: TorchEngine,
    model_folder: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second load of the same begins at once."""
    checked: list[str] = []

    def counted(request):  # type: ignore[no-untyped-def]
        checked.append(request.folder)
        return check(request)

    monkeypatch.setattr(engine_module, "check", counted)
    folder = model_folder("llama")
    engine.load(request_for(folder), Events().job())
    if changed:
        was = (folder / "config.json").stat()
        os.utime(folder / "config.json", ns=(was.st_atime_ns, was.st_mtime_ns + 1))
    engine.load(request_for(folder), Events().job())
    assert len(checked) == times
    assert engine.loaded is not None
