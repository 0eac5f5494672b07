"""Looks of a block: planned, loading, resting, in cells of experts, without room, placed by hand."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen

from layerlight.ui.lanes import Unit
from layerlight.ui.palette import Theme
from layerlight.ui.theme import font

LOWEST_OUTLINE = 2.5
"""px below which the outlines of blocks would run together and look like what rests: those are pale instead."""
CELL = 5.0
"""px of an expert's cell at least."""


def draw_body(
    p: QPainter, r: QRectF, state: str, hue: str, t: Theme, corner: float, fill: float = 1.0, pale: bool = False
) -> None:
    """A block in one of its states, each readable without colour."""
    if state == "resting":
        p.setPen(QPen(t.tint(hue, 0.7), 1) if pale else QPen(Qt.PenStyle.NoPen))
        p.setBrush(t.tint(hue, 0.28) if pale else QColor(t.place(hue).fill))
        p.drawRoundedRect(r.adjusted(0.5, 0.5, -0.5, -0.5) if pale else r, corner, corner)
        return
    if r.height() < LOWEST_OUTLINE and state == "planned":
        p.fillRect(r, t.tint(hue, 0.3))
        return
    p.setPen(QPen(t.tint(hue, 0.85 if r.height() > 5 else 0.5), 1))
    p.setBrush(t.tint(hue, 0.20 if pale else 0.09))
    p.drawRoundedRect(r.adjusted(0.5, 0.5, -0.5, -0.5), corner, corner)
    if state == "loading":
        p.save()
        p.setClipRect(QRectF(r.left(), r.top(), r.width() * fill, r.height()), Qt.ClipOperation.IntersectClip)
        p.setPen(Qt.PenStyle.NoPen)
        p.setBrush(QColor(t.place(hue).fill))
        p.drawRoundedRect(r, corner, corner)
        p.restore()


def cells_of(r: QRectF, experts: int) -> tuple[int, int]:
    """(rows, columns) of the cells of so many experts: one each, or where that is too small to see one for several."""
    high = max(1, min(4, int(r.height() // CELL)))
    while experts > 1 and -(-experts // high) * CELL > r.width():
        experts = -(-experts // 2)
    return high, max(1, -(-experts // high))


def draw_experts(p: QPainter, r: QRectF, unit: Unit, hue: str, t: Theme) -> None:
    """A block of experts: cells, in the block's own state."""
    draw_body(p, r, unit.state, hue, t, 2 if r.height() >= 6 else 0, unit.fill)
    rows, columns = cells_of(r, unit.experts)
    if r.height() < CELL or columns < 2:
        return
    p.setPen(QPen(QColor(t.well) if unit.state == "resting" else t.tint(hue, 0.35), 1))
    for column in range(1, columns):
        x = r.left() + r.width() * column / columns
        p.drawLine(QPointF(x, r.top() + 0.5), QPointF(x, r.bottom() - 0.5))
    for row in range(1, rows):
        y = r.top() + r.height() * row / rows
        p.drawLine(QPointF(r.left(), y), QPointF(r.right(), y))


def clear_cells(p: QPainter, r: QRectF, words: str, state: str, hue: str, t: Theme) -> None:
    """A quiet ground for words on cells."""
    wide = QFontMetricsF(font(11)).horizontalAdvance(words) + 12
    box = QRectF(r.right() - wide - 1, r.top() + 1, wide, r.height() - 2)
    p.fillRect(box, QColor(t.place(hue).fill if state == "resting" else t.well))


def draw_beyond(p: QPainter, r: QRectF, t: Theme, corner: float) -> None:
    """A block that has no room: dashed, in the colour of failure."""
    colour = QColor(t.danger)
    p.setPen(QPen(colour, 1, Qt.PenStyle.DashLine))
    colour.setAlphaF(0.06)
    p.setBrush(colour)
    p.drawRoundedRect(r.adjusted(0.5, 0.5, -0.5, -0.5), corner, corner)


def draw_pin(p: QPainter, r: QRectF, t: Theme) -> None:
    """A block that was placed by hand: a notch of ink at its left edge, whatever its height."""
    p.setPen(QPen(QColor(t.window), 1))
    p.setBrush(QColor(t.ink))
    p.drawRoundedRect(QRectF(r.left() - 3, r.top() + 0.5, 5, max(3.0, r.height() - 1)), 1.5, 1.5)
