"""A file that changes under a loaded model ends the next pass in words, never the process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from layerlight.core.errors import BrokenModel, LayerlightError, RunFailed
from layerlight.core.messages import LoadProgressed, ModelLoaded, RunFinished, TextProduced
from layerlight.engine import read_files
from layerlight.engine.engine import TorchEngine
from layerlight.engine.read_files import ReadFiles
from tests.engine.engine_process import EngineProcess
from tests.engine.events import Events, ask, text_request
from tests.engine.tiny_models import request_for, write_model

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps files in use from being changed")

Change = Callable[[Path], None]


def _grow(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"more")


def _replace(file: Path) -> None:
    other = file.with_suffix(".new")
    other.write_bytes(file.read_bytes())
    other.replace(file)


CHANGES: dict[str, tuple[Change, str]] = {
    "cut short": (lambda file: os.truncate(file, file.stat().st_size // 2), r"was cut short \(from [\d,]+ to [\d,]+"),
    "emptied": (lambda file: os.truncate(file, 0), "was cut short"),
    "grown": (_grow, "was changed"),
    "written": (lambda file: os.utime(file, ns=(1, 1)), "was changed"),
}
BY_NAME: dict[str, tuple[Change, str]] = {
    **CHANGES,
    "replaced": (_replace, "was replaced"),
    "gone": (Path.unlink, "can't be read any more"),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "model.safetensors"
    made.write_bytes(b"x" * 1000)
    return made


@pytest.mark.parametrize("change", sorted(BY_NAME))
def test_every_change_is_told_by_name(change: str, file: Path) -> None:
    spoil, words = BY_NAME[change]
    files = ReadFiles([], [str(file)])
    files.check()
    spoil(file)
    with pytest.raises(RunFailed, match=f"model.safetensors {words}.* while the model was in use"):
        files.check()
    files.close()


@pytest.mark.parametrize("change", ["replaced", "gone"])
def test_what_leaves_a_view_whole_is_no_fault(change: str, file: Path) -> None:
    """A view shows the old file as long as it lasts."""
    files = ReadFiles([str(file)])
    BY_NAME[change][0](file)
    files.check()
    files.close()


def test_a_glance_looks_now_and_then(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ReadFiles([str(file)])
    files.check()
    os.truncate(file, 1)
    monkeypatch.setattr(read_files, "GLANCE", 3600.0)
    files.glance()
    monkeypatch.setattr(read_files, "GLANCE", 0.0)
    with pytest.raises(RunFailed):
        files.glance()
    files.close()
    files.check()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", "tied")


@pytest.mark.parametrize("change", sorted(CHANGES))
@pytest.mark.parametrize("place", ["cpu", "disk"])
def test_a_changed_file_is_said_before_a_run(place: str, change: str, engine: TorchEngine, folder: Path) -> None:
    """In RAM as a view of the file, and read from disk; the model stays, and a whole file loads again."""
    request = request_for(folder, lambda index, count: place, dtype="bfloat16")
    engine.load(request, Events().job())
    tokens = ask(engine).tokens
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    CHANGES[change][0](weights)
    for _ in range(2):
        with pytest.raises(RunFailed, match=f"model.safetensors {CHANGES[change][1]}") as failed:
            ask(engine)
        assert "Load the model again" in failed.value.hint
    weights.unlink()
    weights.write_bytes(whole)
    engine.load(request, Events().job())
    assert ask(engine).tokens == tokens


@pytest.mark.parametrize(("place", "change"), [("cpu", "written"), ("disk", "written"), ("disk", "cut short")])
def test_a_file_that_changes_in_an_answer_ends_it_within_a_token(
    place: str, change: str, engine: TorchEngine, folder: Path
) -> None:
    """Whichever looks first: the watching, or the library that reads it."""
    engine.load(request_for(folder, lambda index, count: place, dtype="bfloat16"), Events().job())
    events = Events()

    def spoil(told: TextProduced) -> None:
        if len(events.of(TextProduced)) == 2:
            CHANGES[change][0](folder / "model.safetensors")

    with pytest.raises(RunFailed, match=r"model\.safetensors was"):
        engine.generate(text_request(count=40), events.when(TextProduced, spoil).job())
    assert sum(len(each.tokens) for each in events.of(TextProduced)) <= 4
    assert not events.of(RunFinished)


def test_copied_weights_may_lose_their_file(engine: TorchEngine, folder: Path) -> None:
    """In another dtype nothing of the file is needed any more."""
    engine.load(request_for(folder, dtype="float32"), Events().job())
    tokens = ask(engine).tokens
    os.truncate(folder / "model.safetensors", 0)
    assert ask(engine).tokens == tokens


@pytest.mark.skipif(sys.platform != "linux", reason="/proc lists what is open")
@pytest.mark.parametrize("linked", [True, False])
def test_files_are_let_go_with_the_model(linked: bool, engine: TorchEngine, folder: Path, tmp_path: Path) -> None:
    """Also those of a download cache, where they are links to elsewhere."""
    if linked:
        weights = folder / "model.safetensors"
        weights.rename(tmp_path / "blob")
        weights.symlink_to(tmp_path / "blob")
    before = len(os.listdir("/proc/self/fd"))
    engine.load(request_for(folder, dtype="bfloat16"), Events().job())
    assert engine.loaded is not None
    assert [Path(path).name for path in engine.loaded.files.paths] == ["blob" if linked else "model.safetensors"]
    engine.unload(Events().job())
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("place", ["cpu", "disk"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_file_cut_short_while_it_is_loaded_is_said(place: str, dtype: str, engine: TorchEngine, folder: Path) -> None:
    """No library's words, whatever reads it next."""
    cut: list[int] = []

    def spoil(told: LoadProgressed) -> None:
        if told.stage == "Opening the weight files" and not cut:
            cut.append(1)
            os.truncate(folder / "model.safetensors", 2000)

    with pytest.raises(BrokenModel, match=r"model\.safetensors is cut short") as failed:
        engine.load(
            request_for(folder, lambda index, count: place, dtype=dtype), Events().when(LoadProgressed, spoil).job()
        )
    assert isinstance(failed.value, LayerlightError)
    assert engine.loaded is None


@pytest.fixture
def process(tmp_path: Path) -> Iterator[EngineProcess]:
    started = EngineProcess(tmp_path)
    yield started.warmed()
    started.end()


def test_a_bus_error_leaves_its_place_in_the_log(process: EngineProcess, folder: Path) -> None:
    process.send(request_for(folder, dtype="bfloat16"))
    process.wait_for(ModelLoaded)
    process.process.send_signal(signal.SIGBUS)
    assert process.process.wait(20) == -signal.SIGBUS
    assert "Bus error" in process.log.read_text()
