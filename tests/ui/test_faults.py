"""Our own mistakes are logged and said; the window goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from layerlight.core.settings import read_settings, write_settings
from layerlight.ui import settings_keeper
from layerlight.ui.faults import Faults
from layerlight.ui.settings_keeper import SettingsKeeper
from tests.ui.conftest import Bench


def test_a_fault_is_logged_with_its_traceback_and_said(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "logs" / "layerlight.log"
    faults = Faults(bench.session, log)
    try:
        raise ZeroDivisionError("a slip")
    except ZeroDivisionError:
        kind, error, trace = sys.exc_info()
        assert kind is not None
        assert error is not None
        faults.hook(kind, error, trace)
    assert "a slip" in bench.desk.notice
    assert "Traceback" in log.read_text()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_settings_are_written_a_moment_after_the_last_change(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    keeper = SettingsKeeper(bench.session, path)
    keeper._timer.setInterval(10)
    for size in range(5):
        bench.session.set_limit("cpu", size + 2**30)
    bench.qtbot.waitUntil(path.exists)
    assert dict(read_settings(path)[0].limits) == {"cpu": 2**30 + 4}


def test_the_last_change_is_written_at_the_end(bench: Bench, tmp_path: Path) -> None:
    keeper = SettingsKeeper(bench.session, tmp_path / "settings.json")
    bench.session.change_settings(theme="dark")
    keeper.finish()
    assert read_settings(tmp_path / "settings.json")[0].theme == "dark"


def test_settings_that_can_not_be_written_are_said_once(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    keeper = SettingsKeeper(bench.session, tmp_path / "file" / "settings.json")
    keeper._timer.setInterval(5)
    tries: list[object] = []

    def counted(path: Path, settings: object) -> None:
        tries.append(settings)
        write_settings(path, settings)  # type: ignore[arg-type]

    monkeypatch.setattr(settings_keeper, "write_settings", counted)
    bench.session.change_settings(theme="dark")
    bench.qtbot.waitUntil(lambda: "could not be written" in bench.desk.notice)
    bench.session.dismiss()
    bench.session.change_settings(theme="light")
    bench.qtbot.waitUntil(lambda: len(tries) == 2)
    bench.qtbot.wait(30)
    assert bench.desk.notice == ""
