"""Every action by a few letters of it, without the mouse; its shortcut is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QFocusEvent
from PySide6.QtWidgets import QApplication, QMenu, QWidget

from layerlight.ui.command_palette import CommandPalette
from layerlight.ui.commands import commands_of
from layerlight.ui.fuzzy import score
from layerlight.ui.theme import ThemeSwitch
from tests.core.models import dense
from tests.ui.conftest import Bench, MakeBench

CONTROL = Qt.KeyboardModifier.ControlModifier


def opened_palette(bench: Bench) -> CommandPalette:
    bench.window.activateWindow()
    bench.qtbot.waitUntil(bench.window.isActiveWindow)
    bench.qtbot.keyClick(bench.window, Qt.Key.Key_K, CONTROL)
    palette = bench.desk.command_palette
    assert palette.isVisible()
    assert palette.field.hasFocus()
    return palette


def do(bench: Bench, words: str) -> None:
    """Types some words and takes the first command."""
    palette = opened_palette(bench)
    bench.qtbot.keyClicks(palette.field, words)
    bench.qtbot.keyClick(palette.field, Qt.Key.Key_Return)
    assert not palette.isVisible()


@pytest.mark.parametrize(
    ("better", "worse", "typed"),
    [
        ("Theme: Dark", "Look at this machine again", "dark"),
        ("Load as planned", "Unload", "load"),
        ("Undo the change of the plan", "Plan", "und pl"),
        ("Reset to the fastest plan", "Redo it", "rtf"),
        ("New chat", "Save the chat…", "n chat"),
        ("Move to RAM", "Move to Disk", "MOVE ram"),
    ],
)
def test_the_better_fit_comes_first(better: str, worse: str, typed: str) -> None:
    first, second = score(typed, better), score(typed, worse)
    assert first is not None
    assert second is None or first > second


@pytest.mark.parametrize("typed", ["xyz", "dark xyz", "z", "r.f", "(", "rtx"])
def test_what_does_not_fit_is_not_found(typed: str) -> None:
    assert score(typed, "Reset to the fastest plan, dark") is None


def test_each_action_of_the_menus_is_a_command_with_its_keys(opened: Bench) -> None:
    palette = opened_palette(opened)
    for key, action in opened.desk.menus.actions.items():
        (command,) = [each for each in palette.list.commands if each.action is action]
        assert command.words == action.text(), key
        if not action.shortcut().isEmpty():
            assert command.keys == action.shortcut().toString(), key
    assert {"Theme: Dark", "Theme: Light", "Theme: Like the system"} <= set(palette.shown)


@pytest.mark.parametrize(("typed", "theme"), [("theme dark", "dark"), ("drk", None), ("dark mode", "dark")])
def test_the_theme_is_changed_by_a_few_letters(opened: Bench, typed: str, theme: str | None) -> None:
    if theme is None:
        palette = opened_palette(opened)
        opened.qtbot.keyClicks(palette.field, typed)
        assert palette.shown == []
        return
    do(opened, typed)
    assert opened.session.settings.theme == theme


def test_a_model_is_opened_again(make_bench: MakeBench) -> None:
    model = dense()
    bench = make_bench(model=model, recent_folders=("/models/first", model.folder))
    do(bench, f"open recent {Path(model.folder).name}")
    bench.qtbot.waitUntil(lambda: bench.session.state.model is not None)


def test_another_machine_is_planned_for(opened: Bench) -> None:
    palette = opened_palette(opened)
    opened.qtbot.keyClicks(palette.field, "plan for machine 4090")
    opened.qtbot.waitUntil(lambda: any("4090" in each for each in palette.shown))
    opened.qtbot.keyClick(palette.field, Qt.Key.Key_Return)
    assert opened.session.elsewhere is not None
    assert "4090" in opened.session.elsewhere.title


@pytest.mark.parametrize("view", ["map", "table"])
def test_chosen_layers_are_moved(opened: Bench, view: str) -> None:
    work = opened.desk.work
    work.show_view(view)
    layer = "model.layers.3"
    if view == "map":
        work.map.focus_block(layer)
    else:
        work.table.choose((layer,))
    before = dict(opened.session.state.plan.device_map())[layer]  # type: ignore[union-attr]
    goal = "disk" if before != "disk" else "RAM"
    do(opened, f"move {goal}")
    opened.qtbot.waitUntil(lambda: opened.session.is_by_hand)
    assert dict(opened.session.planning.pins)[layer] == ("disk" if goal == "disk" else "cpu")


@pytest.mark.parametrize(
    ("reason", "stays"),
    [
        (Qt.FocusReason.PopupFocusReason, True),
        (Qt.FocusReason.MenuBarFocusReason, True),
        (Qt.FocusReason.ActiveWindowFocusReason, True),
        (Qt.FocusReason.TabFocusReason, False),
        (Qt.FocusReason.MouseFocusReason, False),
    ],
)
def test_what_is_chosen_on_the_map_stays_while_a_menu_is_open(
    opened: Bench, reason: Qt.FocusReason, stays: bool
) -> None:
    lanes = opened.desk.work.map
    lanes.focus_block("model.layers.3")
    QApplication.sendEvent(lanes, QFocusEvent(QEvent.Type.FocusOut, reason))
    assert bool(lanes.chosen) is stays


def test_without_chosen_layers_nothing_is_moved(opened: Bench) -> None:
    palette = opened_palette(opened)
    assert not any(each.startswith("Move to") for each in palette.shown)


def test_keys_choose_and_what_was_used_comes_first_the_next_time(opened: Bench) -> None:
    palette = opened_palette(opened)
    first, second = palette.shown[:2]
    for key, there in (
        (Qt.Key.Key_Down, second), (Qt.Key.Key_Up, first), (Qt.Key.Key_Tab, second), (Qt.Key.Key_Backtab, first),
    ):  # fmt: skip
        opened.qtbot.keyClick(palette.field, key)
        assert palette.chosen is not None
        assert palette.chosen.words == there
    opened.qtbot.keyClick(palette.field, Qt.Key.Key_Up)
    assert palette.view.currentIndex().row() == len(palette.shown) - 1
    opened.qtbot.keyClick(palette.field, Qt.Key.Key_Escape)
    do(opened, "layers table")
    assert opened.desk.work.view == "table"
    assert opened_palette(opened).shown[0] == "Layers as a table"


def test_what_cant_be_done_now_comes_last_and_does_nothing(opened: Bench) -> None:
    palette = opened_palette(opened)
    opened.qtbot.keyClicks(palette.field, "unload")
    assert palette.chosen is not None
    assert not palette.chosen.possible
    opened.qtbot.keyClick(palette.field, Qt.Key.Key_Return)
    assert palette.isVisible()
    states = [each.possible for each in palette.list.commands]
    assert states == sorted(states, reverse=True)


@pytest.mark.parametrize("way", ["escape", "again", "click beside"])
def test_it_closes_and_the_focus_comes_back(opened: Bench, way: str) -> None:
    opened.desk.work.show_side("chat")
    entry = opened.desk.work.chat.entry
    entry.setFocus()
    palette = opened_palette(opened)
    if way == "escape":
        opened.qtbot.keyClick(palette.field, Qt.Key.Key_Escape)
    elif way == "again":
        opened.qtbot.keyClick(opened.window, Qt.Key.Key_K, CONTROL)
    else:
        opened.qtbot.mouseClick(entry.viewport(), Qt.MouseButton.LeftButton)
    assert not palette.isVisible()
    assert entry.hasFocus()


def test_a_click_in_the_list_does_it(opened: Bench) -> None:
    opened.qtbot.mouseClick(opened.desk.title.search, Qt.MouseButton.LeftButton)
    palette = opened.desk.command_palette
    opened.qtbot.keyClicks(palette.field, "theme light")
    at = palette.view.visualRect(palette.list.index(0)).center()
    opened.qtbot.mouseClick(palette.view.viewport(), Qt.MouseButton.LeftButton, pos=at)
    assert opened.session.settings.theme == "light"


def test_menus_that_change_while_it_is_open_are_read_again(opened: Bench) -> None:
    palette = opened_palette(opened)
    opened.session.change_settings(recent_folders=("/models/brand-new",))
    assert "Opened before: brand-new" in palette.shown
    opened.qtbot.keyClicks(palette.field, "brand")
    assert palette.shown == ["Opened before: brand-new"]


def test_all_of_it_has_a_name_for_a_reader_of_the_screen(opened: Bench) -> None:
    palette = opened_palette(opened)
    reached = [each for each in palette.findChildren(QWidget) if each.focusPolicy() & Qt.FocusPolicy.TabFocus]
    assert palette.field in reached
    assert all(each.accessibleName() for each in [*reached, palette.view])
    spoken = palette.list.index(0).data(Qt.ItemDataRole.AccessibleTextRole)
    assert spoken.startswith(palette.list.commands[0].words)


def test_choices_in_lists_come_last_while_nothing_is_typed(opened: Bench) -> None:
    shown = [each for each in opened_palette(opened).list.commands if each.possible]
    assert [each.picked for each in shown] == sorted(each.picked for each in shown)
    assert any(each.picked for each in shown)


def test_a_menu_within_a_menu_is_walked(opened: Bench) -> None:
    outer = QMenu("Outer", opened.window)
    inner = outer.addMenu("&Inner")
    inner.addAction("Deep\tD")
    inner.addSeparator()
    outer.addAction("&Flat")
    assert [(each.words, each.keys) for each in commands_of([("Top", outer)])] == [("Inner: Deep", "D"), ("Flat", "")]


@pytest.mark.parametrize("name", ["light", "dark"])
def test_its_words_are_seen_in_both_themes(qapp: QApplication, make_bench: MakeBench, name: str) -> None:
    """The style sheet gives the list a transparent ground, which must not be taken for a dark one."""
    themes = ThemeSwitch(qapp, name)
    try:
        bench = make_bench()
        themes.dress(bench.window)
        palette = bench.desk.command_palette
        palette.open()
        row = palette.view.visualRect(palette.list.index(1))
        picture = palette.grab().toImage()
        at = palette.view.viewport().mapTo(palette, row.topLeft())
        lights = [
            picture.pixelColor(x, y).lightness()
            for x in range(at.x() + 11, at.x() + 140)
            for y in range(at.y() + 6, at.y() + row.height() - 6)
        ]
        assert max(lights) - min(lights) > 150
    finally:
        themes.choose("system")
