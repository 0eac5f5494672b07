"""Heat: the map's blocks shaded by the time they take, or by the bytes they move, in place of their place's colour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen

from layerlight.ui.controls import draw_words
from layerlight.ui.layer_table import LayerRow
from layerlight.ui.palette import Theme
from layerlight.ui.words import duration, short_size

PLACES, TIME, MOVED = "places", "time", "moved"
MODES = ((PLACES, "Places"), (TIME, "Time"), (MOVED, "Bytes moved"))
SHADES = 12
"""Steps from nothing to the most."""
MIDDLE = 0.46
"""The lightness of the grey on which black and white words are equally readable."""


@dataclass(frozen=True, slots=True)
class Heat:
    """Shares by layer, 0 to 1 of the layer that has most."""

    mode: str
    shares: Mapping[str, float]
    most: str
    """What the darkest layer has, in words."""

    def share(self, key: str) -> float | None:
        return self.shares.get(key)


def heat_of(rows: Iterable[LayerRow], mode: str) -> Heat | None:
    """None where blocks keep the colours of their places."""
    if mode == PLACES:
        return None
    rows = tuple(rows)
    values = {row.unit.key: row.unit.seconds if mode == TIME else float(row.moved) for row in rows}
    most = max(values.values(), default=0.0)
    shares = {key: round(SHADES * value / most) / SHADES if most else 0.0 for key, value in values.items()}
    words = f"{duration(most)} of a token" if mode == TIME else f"{short_size(round(most))} a pass"
    return Heat(mode, shares, words if most else "nothing")


def draw_heat(p: QPainter, r: QRectF, share: float, solid: bool, t: Theme, corner: float) -> None:
    """A block in its shade; what does not rest yet keeps an outline."""
    p.setPen(QPen(Qt.PenStyle.NoPen) if solid else QPen(QColor(t.ink2), 1))
    p.setBrush(shade(share, t))
    p.drawRoundedRect(r if solid else r.adjusted(0.5, 0.5, -0.5, -0.5), corner, corner)


def shade(share: float, t: Theme) -> QColor:
    """From the lane's own ground to ink: told apart by lightness alone, whatever colours an eye sees."""
    ground, ink = QColor(t.well), QColor(t.ink)
    part = 0.05 + 0.85 * share
    mixed = (round(a + (b - a) * part) for a, b in zip(ground.getRgb()[:3], ink.getRgb()[:3], strict=True))  # type: ignore[index]
    return QColor(*mixed)


def heat_words(share: float, t: Theme) -> str:
    """The colour of words on a shade: of plain black and white one is readable on any grey, of softer inks none."""
    return "#000000" if (shade(share, t).lightnessF() > MIDDLE) else "#FFFFFF"


def draw_scale(p: QPainter, area: QRectF, heat: Heat, t: Theme) -> None:
    """The legend of the shades."""
    y = area.center().y()
    draw_words(p, QRectF(area.left(), y - 9, 60, 18), "nothing", t.ink2, 11)
    for step in range(SHADES + 1):
        p.fillRect(QRectF(area.left() + 56 + 14 * step, y - 6, 14, 12), shade(step / SHADES, t))
    left = area.left() + 56 + 14 * (SHADES + 1) + 10
    draw_words(p, QRectF(left, y - 9, area.right() - left, 18), heat.most, t.ink2, 11)
