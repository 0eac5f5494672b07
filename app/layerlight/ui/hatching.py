"""Hatching: 45° lines, the texture of memory that must stay empty, and of waiting."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QPixmap


def hatch(p: QPainter, rect: QRectF, colour: QColor | str, step: int = 5, width: float = 1.2) -> None:
    """45° lines: the texture of memory that must stay empty, and of waiting."""
    tile = _hatching(QColor(colour).rgba(), step, width, p.device().devicePixelRatioF())
    side = tile.width() / tile.devicePixelRatio()
    p.drawTiledPixmap(rect, tile, QPointF(rect.left() % side, rect.top() % side))


@lru_cache(maxsize=64)
def _hatching(rgba: int, step: int, width: float, ratio: float) -> QPixmap:
    """A square of lines that goes on seamlessly: drawing each line anew takes as long as all the rest of a picture."""
    side = step * 8
    tile = QPixmap(round(side * ratio), round(side * ratio))
    tile.setDevicePixelRatio(ratio)
    tile.fill(Qt.GlobalColor.transparent)
    p = QPainter(tile)
    p.setRenderHint(QPainter.RenderHint.Antialiasing)
    p.setPen(QPen(QColor.fromRgba(rgba), width))
    for x in range(-side, side + step, step):
        p.drawLine(QPointF(x - step, side + step), QPointF(x + side + step, -step))
    p.end()
    return tile
