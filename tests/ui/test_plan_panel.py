"""Around the plan: ways to make it faster, strategies, other machines, models one doesn't have, exports."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QGuiApplication
from PySide6.QtWidgets import QFileDialog, QMenu, QPushButton

from layerlight.core.messages import LoadRequest
from layerlight.core.model import Model
from layerlight.ui.fixes_panel import FixRow
from layerlight.ui.words import duration
from tests import fakes
from tests.ui.conftest import Bench, MakeBench


def action(menu: QMenu, words: str) -> QAction:
    menu.aboutToShow.emit()
    return next(each for each in menu.actions() if each.text().startswith(words))


def filled(bench: Bench) -> None:
    bench.desk.shelf.fill()
    bench.qtbot.waitUntil(lambda: bool(bench.desk.shelf.machines and bench.desk.shelf.models))


# -- ways to make it faster ------------------------------------------------------------------------------------------


@pytest.fixture
def slow(make_bench: MakeBench) -> Bench:
    """14 B on a Mac with 36 GB: some layers are read from disk."""
    bench = make_bench(fakes.mac(), fakes.fourteen_billion())
    bench.open()
    bench.qtbot.waitUntil(lambda: bool(bench.desk.work.plan.fixes.rows))
    return bench


def test_fixes_are_ranked_with_gain_and_price(slow: Bench) -> None:
    rows = slow.desk.work.plan.fixes.rows
    found = slow.session.planning.fixes
    assert found is not None
    assert [row.words for row in rows] == [fix.words.rstrip(".") for fix in found[: len(rows)]]
    assert all("×" in row.gain for row in rows)
    assert slow.desk.work.plan.fixes.isVisible()


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_fix_is_applied_by_its_button(slow: Bench, by: str) -> None:
    row = next(each for each in slow.desk.work.plan.fixes.rows if "4 bit" in each.words)
    if by == "mouse":
        slow.qtbot.mouseClick(row.button, Qt.MouseButton.LeftButton)
    else:
        row.button.setFocus()
        slow.qtbot.keyClick(row.button, Qt.Key.Key_Space)
    assert slow.session.settings.quantization == "nf4"
    slow.qtbot.waitUntil(lambda: slow.session.planning.fixes is not None)
    assert not [each for each in slow.desk.work.plan.fixes.rows if "4 bit" in each.words]


def fix_row(bench: Bench, words: str) -> FixRow:
    """The row of the fix with these words, once it was found."""
    rows = bench.desk.work.plan.fixes
    bench.qtbot.waitUntil(lambda: any(words in each.words for each in rows.rows))
    return next(each for each in rows.rows if words in each.words)


def test_what_only_a_person_can_do_has_no_button(make_bench: MakeBench) -> None:
    laptop = fakes.laptop()
    card = replace(laptop.devices[0], total=24 * 2**30, free=6 * 2**30)
    bench = make_bench(replace(laptop, devices=(card, *laptop.devices[1:])), fakes.fourteen_billion())
    bench.open()
    assert not fix_row(bench, "Free memory on").button.isVisible()


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_smaller_sibling_is_planned_by_its_shape(make_bench: MakeBench, by: str) -> None:
    bench = make_bench(fakes.laptop(), fakes.fourteen_billion())
    bench.open()
    row = fix_row(bench, "smaller model")
    pace = row.gain
    assert row.button.text() == "Plan it"
    press(bench, row.button, by)
    state = bench.session.state
    bench.qtbot.waitUntil(lambda: bench.session.state.model is not state.model and bench.session.state.plan is not None)
    model, plan = bench.session.state.model, bench.session.state.plan
    assert model is not None
    assert plan is not None
    assert model.name in row.words.lower() or model.folder == ""
    assert plan.fits
    assert pace.startswith(duration(plan.prediction.seconds_per_token))
    assert "nothing can be loaded" in bench.session.load_refusal


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_another_machine_is_planned_for_and_the_picker_shows_it(make_bench: MakeBench, by: str) -> None:
    bench = make_bench(fakes.no_card(), alone(), strategy="auto")
    bench.open()
    row = fix_row(bench, "another machine")
    assert row.button.text() == "Plan for it"
    press(bench, row.button, by)
    elsewhere = bench.session.elsewhere
    assert elsewhere is not None
    assert elsewhere.title in row.words
    assert bench.desk.title.machine.text() == f"Would be on {elsewhere.title}"
    filled(bench)
    assert action(bench.desk.machines, elsewhere.title).isChecked()
    bench.qtbot.waitUntil(
        lambda: bench.session.state.plan is not None and bench.session.state.plan.machine is elsewhere.machine
    )
    plan = bench.session.state.plan
    assert plan is not None
    assert plan.fits
    assert plan.wishes.strategy == "fastest"


def press(bench: Bench, button: QPushButton, by: str) -> None:
    if by == "mouse":
        bench.qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    else:
        button.setFocus()
        bench.qtbot.keyClick(button, Qt.Key.Key_Space)


def alone() -> Model:
    """14 B in fp8, of a type without siblings: nothing helps it but another machine."""
    model = fakes.fourteen_billion()
    assert model.shape is not None
    return replace(model, quantization="fp8", shape=replace(model.shape, model_type="alone"))


def test_a_plan_that_needs_nothing_offers_nothing(opened: Bench) -> None:
    opened.qtbot.waitUntil(lambda: opened.session.planning.fixes is not None)
    assert opened.desk.work.plan.fixes.rows == []
    assert not opened.desk.work.plan.fixes.isVisible()


def test_a_slow_load_is_asked_about(slow: Bench) -> None:
    bar = slow.desk.work.verdict
    slow.qtbot.waitUntil(lambda: bar.banner is not None and "Load anyway, or take 8-bit?" in bar.banner.words)
    assert bar.button("load").text() == "Load anyway"  # type: ignore[attr-defined]
    assert bar.button("apply").text() == "Apply 8-bit"  # type: ignore[attr-defined]


# -- strategies ------------------------------------------------------------------------------------------------------


def test_a_strategy_is_chosen(make_bench: MakeBench) -> None:
    bench = make_bench(fakes.laptop(), fakes.fourteen_billion())
    bench.open()
    panel = bench.desk.work.plan
    bench.qtbot.mouseClick(panel.strategies.buttons["most-on-gpu"], Qt.MouseButton.LeftButton)
    bench.qtbot.waitUntil(
        lambda: bench.session.state.plan is not None and bench.session.state.plan.wishes.strategy == "most-on-gpu"
    )
    assert "on accelerators" in panel._ties.text()
    bench.qtbot.mouseClick(panel.reset, Qt.MouseButton.LeftButton)
    assert bench.session.settings.strategy == "fastest"
    assert not panel.reset.isVisible()


def test_without_an_accelerator_there_is_no_choice(make_bench: MakeBench) -> None:
    bench = make_bench(fakes.no_card(), fakes.starter())
    bench.open()
    assert not bench.desk.work.plan.strategies.isVisible()


# -- machines that are not there -------------------------------------------------------------------------------------


def test_another_machine_is_picked_and_marked_and_left(opened: Bench) -> None:
    filled(opened)
    menu = opened.desk.machines
    action(menu, "Mac with M1").trigger()
    work = opened.desk.work
    opened.qtbot.waitUntil(lambda: "Mac with M1" in work.title)
    assert opened.desk.title.machine.text() == "Would be on Mac with M1 and 8 GB"
    assert work.facts._where.text() == "Would be: Mac with M1 and 8 GB"
    assert [lane.place for lane in work.map.arranged.lanes] == ["mps", "disk"]
    assert list(work.plan.limits) == ["mps"]
    opened.qtbot.waitUntil(lambda: work.verdict.banner is not None and "data sheets" in work.verdict.banner.second)
    assert work.verdict.banner is not None
    assert "load" not in work.verdict.banner.actions
    assert not opened.desk.menus.actions["load"].isEnabled()
    assert action(menu, "Mac with M1").isChecked()
    action(menu, "This machine").trigger()
    assert opened.desk.title.machine.text() == "On this machine"
    assert [lane.place for lane in work.map.arranged.lanes] == ["cuda:0", "cpu", "disk"]
    opened.session.load()
    assert opened.engine.of_kind(LoadRequest)


def test_machines_are_told_apart_before_they_are_read(bench: Bench) -> None:
    assert not action(bench.desk.machines, "Reading").isEnabled()
    bench.qtbot.waitUntil(lambda: bool(bench.desk.shelf.machines))
    assert len(bench.desk.machines.actions()) > 20


def test_the_picker_works_with_no_model(bench: Bench) -> None:
    filled(bench)
    bench.session.plan_for(bench.desk.shelf.machines[0])
    lanes = bench.desk._lanes.arranged.lanes
    machine = bench.desk.shelf.machines[0].machine
    assert lanes[0].total == machine.devices[0].total


# -- models one doesn't have -----------------------------------------------------------------------------------------


def test_a_model_one_does_not_have_is_planned_here_and_elsewhere(bench: Bench) -> None:
    filled(bench)
    action(bench.desk.shapes, "Qwen3-8B").trigger()
    session = bench.session
    bench.qtbot.waitUntil(lambda: session.state.plan is not None)
    assert session.state.model is not None
    assert session.state.model.folder == ""
    assert dict(bench.desk.work.facts.facts)["Weights"].endswith("not on this machine")
    session.load()
    assert bench.engine.of_kind(LoadRequest) == []
    assert "without its weights" in session.notice
    assert session.settings.recent_folders == ()
    session.plan_for(next(each for each in bench.desk.shelf.machines if each.name == "desktop-rtx4090-24gb"))
    bench.qtbot.waitUntil(lambda: session.state.plan is not None and session.state.plan.places == ("cuda:0",))


def test_the_door_is_on_the_empty_window(bench: Bench) -> None:
    bench.qtbot.mouseClick(bench.desk.welcome.unseen_button, Qt.MouseButton.LeftButton)
    assert bench.desk.unseen is not None
    assert bench.desk.unseen.isVisible()
    assert bench.desk.unseen.focusWidget() is bench.desk.unseen.field


# -- exports ---------------------------------------------------------------------------------------------------------


def test_a_plan_is_copied_as_text_map_and_python(opened: Bench) -> None:
    menu = opened.desk.exports
    clipboard = QGuiApplication.clipboard()
    plan = opened.session.state.plan
    assert plan is not None
    action(menu, "Copy as device_map").trigger()
    assert json.loads(clipboard.text()) == dict.fromkeys(plan.device_map(), 0)
    assert "on the clipboard" in opened.session.notice
    action(menu, "Copy as Python").trigger()
    compile(clipboard.text(), "snippet", "exec")
    action(menu, "Copy as text").trigger()
    assert all(each.layer in clipboard.text() for each in plan.placements)


def test_a_plan_is_saved(opened: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(path), ""))
    action(opened.desk.exports, "Save as JSON").trigger()
    plan = opened.session.state.plan
    assert plan is not None
    assert json.loads(path.read_text())["device_map"] == plan.device_map()
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(tmp_path / "no" / "plan.json"), ""))
    action(opened.desk.exports, "Save as JSON").trigger()
    assert "could not be written" in opened.session.notice


def test_without_a_plan_there_is_nothing_to_export(bench: Bench) -> None:
    assert not action(bench.desk.exports, "Copy as text").isEnabled()


@pytest.mark.parametrize(
    ("quantization", "key"),
    [
        (None, "full"),
        ("int8", "int8"),
        *((name, "nf4") for name in ("nf4", "fp4", "nf4-double", "fp4-double")),
        ("zz", "full"),
    ],
)
def test_every_quantization_has_a_button(make_bench: MakeBench, quantization: str | None, key: str) -> None:
    """Those that the terminal knows too, and one that a newer version may write."""
    bench = make_bench(quantization=quantization)
    bench.open()
    assert bench.desk.work.plan.precision.current() == key
