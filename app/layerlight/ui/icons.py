"""Line icons on a 16 px grid, drawn, so that they follow theme and scale."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QIcon, QPainter, QPainterPath, QPen, QPixmap

from layerlight.ui.palette import LIGHT, Theme
from layerlight.ui.theme import font

Lines = tuple[tuple[float, float, float, float], ...]

_STROKES: dict[str, Lines] = {
    "ram": (
        (4.5, 6.5, 4.5, 8.5), (8, 6.5, 8, 8.5), (11.5, 6.5, 11.5, 8.5), (3, 12.5, 3, 13), (6.3, 12.5, 6.3, 13),
        (9.6, 12.5, 9.6, 13), (13, 12.5, 13, 13),
    ),
    "disk": ((2.5, 4, 2.5, 12), (13.5, 4, 13.5, 12)),
    "ask": ((10.2, 10.2, 14, 14),),
    "get": ((8, 2, 8, 10), (4.8, 7, 8, 10.2), (11.2, 7, 8, 10.2), (2.5, 13.5, 13.5, 13.5)),
}  # fmt: skip


def draw_icon(p: QPainter, kind: str, x: float, y: float, colour: str, size: float = 16) -> None:
    """`gpu`, `gpu2`, `ram`, `disk`, `folder`, `get` or `ask`, its top left corner at (x, y)."""
    p.save()
    p.translate(x, y)
    p.scale(size / 16, size / 16)
    p.setPen(QPen(QColor(colour), 1.4, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap, Qt.PenJoinStyle.RoundJoin))
    p.setBrush(Qt.BrushStyle.NoBrush)
    match kind:
        case "gpu" | "gpu2":
            p.drawRoundedRect(QRectF(3.5, 3.5, 9, 9), 1.5, 1.5)
            p.drawRect(QRectF(6.2, 6.2, 3.6, 3.6))
            for along in (6.0, 10.0):
                for start, end in ((1.2, 3.2), (12.8, 14.8)):
                    p.drawLine(QPointF(along, start), QPointF(along, end))
                    p.drawLine(QPointF(start, along), QPointF(end, along))
        case "ram":
            p.drawRoundedRect(QRectF(1.2, 4.5, 13.6, 6), 1, 1)
        case "disk":
            p.drawEllipse(QRectF(2.5, 2, 11, 4))
            p.drawArc(QRectF(2.5, 10, 11, 4), 180 * 16, 180 * 16)
            p.drawArc(QRectF(2.5, 6, 11, 4), 180 * 16, 180 * 16)
        case "ask":
            p.drawEllipse(QRectF(2.5, 2.5, 9, 9))
        case "folder":
            path = QPainterPath(QPointF(1.5, 12.5))
            for corner in ((1.5, 3.5), (6.0, 3.5), (7.5, 5.3), (14.5, 5.3), (14.5, 12.5)):
                path.lineTo(*corner)
            path.closeSubpath()
            p.drawPath(path)
    for x1, y1, x2, y2 in _STROKES.get(kind, ()):
        p.drawLine(QPointF(x1, y1), QPointF(x2, y2))
    p.restore()


def draw_verdict(p: QPainter, kind: str, rect: QRectF, theme: Theme) -> None:
    """`slow` a triangle, `fits` a circle, `failed` a square: a verdict reads without its colour."""
    sign = {"slow": "!", "fits": "✓", "failed": "✕"}[kind]
    p.setPen(Qt.PenStyle.NoPen)
    p.setBrush(QBrush(QColor(theme.danger if kind == "failed" else theme.ink)))
    size = min(rect.width(), rect.height())
    box = QRectF(rect.left(), rect.center().y() - size / 2, size, size)
    match kind:
        case "slow":
            p.drawPolygon([QPointF(box.center().x(), box.top()), box.bottomRight(), box.bottomLeft()])
        case "fits":
            p.drawEllipse(box)
        case _:
            p.drawRoundedRect(box, 4, 4)
    p.setPen(QColor(theme.panel))
    p.setFont(font(13, 700))
    p.drawText(box.translated(0, 2.5 if kind == "slow" else 0), int(Qt.AlignmentFlag.AlignCenter), sign)


def draw_mark(p: QPainter, rect: QRectF, theme: Theme) -> None:
    """The program's mark: three layers, the middle one lit."""
    p.setPen(Qt.PenStyle.NoPen)
    high = rect.height() / 4.1
    for i in range(3):
        p.setBrush(QColor(theme.light if i == 1 else theme.ink))
        box = QRectF(rect.left(), rect.top() + i * high * 1.55, rect.width(), high)
        p.drawRoundedRect(box, high / 3, high / 3)


def window_icon() -> QIcon:
    """The mark on a light tile, for task bars and window lists."""
    icon = QIcon()
    for size in (16, 32, 64, 128, 256):
        picture = QPixmap(size, size)
        picture.fill(Qt.GlobalColor.transparent)
        p = QPainter(picture)
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        p.setPen(Qt.PenStyle.NoPen)
        p.setBrush(QColor(LIGHT.panel))
        p.drawRoundedRect(QRectF(0, 0, size, size), size * 0.2, size * 0.2)
        draw_mark(p, QRectF(size * 0.2, size * 0.2, size * 0.6, size * 0.6), LIGHT)
        p.end()
        icon.addPixmap(picture)
    return icon
