"""Every action of the window, by mouse and by keyboard, and what it says at every turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QFileDialog, QWidget

from layerlight.core.messages import (
    EngineStopped,
    EngineWarmed,
    Failed,
    Failure,
    LayerRan,
    LoadProgressed,
    LoadRequest,
    ModelUnloaded,
    PromptCounted,
    StarterProgressed,
    StarterRequest,
    StopRequest,
    SurveyRequest,
    TextProduced,
    TextRequest,
    UnloadRequest,
)
from layerlight.core.state import Phase
from layerlight.ui.about import AboutDialog
from layerlight.ui.verdict_bar import STALL
from layerlight.ui.window import folder_of
from tests import fakes
from tests.core.models import GIB, MIB, dense
from tests.ui.conftest import Bench, MakeBench


def press(bench: Bench, widget: QWidget) -> None:
    bench.qtbot.mouseClick(widget, Qt.MouseButton.LeftButton)


def shortcut(bench: Bench, key: Qt.Key, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.ControlModifier) -> None:
    bench.window.activateWindow()
    bench.qtbot.keyClick(bench.window, key, modifiers)


def verdict(bench: Bench) -> str:
    session = bench.session
    if session.state.plan is not None and not session.busy:
        bench.qtbot.waitUntil(lambda: session.planning.fixes is not None)
    bench.qtbot.waitUntil(lambda: not bench.desk.work.verdict._settling.isActive())
    banner = bench.desk.work.verdict.banner
    return banner.words if banner else ""


# -- the empty window ------------------------------------------------------------------------------------------------


def test_the_empty_window_shows_the_machine_and_the_doors(bench: Bench) -> None:
    assert not bench.desk.working
    assert bench.desk._work is None
    assert [lane.place for lane in bench.desk._lanes.arranged.lanes] == ["cuda:0", "cpu", "disk"]
    assert bench.desk.welcome.starter_button.isVisible()


def test_the_starter_door_fetches_and_can_be_cancelled(bench: Bench) -> None:
    press(bench, bench.desk.welcome.starter_button)
    assert bench.engine.of_kind(StarterRequest)
    bench.engine.tell(StarterProgressed("Fetching the model", 30 * MIB, 90 * MIB, "Apache-2.0"))
    bar = bench.desk.work.verdict
    assert bar.banner is not None
    assert bar.banner.share == pytest.approx(1 / 3)
    assert "Apache-2.0" in bar.banner.second
    press(bench, bar.button("cancel"))
    assert bench.engine.of_kind(StopRequest)
    bench.engine.tell(Failed(Failure("Stopped", "", "", "Stopped"), "StarterRequest"))
    assert bench.session.state.phase is Phase.EMPTY
    assert not bench.desk.working


def test_the_open_door_asks_for_a_folder(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: bench.model.folder)
    press(bench, bench.desk.welcome.open_button)
    bench.qtbot.waitUntil(lambda: bench.desk.working)
    assert bench.session.state.model == bench.model


def test_a_dismissed_dialog_opens_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: "")
    press(bench, bench.desk.welcome.open_button)
    assert bench.session.state.model is None


@pytest.mark.parametrize("name", ["model", "模型 é 📦 100%#?", "with a file"])
def test_a_dropped_folder_is_opened_whatever_its_name(make_bench: MakeBench, tmp_path: Path, name: str) -> None:
    """E11: #, % and ? are part of the name."""
    from dataclasses import replace

    folder = tmp_path / name
    folder.mkdir()
    dropped = folder / "model.safetensors" if name == "with a file" else folder
    if dropped != folder:
        dropped.touch()
    bench = make_bench(model=replace(dense(), folder=str(folder)))
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(dropped))])
    centre = bench.window.rect().center()
    enter = QDragEnterEvent(
        centre,
        Qt.DropAction.CopyAction,
        data,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    QApplication.sendEvent(bench.window, enter)
    assert enter.isAccepted()
    drop = QDropEvent(
        QPointF(300, 300), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    )
    QApplication.sendEvent(bench.window, drop)
    bench.qtbot.waitUntil(lambda: bench.session.state.model is not None)
    assert bench.session.state.model is not None
    assert bench.session.state.model.folder == str(folder)


def test_what_is_not_on_this_machine_can_not_be_dropped() -> None:
    assert folder_of([QUrl("https://example.org/model")]) == ""


def test_folders_opened_before_are_one_press_away(make_bench: MakeBench) -> None:
    model = dense()
    bench = make_bench(model=model, recent_folders=(model.folder,))
    action = bench.desk.menus.recent.actions()[0]
    action.trigger()
    bench.qtbot.waitUntil(lambda: bench.session.state.model is not None)


# -- load, stop, unload ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_load_and_unload(opened: Bench, by: str) -> None:
    bar = opened.desk.work.verdict
    verdict(opened)
    if by == "mouse":
        press(opened, bar.button("load"))
    else:
        shortcut(opened, Qt.Key.Key_L)
    assert len(opened.engine.of_kind(LoadRequest)) == 1
    request = opened.engine.last_load
    assert request is not None
    opened.engine.tell(*fakes.load_began(request), fakes.load_done(request, opened.engine.machine))
    assert opened.desk.work.side == "chat"
    assert opened.desk.work.title == "Where the layers live"
    if by == "mouse":
        press(opened, bar.button("unload"))
    else:
        shortcut(opened, Qt.Key.Key_U)
    assert opened.engine.of_kind(UnloadRequest)
    opened.engine.tell(ModelUnloaded(()))
    assert opened.session.state.loaded is None


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_load_can_be_cancelled(opened: Bench, by: str) -> None:
    opened.start_load(0.5)
    if by == "mouse":
        press(opened, opened.desk.work.verdict.button("cancel"))
    else:
        shortcut(opened, Qt.Key.Key_Period)
    assert opened.engine.of_kind(StopRequest)
    assert verdict(opened) == "Stopping"
    opened.engine.tell(Failed(Failure("Stopped", "", "", "Stopped"), "LoadRequest"))
    assert "fit" in verdict(opened) or "All" in verdict(opened)


def test_a_load_before_the_engine_is_warm_waits_and_says_so(opened: Bench) -> None:
    from layerlight.core.messages import EngineStarted

    opened.engine.tell(EngineStarted(1))
    opened.session.load()
    banner = opened.desk.work.verdict.banner
    assert banner is not None
    assert "warming up" in banner.second
    assert opened.desk.title.engine_words == "Engine warming up"


def test_progress_shows_bytes_layers_and_time_left(opened: Bench) -> None:
    opened.start_load(0.5)
    bar = opened.desk.work.verdict
    assert bar.banner is not None
    assert bar.banner.share == pytest.approx(0.5, abs=0.01)
    assert "about 3.4 s left" in bar.second_line
    assert "3 of 7 parts" in bar.second_line


def test_a_stall_is_said(opened: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """H06."""
    opened.start_load(0.5)
    bar = opened.desk.work.verdict
    bar._heard -= STALL + 2
    bar._update_stall()
    assert "No progress for 7 s" in bar.second_line
    opened.engine.tell(LoadProgressed("file 3 of 4", 10**9, 10**9, 3, 8))
    bar._update_stall()
    assert "No progress" not in bar.second_line


def test_the_plan_can_be_looked_at_while_a_model_is_loaded(loaded: Bench) -> None:
    """H17: what is in memory and what would be are never mixed up."""
    work = loaded.desk.work
    shortcut(loaded, Qt.Key.Key_1)
    assert work.side == "plan"
    assert work.title == "Where the layers live"
    loaded.session.set_limit("cuda:0", 0)
    loaded.qtbot.waitUntil(lambda: work.title == "Where the layers would live after the next load")
    assert {lane.place for lane in work.map.arranged.lanes if lane.units} == {"cpu"}
    shortcut(loaded, Qt.Key.Key_2)
    assert work.side == "chat"
    assert work.title == "Where the layers live"
    assert {lane.place for lane in work.map.arranged.lanes if lane.units} == {"cuda:0"}


def test_advice_is_applied_with_one_press(make_bench: MakeBench) -> None:
    bench = make_bench(fakes.mac(), fakes.fourteen_billion())
    bench.open()
    assert "read from disk" in verdict(bench)
    apply = bench.desk.work.verdict.button("apply")
    press(bench, apply)
    bench.qtbot.waitUntil(
        lambda: bench.session.state.plan is not None and bench.session.state.plan.wishes.quantization == "int8"
    )


def test_what_does_not_fit_can_not_be_loaded(make_bench: MakeBench) -> None:
    bench = make_bench(fakes.no_card(), fakes.seventy_billion(), limits=(("disk", 0),))
    bench.open()
    assert "does not fit" in verdict(bench)
    assert not bench.desk.work.verdict.button("load").isVisibleTo(bench.window)
    assert not bench.desk.menus.actions["load"].isEnabled()


# -- errors and notices ----------------------------------------------------------------------------------------------


def fail(bench: Bench) -> None:
    failure = Failure("Memory ran out", "Layer 3 had no room on RTX 4060 Laptop.", "Lower the limit.", "OutOfMemory")
    bench.engine.tell(Failed(failure, "LoadRequest"))


def test_an_error_stands_where_it_happened_with_hint_and_details(opened: Bench) -> None:
    opened.start_load(0.5)
    opened.desk._log.write_text("12:00:00  layer 3 asked for 300 MiB\n")
    fail(opened)
    bar = opened.desk.work.verdict
    assert verdict(opened) == "Memory ran out: Layer 3 had no room on RTX 4060 Laptop."
    assert bar.second_line == "Lower the limit."
    press(opened, bar.button("details"))
    assert opened.desk.work.side == "log"
    assert "asked for 300 MiB" in opened.desk.work.log.text
    press(opened, opened.desk.work.log.close_button)
    assert opened.desk.work.side == "plan"
    press(opened, bar.button("dismiss"))
    assert "Memory ran out" not in verdict(opened)


def test_the_engines_death_is_said_and_the_window_works(loaded: Bench) -> None:
    loaded.engine.tell(EngineStopped(False, "Its process was ended from outside (SIGKILL)."))
    assert "The engine stopped" in verdict(loaded)
    assert loaded.desk.work.side == "plan"
    loaded.engine.warm_up()
    loaded.load()
    assert loaded.desk.work.side == "chat"


def test_a_notice_can_be_put_away(bench: Bench) -> None:
    bench.session.notify("The settings could not be read. The defaults are used.")
    assert bench.desk.notice.startswith("The settings")
    bench.session.dismiss()
    assert bench.desk.notice == ""


def test_a_broken_log_is_no_error(opened: Bench) -> None:
    opened.desk.work.show_side("log")
    assert opened.desk.work.log.text == "The log is empty."


# -- devices ---------------------------------------------------------------------------------------------------------


def test_each_device_has_a_card_with_live_memory(opened: Bench) -> None:
    cards = opened.desk.work.facts.cards
    assert [card.lane.place for card in cards] == ["cuda:0", "cpu", "disk"]
    before = cards[1].lane.free
    opened.engine.tell(fakes.measured(opened.engine.machine, {"cpu": 2 * GIB}))
    after = opened.desk.work.facts.cards[1].lane.free
    assert before is not None
    assert after is not None
    assert after < before


def test_unknown_memory_is_called_unknown(make_bench: MakeBench) -> None:
    """H14."""
    from tests.core.models import accelerator, disk, machine, ram

    bench = make_bench(machine(accelerator("xpu:0", free=None, kind="xpu"), ram(), disk()))  # type: ignore[arg-type]
    bench.open()
    assert bench.desk.work.facts.cards[0]._free.text() == "free memory unknown"


def test_warnings_of_the_survey_are_shown(make_bench: MakeBench) -> None:
    """H15: why there is no accelerator."""
    from dataclasses import replace

    machine = replace(fakes.no_card(), warnings=("nvidia-smi ended with code 9: the CPU is used.",))
    bench = make_bench(machine)
    bench.open()
    assert "code 9" in bench.desk.work.facts._warnings.text()


def test_the_machine_can_be_looked_at_again(opened: Bench) -> None:
    before = len(opened.engine.of_kind(SurveyRequest))
    shortcut(opened, Qt.Key.Key_F5, Qt.KeyboardModifier.NoModifier)
    assert len(opened.engine.of_kind(SurveyRequest)) == before + 1


def test_facts_of_the_model_are_shown(opened: Bench) -> None:
    facts = dict(opened.desk.work.facts.facts)
    assert facts["Architecture"] == "LlamaForCausalLM"
    assert facts["Made for"] == "256 tokens"
    assert facts["Loaded as"] == "bfloat16"


# -- the rest --------------------------------------------------------------------------------------------------------


def test_about_tells_the_versions_and_the_log(bench: Bench) -> None:
    bench.engine.tell(EngineWarmed((("torch", "2.13.0+cpu"),), 1.0))
    bench.desk.menus.actions["about"].trigger()
    about = bench.desk.findChild(AboutDialog)
    assert isinstance(about, AboutDialog)
    assert "torch 2.13.0+cpu" in about.text
    assert "PySide6" in about.text
    assert str(bench.desk._log) in about.log_button.toolTip()
    about.close()


def test_a_theme_is_chosen_in_the_menu(bench: Bench) -> None:
    dark = next(action for action in bench.desk.menus._themes.actions() if action.data() == "dark")
    dark.trigger()
    assert bench.session.settings.theme == "dark"
    assert dark.isChecked()


def test_the_windows_place_is_kept(make_bench: MakeBench) -> None:
    first = make_bench()
    least = first.window.minimumSize()
    first.window.resize(least.width(), least.height() + 20)
    first.window.close()
    second = make_bench(window_geometry=first.session.settings.window_geometry)
    assert second.window.size() == first.window.size()


@pytest.mark.parametrize("geometry", ["not base64 at all é", "AAAA"])
def test_a_broken_place_is_ignored(make_bench: MakeBench, geometry: str) -> None:
    """H08."""
    assert make_bench(window_geometry=geometry).window.isVisible()


@pytest.mark.parametrize("when", ["empty", "opened", "loading", "loaded", "answering", "fetching"])
def test_it_closes_at_any_moment(make_bench: MakeBench, when: str) -> None:
    """H01, H02: nothing is asked, nothing arrives afterwards, settings and answers are kept."""
    bench = make_bench()
    if when == "fetching":
        bench.session.fetch_starter()
    elif when != "empty":
        bench.open()
    if when == "loading":
        bench.start_load(0.5)
    elif when in ("loaded", "answering"):
        bench.load()
    if when == "answering":
        bench.session.ask("Where?")
        bench.engine.tell(PromptCounted(9, 256, 247), TextProduced("In Par", (1,)))
    assert bench.window.close()
    assert bench.engine.closed
    assert bench.session.settings.window_geometry
    bench.engine.tell(LayerRan("model.layers.1", ()), TextProduced("late", (2,)), EngineStopped(False, "late"))
    bench.qtbot.wait(20)


def test_every_control_has_a_name_for_screen_readers(loaded: Bench) -> None:
    from PySide6.QtWidgets import (
        QAbstractButton,
        QAbstractSlider,
        QAbstractSpinBox,
        QLineEdit,
        QPlainTextEdit,
        QScrollBar,
    )

    loaded.desk.work.show_side("log")
    nameless = [
        widget
        for kind in (QAbstractButton, QAbstractSlider, QAbstractSpinBox, QLineEdit, QPlainTextEdit)
        for widget in loaded.window.findChildren(kind)
        if not isinstance(widget, QScrollBar)
        and not isinstance(widget.parent(), QAbstractSpinBox)
        and not (widget.accessibleName() or (isinstance(widget, QAbstractButton) and widget.text()))
        and widget.objectName() not in ("qt_spinbox_lineedit", "qt_menubar_ext_button")
    ]
    assert nameless == []


def test_a_question_by_keyboard_alone(opened: Bench) -> None:
    """From the opened model to an asked question without a mouse."""
    shortcut(opened, Qt.Key.Key_L)
    request = opened.engine.last_load
    assert request is not None
    opened.engine.tell(*fakes.load_began(request), fakes.load_done(request, opened.engine.machine))
    shortcut(opened, Qt.Key.Key_2)
    entry = opened.desk.work.chat.entry
    assert opened.window.focusWidget() is entry
    opened.qtbot.keyClicks(entry, "Where?")
    opened.qtbot.keyClick(entry, Qt.Key.Key_Return)
    assert opened.engine.of_kind(TextRequest)
