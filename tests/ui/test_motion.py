"""With reduced motion the light moves seldom; what the system asks for holds until a person chooses."""

from __future__ import annotations

import plistlib
from pathlib import Path

import pytest

from layerlight.core.messages import LayerRan, RunFinished, TextRequest
from layerlight.ui import session as sessions
from layerlight.ui.motion import GNOME, SystemMotion, reduces_motion
from tests.fakes import result_of
from tests.ui.conftest import Bench

KDE = Path(".config/kdeglobals")
GTK3, GTK4 = Path(".config/gtk-3.0/settings.ini"), Path(".config/gtk-4.0/settings.ini")


def silent(_command: tuple[str, ...]) -> str:
    return ""


@pytest.mark.parametrize(
    ("file", "text", "reduced"),
    [
        (KDE, "[General]\nx=1\n[KDE]\nAnimationDurationFactor=0\n", True),
        (KDE, "[KDE]\nAnimationDurationFactor=0.5\n", False),
        (KDE, "[KDE]\nAnimationDurationFactor=soon\n", False),
        (KDE, "[KDE]\nLookAndFeelPackage=x\n", False),
        (KDE, "no settings at all", False),
        (KDE, "[KDE]\nAnimationDurationFactor=0\nAnimationDurationFactor=1\n", False),
        (GTK3, "[Settings]\ngtk-enable-animations=0\n", True),
        (GTK4, "[Settings]\ngtk-enable-animations=false\n", True),
        (GTK4, "[Settings]\ngtk-enable-animations=1\n", False),
        (GTK4, "[Settings]\ngtk-font-name=100% Sans\n", False),
    ],
)
def test_a_desktop_s_files_are_read(tmp_path: Path, file: Path, text: str, reduced: bool) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text, "utf-8")
    assert reduces_motion("linux", tmp_path, silent) is reduced


@pytest.mark.parametrize(
    ("said", "reduced"), [("false\n", True), ("true\n", False), ("", False), ("no such key", False)]
)
def test_gnome_is_asked(tmp_path: Path, said: str, reduced: bool) -> None:
    asked: list[tuple[str, ...]] = []

    def ask(command: tuple[str, ...]) -> str:
        asked.append(command)
        return said

    assert reduces_motion("linux", tmp_path, ask) is reduced
    assert asked == [GNOME]


@pytest.mark.parametrize(
    ("content", "reduced"),
    [
        (plistlib.dumps({"reduceMotion": True}), True),
        (plistlib.dumps({"reduceMotion": 1}, fmt=plistlib.FMT_BINARY), True),
        (plistlib.dumps({"reduceMotion": False}), False),
        (plistlib.dumps({"other": True}), False),
        (plistlib.dumps([1]), False),
        (b"broken", False),
    ],
)
def test_a_mac_s_file_is_read(tmp_path: Path, content: bytes, reduced: bool) -> None:
    folder = tmp_path / "Library" / "Preferences"
    folder.mkdir(parents=True)
    (folder / "com.apple.universalaccess.plist").write_bytes(content)
    assert reduces_motion("darwin", tmp_path) is reduced


@pytest.mark.parametrize("system", ["linux", "darwin", "freebsd14"])
def test_without_any_settings_things_move(tmp_path: Path, system: str) -> None:
    assert not reduces_motion(system, tmp_path, silent)


def test_the_system_s_word_arrives_and_a_person_s_goes_before_it(opened: Bench) -> None:
    action = opened.desk.menus.actions["reduced_motion"]
    assert not action.isChecked()
    SystemMotion(opened.session, lambda: True).start()
    opened.qtbot.waitUntil(lambda: opened.session.reduced_motion)
    assert action.isChecked()
    action.trigger()
    assert not opened.session.reduced_motion
    assert not action.isChecked()
    assert opened.session.settings.reduced_motion is False


@pytest.mark.parametrize("reduced", [True, False])
def test_the_light_moves_seldom_and_nothing_is_lost(
    loaded: Bench, monkeypatch: pytest.MonkeyPatch, reduced: bool
) -> None:
    monkeypatch.setattr(sessions, "CALM", 3600.0)
    loaded.session.change_settings(reduced_motion=reduced)
    told: list[str | None] = []
    loaded.session.changed.connect(lambda _, event: told.append(event.running) if isinstance(event, LayerRan) else None)
    loaded.session.ask("Where?")
    request = loaded.engine.sent[-1]
    assert isinstance(request, TextRequest)
    plan = loaded.session.state.loaded_plan
    assert plan is not None
    layers = [placement.layer for placement in plan.placements][:10]
    loaded.session._lit = -4000.0
    for layer in layers:
        loaded.engine.tell(LayerRan(layer, ()))
    assert told == (layers[:1] if reduced else layers)
    assert loaded.session.state.running == layers[-1]
    monkeypatch.setattr(sessions, "CALM", 0.0)
    loaded.engine.tell(LayerRan(layers[0], ()))
    assert told[-1] == layers[0]
    loaded.engine.tell(RunFinished(result_of(request, ("Here.",))))
    assert loaded.session.state.running is None
