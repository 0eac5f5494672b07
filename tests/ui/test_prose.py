"""Growing text: the same picture however it came, plain text to copy."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from layerlight.ui.prose import FREEZE, Prose

MARKED = "A **bold** word, some `code` and *slant*.\n\n```python\nfor x in y:\n    pass\n```\n# Heading\n"
TEXT = MARKED + "word " * 60


@pytest.mark.parametrize("width", [200, 350])
@pytest.mark.parametrize("step", [1, 3, 17, 1000])
def test_text_in_pieces_looks_like_the_whole(qtbot: QtBot, width: int, step: int) -> None:
    whole, grown = Prose(TEXT), Prose()
    for each in (whole, grown):
        qtbot.addWidget(each)
        each.resize(width, 10)
        each.show()
    for start in range(0, len(TEXT), step):
        grown.append(TEXT[start : start + step])
    assert grown.text == TEXT
    assert grown.height() == whole.height()
    assert [piece.shown for piece in grown._pieces] == [piece.shown for piece in whole._pieces]
    assert grown.grab().toImage() == whole.grab().toImage()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=12), max_size=20))
def test_any_pieces_are_kept_whole(qtbot: QtBot, pieces: list[str]) -> None:
    prose = Prose()
    qtbot.addWidget(prose)
    prose.resize(200, 10)
    for piece in pieces:
        prose.append(piece)
    assert prose.text == "".join(pieces)


def test_a_long_paragraph_is_frozen_at_line_starts(qtbot: QtBot) -> None:
    prose = Prose()
    qtbot.addWidget(prose)
    prose.resize(200, 10)
    prose.show()
    for _ in range(FREEZE * 20):
        prose.append("another word ")
    whole = Prose(prose.text)
    qtbot.addWidget(whole)
    whole.resize(200, 10)
    whole.show()
    assert len(prose._pieces) > 3
    assert "".join(piece.raw for piece in prose._pieces) == prose.text
    assert abs(prose.height() - whole.height()) <= 21
    prose.resize(260, 10)
    whole.resize(260, 10)
    assert prose.height() == whole.height()


def test_selected_text_is_copied_without_marks(qtbot: QtBot) -> None:
    prose = Prose("Say **this** and\n`that`.")
    qtbot.addWidget(prose)
    prose.resize(300, 50)
    prose.show()
    prose.setFocus()
    qtbot.keyClick(prose, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClick(prose, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "Say this and\nthat."


def test_dragging_selects(qtbot: QtBot) -> None:
    prose = Prose("Some words to drag over")
    qtbot.addWidget(prose)
    prose.resize(300, 30)
    prose.show()
    qtbot.mousePress(prose, Qt.MouseButton.LeftButton, pos=QPoint(1, 10))
    prose._cursor = prose._position(QPointF(100, 10))
    assert "Some words to drag".startswith(prose.selected())
    assert len(prose.selected()) > 3
