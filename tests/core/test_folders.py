"""Where the program keeps its own files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from layerlight.core.errors import BadRequest
from layerlight.core.folders import own_folders


def test_one_variable_moves_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAYERLIGHT_HOME", str(tmp_path / "home"))
    found = own_folders()
    every = (found.data, found.cache, found.config, found.log, found.settings, found.chats, found.models, found.offload)
    assert all(path.is_relative_to(tmp_path / "home") for path in every)
    assert len(set(every)) == len(every)


def test_asking_makes_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAYERLIGHT_HOME", str(tmp_path / "home"))
    own_folders()
    assert list(tmp_path.iterdir()) == []


def test_without_it_the_system_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAYERLIGHT_HOME", raising=False)
    found = own_folders()
    assert found.data.is_absolute()
    assert found.data.name == "layerlight"
    assert found.settings.name == "settings.json"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows takes any name for that of a person")
def test_the_home_of_a_person_who_is_not_here_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYERLIGHT_HOME", "~nobody-of-that-name/x")
    with pytest.raises(BadRequest, match="LAYERLIGHT_HOME “~nobody-of-that-name/x”") as refused:
        own_folders()
    assert refused.value.hint
