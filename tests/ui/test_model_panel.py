"""What the left panel says can be taken along, from its menu and by the window's commands."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QUrl
from PySide6.QtGui import QContextMenuEvent, QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QApplication, QMenu

from tests.ui.conftest import Bench


def words_of(menu: QMenu) -> list[str]:
    return [action.text() for action in menu.actions() if action.text()]


def test_its_menu_holds_what_can_be_copied(opened: Bench) -> None:
    panel = opened.desk.work.facts
    assert words_of(panel.menu()) == ["Copy all facts", "Copy the folder’s path", "Show the folder"]
    card = panel.cards[0]
    first, *_ = panel.menu(card).actions()
    assert first.text() == f"Copy what {card.lane.title} holds"
    first.trigger()
    assert QGuiApplication.clipboard().text() == card.accessibleName()


@pytest.mark.parametrize("where", ["card", "beside"])
def test_a_right_click_is_about_what_is_under_it(opened: Bench, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    shown: list[list[str]] = []
    monkeypatch.setattr(QMenu, "popup", lambda menu, _at: shown.append(words_of(menu)))
    panel = opened.desk.work.facts
    opened.qtbot.waitUntil(lambda: opened.desk.working)
    card = panel.cards[1]
    at = card.mapTo(panel, card.rect().center()) if where == "card" else QPoint(30, 20)
    QApplication.sendEvent(panel, QContextMenuEvent(QContextMenuEvent.Reason.Mouse, at, panel.mapToGlobal(at)))
    first = f"Copy what {card.lane.title} holds" if where == "card" else "Copy all facts"
    assert [words[0] for words in shown] == [first]


def test_the_facts_are_copied_by_a_command(opened: Bench) -> None:
    opened.desk.menus.actions["copy_facts"].trigger()
    lines = QGuiApplication.clipboard().text().splitlines()
    assert lines[0] == opened.model.name
    assert f"Architecture: {opened.model.architecture}" in lines
    assert any(line.startswith("RAM: ") for line in lines)


def test_the_folder_is_shown_by_a_command(opened: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: shown.append(QUrl(url).toLocalFile()))
    opened.desk.menus.actions["show_folder"].trigger()
    assert shown == [opened.model.folder]


def test_without_a_model_there_is_nothing_to_take(bench: Bench) -> None:
    assert not bench.desk.menus.actions["copy_facts"].isEnabled()
    assert not bench.desk.menus.actions["show_folder"].isEnabled()
