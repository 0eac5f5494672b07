"""The benchmark of carried layers runs wherever there is an accelerator, and says in words where there is none."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from layerlight.bench.device_pairs import NOBODY, measure_device
from layerlight.bench.random_model import random_llama
from layerlight.core.folders import HOME_VARIABLE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    return random_llama(tmp_path / "model", hidden=64, intermediate=128, layers=4, heads=4, key_value_heads=2)


def test_without_an_accelerator_that_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layerlight.engine.survey.find_accelerators", lambda: ((), ()))
    (found,) = measure_device(folder, 1, 4, Console(file=io.StringIO()))
    assert (found.words, found.missed) == (NOBODY, "")


@pytest.mark.simulated
def test_on_an_accelerator_all_three_are_timed(folder: Path, simulated: Callable[..., ModuleType]) -> None:
    """With the same tokens; how fast a simulated one is says nothing."""
    simulated([64 << 20])
    written = io.StringIO()
    faster, of_bus = measure_device(folder, 2, 3, Console(file=written, width=200))
    assert written.getvalue().count("the copies alone") == 2
    assert "times accelerate's speed" in faster.words
    assert "page-locked RAM alone" in of_bus.words
