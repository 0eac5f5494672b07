"""The legend of the map: what its drawings mean, in one line."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter

from layerlight.ui.block_looks import draw_body, draw_experts, draw_pin
from layerlight.ui.controls import draw_words
from layerlight.ui.hatching import hatch
from layerlight.ui.lanes import Unit
from layerlight.ui.map_light import glow
from layerlight.ui.palette import Theme
from layerlight.ui.theme import font

PINNED = "by hand"
EXPERTS = "experts"
LEGEND = ("planned", "loading", "resting", "running", "KV cache", "working memory", "margin", "other programs")


def draw_legend(p: QPainter, area: QRectF, hue: str, t: Theme, pinned: bool = False, experts: bool = False) -> None:
    """What the drawings mean, in one line; what has no room is left out from the end."""
    x, y = area.left(), area.center().y()
    measure = QFontMetricsF(font(11))
    for name in (*((PINNED,) if pinned else ()), *((EXPERTS,) if experts else ()), *LEGEND):
        wide = 25 + measure.horizontalAdvance(name) + 15
        if x + wide > area.right() + 15:
            return
        box = QRectF(x, y - 6, 20, 12)
        match name:
            case "running":
                glow(p, box, t, 3)
            case "margin":
                hatch(p, box, t.hatch, 4)
            case "experts":
                draw_experts(p, box, Unit("", "", "experts", -1, 0, state="resting", experts=6), hue, t)
            case "by hand":
                draw_body(p, box, "planned", hue, t, 3)
                draw_pin(p, box, t)
            case "other programs":
                p.setPen(Qt.PenStyle.NoPen)
                p.setBrush(QColor(t.other))
                p.drawRoundedRect(box, 3, 3)
            case "KV cache":
                p.fillRect(box.adjusted(6, 0, -6, 0), t.tint(hue, 0.62))
            case "working memory":
                draw_body(p, box, "resting", hue, t, 3, pale=True)
            case _:
                draw_body(p, box, name, hue, t, 3, 0.5)
        draw_words(p, QRectF(x + 25, y - 9, 130, 18), name, t.ink2, 11)
        x += wide
