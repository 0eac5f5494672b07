"""Stamps: what is drawn once and set down often looks as if it were drawn each time."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QRectF
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from layerlight.ui.block_looks import draw_body
from layerlight.ui.palette import DARK, LIGHT, Theme
from layerlight.ui.stamps import MOST, Stamps


def sheet(ratio: float) -> QImage:
    image = QImage(round(300 * ratio), round(120 * ratio), QImage.Format.Format_ARGB32_Premultiplied)
    image.setDevicePixelRatio(ratio)
    image.fill(0)
    return image


@pytest.mark.parametrize("ratio", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("state", ["planned", "resting"])
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_a_stamped_block_is_the_drawn_one(qapp: QApplication, ratio: float, state: str, theme: Theme) -> None:
    block = QRectF(20, 30, 211, 11)
    drawn, stamped = sheet(ratio), sheet(ratio)
    p = QPainter(drawn)
    p.setRenderHint(QPainter.RenderHint.Antialiasing)
    draw_body(p, block, state, "gpu", theme, 2)
    p.end()
    stamps = Stamps()
    p = QPainter(stamped)
    for _ in range(2):
        stamps.set_down(p, QRectF(), "nothing", lambda q, r: q.drawRect(r))
    stamps.set_down(p, block, "block", lambda q, r: draw_body(q, r, state, "gpu", theme, 2))
    p.end()
    assert drawn == stamped


def test_the_same_look_is_drawn_once(qapp: QApplication) -> None:
    drawn: list[QRectF] = []
    stamps, image = Stamps(), sheet(1)
    p = QPainter(image)
    for top in range(5):
        stamps.set_down(p, QRectF(0, 20 * top, 50, 10), "look", lambda _q, r: drawn.append(r))
    stamps.set_down(p, QRectF(0, 0, 60, 10), "look", lambda _q, r: drawn.append(r))
    stamps.set_down(p, QRectF(0, 0, 60, 10), "another", lambda _q, r: drawn.append(r))
    p.end()
    assert len(drawn) == 3


def test_it_does_not_grow_without_end(qtbot: QtBot) -> None:
    stamps, image = Stamps(), sheet(1)
    p = QPainter(image)
    for number in range(3 * MOST):
        stamps.set_down(p, QRectF(0, 0, 4, 4), number, lambda _q, _r: None)
        assert len(stamps) <= MOST
    p.end()
