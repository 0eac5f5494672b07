"""Models made once a session, and an engine that lets go after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from layerlight.core.folders import HOME_VARIABLE
from layerlight.engine.engine import TorchEngine
from tests.engine.tiny_models import write_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`model_folder("gpt2")` gives the folder of a tiny random model of this kind."""
    root = tmp_path_factory.mktemp("models")
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = write_model(root / kind, kind)
        return made[kind]

    return folder


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TorchEngine]:
    """An engine whose own files lie in this test's folder."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    made = TorchEngine()
    yield made
    made.close()
