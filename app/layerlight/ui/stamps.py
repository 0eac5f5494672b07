"""Stamps: small pictures that are drawn once and set down many times, for a model has a hundred equal layers."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPixmap

MOST = 256
"""Stamps that are kept; beyond that all are made anew."""
EDGE = 1.0
"""px around a stamp for what is drawn across its edge."""


class Stamps:
    """Pictures by what they show, their size in device pixels and the screen's ratio."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, QPixmap] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def set_down(self, p: QPainter, r: QRectF, what: Hashable, draw: Callable[[QPainter, QRectF], None]) -> None:
        """`draw` paints the picture into a rectangle of the size of `r`. It is set down on whole device pixels."""
        ratio = p.device().devicePixelRatioF()
        wide, high = round(r.width() * ratio), round(r.height() * ratio)
        if wide <= 0 or high <= 0:
            return
        key = (what, wide, high, ratio)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= MOST:
                self._kept.clear()
            found = self._kept[key] = _made(wide / ratio, high / ratio, ratio, draw)
        left, top = round(r.left() * ratio) / ratio, round(r.top() * ratio) / ratio
        p.drawPixmap(QPointF(left - EDGE, top - EDGE), found)


def _made(wide: float, high: float, ratio: float, draw: Callable[[QPainter, QRectF], None]) -> QPixmap:
    picture = QPixmap(round((wide + 2 * EDGE) * ratio), round((high + 2 * EDGE) * ratio))
    picture.setDevicePixelRatio(ratio)
    picture.fill(Qt.GlobalColor.transparent)
    p = QPainter(picture)
    p.setRenderHint(QPainter.RenderHint.Antialiasing)
    draw(p, QRectF(EDGE, EDGE, wide, high))
    p.end()
    return picture
