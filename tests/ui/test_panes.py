"""The side panels are as wide as a person left them; the middle takes the rest; the window can fill the screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from layerlight.ui.panes import NARROWEST, Panes
from layerlight.ui.work_panel import WorkPanel
from tests.ui.conftest import Bench, MakeBench

LEFT, RIGHT = 280, 352


def panes_of(bench: Bench) -> Panes:
    bench.qtbot.waitUntil(lambda: bench.desk.working)
    return bench.desk.work.panes


def kept(bench: Bench) -> str:
    return bench.session.settings.window_state


def test_a_handle_pulled_by_the_mouse_changes_the_width_and_it_is_kept(opened: Bench) -> None:
    panes = panes_of(opened)
    assert (panes.widths[0], panes.widths[2]) == (LEFT, RIGHT)
    handle = panes.handles[1]
    at = handle.rect().center()
    QTest.mousePress(handle, Qt.MouseButton.LeftButton, pos=at)
    for _ in range(3):
        QTest.mouseMove(handle, at - QPoint(20, 0))
        QApplication.processEvents()  # the handle follows the mouse
    QTest.mouseRelease(handle, Qt.MouseButton.LeftButton, pos=at)
    wide = panes.widths[2]
    assert wide == RIGHT + 60
    opened.qtbot.waitUntil(lambda: kept(opened) == f"{LEFT},{wide}")


def test_keys_widen_and_narrow_the_right_panel_within_bounds(opened: Bench) -> None:
    panes = panes_of(opened)
    opened.window.activateWindow()
    opened.qtbot.waitUntil(opened.window.isActiveWindow)
    opened.qtbot.keyClick(opened.window, Qt.Key.Key_BracketLeft, Qt.KeyboardModifier.ControlModifier)
    assert panes.widths[2] == RIGHT + 40
    for _ in range(30):
        opened.desk.menus.actions["wider_side"].trigger()
    assert panes.widths[2] == 2 * RIGHT
    for _ in range(30):
        opened.desk.menus.actions["narrower_side"].trigger()
    assert panes.widths[2] == RIGHT
    opened.window.resize(1000, 600)
    for _ in range(30):
        opened.desk.menus.actions["wider_side"].trigger()
    assert panes.widths[1] >= NARROWEST


def test_the_left_panel_is_hidden_and_comes_back_as_wide_as_it_was(make_bench: MakeBench) -> None:
    bench = make_bench(window_state="330,400")
    bench.open()
    panes = panes_of(bench)
    assert (panes.widths[0], panes.widths[2]) == (330, 400)
    bench.desk.menus.actions["left_panel"].trigger()
    assert not bench.desk.work.facts.isVisible()
    bench.qtbot.waitUntil(lambda: kept(bench) == "330,400,hidden")
    bench.desk.menus.actions["left_panel"].trigger()
    assert bench.desk.work.facts.isVisible()
    assert panes.widths[0] == 330
    bench.qtbot.waitUntil(lambda: kept(bench) == "330,400")


def test_a_hidden_left_panel_stays_hidden_the_next_time(make_bench: MakeBench) -> None:
    bench = make_bench(window_state="330,400,hidden")
    bench.open()
    panes = panes_of(bench)
    assert not bench.desk.work.facts.isVisible()
    assert panes.widths[2] == 400
    bench.desk.menus.actions["left_panel"].trigger()
    assert panes.widths[0] == 330


@pytest.mark.parametrize(
    "state", ["", "rubbish", "1,2", "-5,9999", "99999999,x,hidden?", ",", "٣,٤", "280", "9" * 5000 + ",1"]
)
def test_h08_whatever_is_kept_the_panels_can_be_seen(make_bench: MakeBench, state: str) -> None:
    bench = make_bench(window_state=state)
    bench.open()
    left, middle, right = panes_of(bench).widths
    assert LEFT <= left <= 2 * LEFT
    assert RIGHT <= right <= 2 * RIGHT
    assert middle >= NARROWEST


def test_plan_and_chat_share_one_width(loaded: Bench) -> None:
    """The map beside them must not be drawn anew when they change."""
    panes = panes_of(loaded)
    loaded.desk.menus.actions["wider_side"].trigger()
    wide = {side: (loaded.desk.work.show_side(side), panes.widths[2])[1] for side in ("plan", "chat", "log")}
    assert set(wide.values()) == {RIGHT + 40}


def test_only_the_middle_grows_with_the_window(opened: Bench) -> None:
    panes = panes_of(opened)
    opened.desk.menus.actions["wider_side"].trigger()
    before = panes.widths
    opened.window.resize(opened.window.width() + 200, opened.window.height())
    opened.qtbot.waitUntil(lambda: panes.widths[1] == before[1] + 200)
    assert (panes.widths[0], panes.widths[2]) == (before[0], before[2])


def test_the_window_fills_the_screen_and_comes_back(opened: Bench) -> None:
    opened.window.activateWindow()
    opened.qtbot.waitUntil(opened.window.isActiveWindow)
    opened.qtbot.keyClick(opened.window, Qt.Key.Key_F11)
    opened.qtbot.waitUntil(opened.window.isFullScreen)
    opened.desk.menus.actions["full_screen"].trigger()
    opened.qtbot.waitUntil(lambda: not opened.window.isFullScreen())


def test_a_double_click_gives_the_usual_widths(make_bench: MakeBench) -> None:
    bench = make_bench(window_state="330,400")
    bench.open()
    panes = panes_of(bench)
    QTest.mouseDClick(panes.handles[0], Qt.MouseButton.LeftButton)
    assert (panes.widths[0], panes.widths[2]) == (LEFT, RIGHT)
    bench.qtbot.waitUntil(lambda: kept(bench) == f"{LEFT},{RIGHT}")


def test_pulled_right_to_left_it_is_mirrored(opened: Bench) -> None:
    panes = panes_of(opened)
    opened.window.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    assert panes.handles[1].x() < opened.window.width() // 2
    handle = panes.handles[1]
    at = handle.rect().center()
    QTest.mousePress(handle, Qt.MouseButton.LeftButton, pos=at)
    QTest.mouseMove(handle, at + QPoint(30, 0))
    QTest.mouseRelease(handle, Qt.MouseButton.LeftButton, pos=at)
    assert panes.widths[2] == RIGHT + 30


def test_a_narrower_window_takes_from_the_panels_and_a_wider_one_gives_back(opened: Bench) -> None:
    panes = panes_of(opened)
    for _ in range(30):
        opened.desk.menus.actions["wider_side"].trigger()
    opened.window.resize(1000, 600)
    opened.qtbot.waitUntil(lambda: panes.width() == 1000)
    left, middle, right = panes.widths
    assert (left, middle) == (LEFT, NARROWEST)
    assert right >= RIGHT
    opened.window.resize(1600, 900)
    opened.qtbot.waitUntil(lambda: panes.widths[2] == 2 * RIGHT)
    assert kept(opened) in ("", f"{LEFT},{2 * RIGHT}")


def test_putting_the_panes_together_styles_nothing_in_them(bench: Bench, tmp_path: Path) -> None:
    """Each part finds its style in a step of its own, when it comes in: all at once would be a stall."""
    work = WorkPanel(bench.session, tmp_path / "log", ready=())
    bench.qtbot.addWidget(work)
    polished = Qt.WidgetAttribute.WA_WState_Polished
    parts = (work.facts, work.verdict, work.plan, work.chat, work.chat.past, work.log)
    assert not [each for each in parts if each.testAttribute(polished)]
    steps = sum(1 for _ in work.settle())
    assert steps > len(parts)
    assert all(each.testAttribute(polished) for each in parts)
