"""A page's parts are painted one in each turn of the event loop, and every one in the end."""

from __future__ import annotations

from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from layerlight.ui.reveal import Reveal


def test_parts_are_painted_one_by_one_and_none_is_left_out(qtbot: QtBot) -> None:
    page = QWidget()
    qtbot.addWidget(page)
    inside = QVBoxLayout(page)
    parts = [QLabel(str(number)) for number in range(3)]
    for part in parts:
        inside.addWidget(part)
    painted: list[tuple[bool, ...]] = []
    reveal = Reveal(page, parts)
    reveal._timer.timeout.connect(lambda: painted.append(tuple(part.updatesEnabled() for part in parts)))
    assert not any(part.updatesEnabled() for part in parts)
    page.show()
    with qtbot.waitSignal(reveal.destroyed):
        pass
    assert painted[:3] == [(True, False, False), (True, True, False), (True, True, True)]
