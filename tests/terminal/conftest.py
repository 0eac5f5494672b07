"""A tiny model folder, and a terminal whose words can be read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from layerlight.cli import main
from layerlight.core.job import Job
from layerlight.engine.conversion import convert
from tests.engine.tiny_gguf import write_gguf
from tests.terminal.fake_engine import FakeEngine


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole tiny Llama with a tokenizer and a chat template; its context is 4,096."""
    place = tmp_path_factory.mktemp("models")
    write_gguf(place / "tiny.gguf", context=4096)
    folder = place / "tiny"
    folder.mkdir()
    convert(place / "tiny.gguf", folder, Job(lambda event: None), lambda done: None)
    return folder


@dataclass(frozen=True)
class Said:
    """What a command ended with, and what it said where."""

    code: int
    out: str
    err: str

    @property
    def found(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.out)
        return loaded


Command = Callable[..., Said]


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("LAYERLIGHT_HOME", str(home))
    return home


@pytest.fixture
def layerlight(capfd: pytest.CaptureFixture[str], engine: FakeEngine) -> Command:
    """`layerlight("run", folder, …)` runs a command on the fake engine."""

    def command(*words: object) -> Said:
        code = main([str(word) for word in words], engine.look, engine)
        said = capfd.readouterr()
        return Said(code, said.out, said.err)

    return command
