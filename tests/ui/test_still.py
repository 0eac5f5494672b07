"""Stills: an old picture is shown until the new one has had its turn; nothing is drawn twice or unseen."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from layerlight.ui.still import Still

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints", extend=True)


class Board(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.colour, self.drawn = "red", 0
        self.still = Still(self, self.draw)
        self.resize(40, 30)

    def draw(self, p: QPainter) -> None:
        self.drawn += 1
        p.fillRect(self.rect(), QColor(self.colour))

    def paintEvent(self, event: QPaintEvent) -> None:
        p = QPainter(self)
        self.still.paint(p, event.rect())

    def seen(self) -> str:
        return self.grab().toImage().pixelColor(5, 5).name()


@pytest.fixture
def board(qtbot: QtBot) -> Board:
    made = Board()
    qtbot.addWidget(made)
    made.show()
    assert made.seen() == "#ff0000"
    return made


def test_a_change_shows_after_its_turn_and_many_are_one(board: Board, qtbot: QtBot) -> None:
    drawn = board.drawn
    board.colour = "blue"
    for _ in range(5):
        board.still.change()
    assert not board.still.is_new
    assert board.seen() == "#ff0000"
    qtbot.waitUntil(lambda: board.still.is_new)
    assert board.seen() == "#0000ff"
    assert board.drawn == drawn + 1


def test_what_is_dropped_is_never_shown_again(board: Board) -> None:
    board.colour = "blue"
    board.still.drop()
    assert board.seen() == "#0000ff"


def test_another_size_is_drawn_at_once(board: Board) -> None:
    board.colour = "blue"
    board.resize(50, 30)
    assert board.seen() == "#0000ff"


def test_it_can_be_prepared_and_mended(board: Board) -> None:
    board.colour = "blue"
    board.still.change()
    board.still.prepare()
    assert board.still.is_new
    p = board.still.painter()
    p.fillRect(0, 0, 10, 10, QColor("lime"))
    p.end()
    assert board.seen() == "#00ff00"
