"""Models made once a session, and an engine that lets go after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from layerlight.core.folders import HOME_VARIABLE
from layerlight.engine import resident_layers, single_passes
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


@pytest.fixture(autouse=True)
def engine_as_plain_as_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a CPU where long ones are faster in fp32: plain transformers, which ours is held to, rounds otherwise.

    And nothing is read at leisure where a test does not ask for it.
    """
    monkeypatch.setattr(single_passes, "pays_off", lambda _dtype: False)
    monkeypatch.setattr(resident_layers, "LEISURE", 3600.0)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TorchEngine]:
    """An engine whose own files lie in this test's folder."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    made = TorchEngine()
    yield made
    made.close()
