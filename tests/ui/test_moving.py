"""Blocks of the map are moved by hand: by a place's letter, by menu, by dragging, one or a range of them."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtWidgets import QApplication, QMenu

from layerlight.ui.layer_map import LayerMap
from layerlight.ui.map_hand import lane_at, letters_of
from tests import fakes
from tests.ui.conftest import Bench, MakeBench


@pytest.fixture
def large(make_bench: MakeBench) -> Bench:
    """40 layers on a card, in RAM and on the disk; the map has the focus on layer 10."""
    bench = make_bench(fakes.laptop(), fakes.fourteen_billion())
    bench.open()
    bench.qtbot.waitUntil(lambda: bench.desk.working)
    bench.window.activateWindow()
    layer_map = bench.desk.work.map
    layer_map.setFocus()
    layer_map.focus_block("model.layers.10")
    return bench


def map_of(bench: Bench) -> LayerMap:
    return bench.desk.work.map


def centre(bench: Bench, layer: str) -> QPoint:
    slot = map_of(bench).arranged.slot_of(layer)
    assert slot is not None
    return slot.rect.center().toPoint()


def lane(bench: Bench, place: str) -> QPoint:
    """A point on a place's lane."""
    arranged = map_of(bench).arranged
    number = [each.place for each in arranged.lanes].index(place)
    return (arranged.columns[number][0].topLeft() + QPointF(30, 40)).toPoint()


def place_of(bench: Bench, layer: str) -> str:
    assert bench.session.state.plan is not None
    return bench.session.state.plan.placement(layer).rests_on


@pytest.mark.parametrize(("key", "place"), [(Qt.Key.Key_R, "cpu"), (Qt.Key.Key_D, "disk"), (Qt.Key.Key_G, "cuda:0")])
def test_a_letter_moves_the_block_in_focus(large: Bench, key: Qt.Key, place: str) -> None:
    large.qtbot.keyClick(map_of(large), key)
    assert place_of(large, "model.layers.10") == place
    assert large.session.planning.pins == (("model.layers.10", place),)


def test_shift_and_arrows_choose_a_range(large: Bench) -> None:
    for _ in range(3):
        large.qtbot.keyClick(map_of(large), Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    names = [f"model.layers.{n}" for n in range(10, 14)]
    assert list(map_of(large).chosen) == names
    large.qtbot.keyClick(map_of(large), Qt.Key.Key_D)
    assert {place_of(large, name) for name in names} == {"disk"}
    large.qtbot.keyClick(map_of(large), Qt.Key.Key_Delete)
    assert large.session.planning.pins == ()


def test_shift_and_a_click_choose_a_range(large: Bench) -> None:
    large.qtbot.mouseClick(map_of(large), Qt.MouseButton.LeftButton, pos=centre(large, "model.layers.20"))
    large.qtbot.mouseClick(
        map_of(large), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ShiftModifier, centre(large, "model.layers.17")
    )
    assert list(map_of(large).chosen) == [f"model.layers.{n}" for n in range(17, 21)]
    large.qtbot.mouseClick(map_of(large), Qt.MouseButton.LeftButton, pos=centre(large, "model.layers.18"))
    assert map_of(large).chosen == ("model.layers.18",)


def drag(bench: Bench, layer: str, to: QPoint) -> None:
    start = centre(bench, layer)
    bench.qtbot.mousePress(map_of(bench), Qt.MouseButton.LeftButton, pos=start)
    bench.qtbot.mouseMove(map_of(bench), start + QPoint(20, 4))
    bench.qtbot.mouseMove(map_of(bench), to)


def test_blocks_are_dragged_onto_another_lane(large: Bench) -> None:
    layer_map = map_of(large)
    layer_map.focus_block("model.layers.30")
    layer_map.focus_block("model.layers.32", None, True)
    drag(large, "model.layers.31", lane(large, "cpu"))
    assert layer_map.grab().toImage().sizeInBytes()  # what is carried is drawn
    large.qtbot.mouseRelease(layer_map, Qt.MouseButton.LeftButton, pos=lane(large, "cpu"))
    assert {place_of(large, f"model.layers.{n}") for n in (30, 31, 32)} == {"cpu"}
    assert len(large.session.planning.pins) == 3


@pytest.mark.parametrize("end", ["outside", "escape"])
def test_a_drag_that_ends_nowhere_moves_nothing(large: Bench, end: str) -> None:
    drag(large, "model.layers.30", QPoint(2, 2))
    if end == "escape":
        large.qtbot.keyClick(map_of(large), Qt.Key.Key_Escape)
    large.qtbot.mouseRelease(map_of(large), Qt.MouseButton.LeftButton, pos=QPoint(2, 2))
    assert large.session.planning.pins == ()


def test_a_click_is_no_drag(large: Bench) -> None:
    large.qtbot.mouseClick(map_of(large), Qt.MouseButton.LeftButton, pos=centre(large, "model.layers.30"))
    assert large.session.planning.pins == ()


def test_what_is_no_layer_can_not_be_moved(large: Bench) -> None:
    map_of(large).focus_block("kv")
    large.qtbot.keyClick(map_of(large), Qt.Key.Key_R)
    assert large.session.planning.pins == ()


def test_letters_with_ctrl_stay_shortcuts(large: Bench) -> None:
    large.qtbot.keyClick(map_of(large), Qt.Key.Key_G, Qt.KeyboardModifier.ControlModifier)
    assert large.session.planning.pins == ()


def test_the_menu_does_the_same(large: Bench) -> None:
    menu = map_of(large).move_menu()
    words = {action.text().partition("\t")[0]: action for action in menu.actions()}
    assert not words["Leave it to the plan"].isEnabled()
    words["Move to Disk"].trigger()
    assert place_of(large, "model.layers.10") == "disk"
    again = {action.text().partition("\t")[0]: action for action in map_of(large).move_menu().actions()}
    again["Leave it to the plan"].trigger()
    assert large.session.planning.pins == ()
    again["Move to Disk"].trigger()
    again["Reset to the fastest plan"].trigger()
    assert large.session.planning.pins == ()


@pytest.mark.qt_log_ignore("does not support (raise|grabbing)", extend=True)
@pytest.mark.parametrize("reason", [QContextMenuEvent.Reason.Keyboard, QContextMenuEvent.Reason.Mouse])
def test_the_menu_opens_by_key_and_by_mouse(large: Bench, reason: QContextMenuEvent.Reason) -> None:
    at = centre(large, "model.layers.10")
    QApplication.sendEvent(map_of(large), QContextMenuEvent(reason, at, map_of(large).mapToGlobal(at)))
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    menu.close()


def test_undo_by_keyboard(large: Bench) -> None:
    large.qtbot.keyClick(map_of(large), Qt.Key.Key_D)
    assert place_of(large, "model.layers.10") == "disk"
    large.qtbot.keyClick(large.window, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert large.session.planning.pins == ()
    large.qtbot.keyClick(
        large.window, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    )
    assert large.session.planning.pins == (("model.layers.10", "disk"),)


def test_refusals_are_said(large: Bench) -> None:
    map_of(large).focus_block("model.layers.39", None, True)
    large.qtbot.keyClick(map_of(large), Qt.Key.Key_G)
    assert "missing on RTX 4060 Laptop" in large.desk.notice
    assert large.session.planning.pins == ()


def test_moving_while_a_model_is_loaded_shows_the_next_plan(loaded: Bench) -> None:
    loaded.qtbot.waitUntil(lambda: loaded.desk.working)
    layer_map = map_of(loaded)
    assert loaded.desk.work.side == "chat"
    layer_map.setFocus()
    layer_map.focus_block("model.layers.1")
    loaded.qtbot.keyClick(layer_map, Qt.Key.Key_R)
    assert loaded.desk.work.side == "plan"
    assert "after the next load" in loaded.desk.work.title


def test_letters_of_lanes() -> None:
    from dataclasses import replace

    from layerlight.core.state import State
    from layerlight.ui.lanes import lanes_of

    two = lanes_of(replace(State(), machine=fakes.two_cards()))
    assert letters_of(two) == {"G": "cuda:0", "H": "cuda:1", "R": "cpu", "D": "disk"}
    mac = lanes_of(replace(State(), machine=fakes.mac()))
    assert letters_of(mac) == {"G": "mps", "D": "disk"}


def test_below_a_short_lane_is_that_lane(large: Bench) -> None:
    arranged = map_of(large).arranged
    box = arranged.columns[0][0]
    assert lane_at(arranged, QPointF(box.center().x(), box.bottom() + 50)) == 0
    assert lane_at(arranged, QPointF(box.left() - 40, box.top())) is None
