"""The one light on the screen: what runs now, its halo, and the ribbon that brings a carried layer to where it runs."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPen, QPixmap

from layerlight.ui.arrangement import NUMBERS, PAD, Arrangement, Slot
from layerlight.ui.controls import draw_words
from layerlight.ui.lanes import Unit
from layerlight.ui.palette import Theme
from layerlight.ui.words import duration

RIGHT = Qt.AlignmentFlag.AlignRight
HALO = 12
LOWEST = 16
"""px: a lower block grows to this while it runs."""


class Halo:
    """The halo, kept as a picture per size: drawing a dozen rounded outlines each frame costs too much."""

    def __init__(self) -> None:
        self._pictures: dict[tuple[str, int, int, float], QPixmap] = {}

    def draw(self, p: QPainter, r: QRectF, t: Theme) -> None:
        ratio = p.device().devicePixelRatioF()
        key = (t.name, round(r.width()), round(r.height()), ratio)
        if key not in self._pictures:
            if len(self._pictures) > 24:
                self._pictures.clear()
            self._pictures[key] = _halo(r, t, ratio)
        p.drawPixmap(QPointF(r.left() - HALO - 2, r.top() - HALO - 2), self._pictures[key])


def _halo(r: QRectF, t: Theme, ratio: float) -> QPixmap:
    reach = HALO + 2
    picture = QPixmap(round((r.width() + 2 * reach) * ratio), round((r.height() + 2 * reach) * ratio))
    picture.setDevicePixelRatio(ratio)
    picture.fill(Qt.GlobalColor.transparent)
    p = QPainter(picture)
    p.setRenderHint(QPainter.RenderHint.Antialiasing)
    glow(p, QRectF(reach, reach, r.width(), r.height()), t, HALO)
    p.end()
    return picture


def glow(p: QPainter, r: QRectF, t: Theme, reach: int) -> None:
    """A lit block with its rim; `reach` px of halo."""
    p.setBrush(Qt.BrushStyle.NoBrush)
    for step in range(1, reach + 1):
        colour = QColor(t.light)
        colour.setAlphaF(0.30 / step**0.9)
        p.setPen(QPen(colour, 1.6))
        p.drawRoundedRect(r.adjusted(-step, -step, step, step), 3 + step, 3 + step)
    p.setBrush(QColor(t.light))
    p.setPen(QPen(QColor(t.rim), 1.2))
    p.drawRoundedRect(r, 3, 3)


def lit_rect(slot: Slot) -> QRectF:
    """Where a running block is drawn: its own place, grown when that is too low to be seen."""
    r = slot.rect.adjusted(0, 0.5, 0, -0.5)
    return QRectF(r.left(), r.center().y() - LOWEST / 2, r.width(), LOWEST) if r.height() < 14 else r


def light_area(slot: Slot) -> QRectF:
    """All that a running block paints over, halo and pointer included."""
    return lit_rect(slot).adjusted(-NUMBERS - 4, -HALO - 3, HALO + 3, HALO + 3)


def draw_running(p: QPainter, slot: Slot, unit: Unit, t: Theme, halo: Halo) -> None:
    """`unit` runs in `slot`: in its own block, or in the berth when it is carried."""
    r = lit_rect(slot)
    halo.draw(p, r, t)
    tip = r.left() - NUMBERS + 7
    p.fillRect(QRectF(r.left() - NUMBERS + 2, r.center().y() - 14, NUMBERS - 6, 28), QColor(t.well))
    p.setPen(Qt.PenStyle.NoPen)
    p.setBrush(QColor(t.ink))
    y = r.center().y()
    p.drawPolygon([QPointF(tip, y), QPointF(tip - 6, y - 4), QPointF(tip - 6, y + 4)])
    if unit.index is not None:
        number = QRectF(r.left() - NUMBERS, y - 8, NUMBERS - 6, 16)
        draw_words(p, number, str(unit.index), t.ink, 10, 700, RIGHT)
    draw_words(p, r.adjusted(8, 0, -8, 0), f"{unit.label} runs", t.on_light, 11, 700)
    if unit.seconds and r.width() > 150:
        draw_words(p, r.adjusted(0, 0, -8, 0), duration(unit.seconds), t.on_light, 11, 600, RIGHT)


def draw_source(p: QPainter, slot: Slot, t: Theme) -> None:
    """The resting copy of a layer that runs elsewhere."""
    r = slot.rect.adjusted(0, 0.5, 0, -0.5)
    p.setPen(QPen(QColor(t.light), 2))
    p.setBrush(Qt.BrushStyle.NoBrush)
    p.drawRoundedRect(r.adjusted(1, 1, -1, -1) if r.height() > 6 else r, 3, 3)


def draw_ribbon(p: QPainter, origin: Slot, berth: Slot, hue: str, t: Theme) -> QRectF:
    """The way of a carried layer, with a block on it. Returns the area it covers."""
    path = ribbon(origin, berth)
    high = min(14.0, max(5.0, origin.rect.height() - 1))
    p.setBrush(Qt.BrushStyle.NoBrush)
    p.setPen(QPen(t.tint(hue, 0.16), high, Qt.PenStyle.SolidLine, Qt.PenCapStyle.FlatCap))
    p.drawPath(path)
    p.setPen(QPen(QColor(t.place(hue).line), 1.4, Qt.PenStyle.DashLine))
    p.drawPath(path)
    middle = path.pointAtPercent(0.5)
    block = QRectF(middle.x() - 16, middle.y() - high / 2, 32, high)
    p.setPen(QPen(QColor(t.window), 2))
    p.setBrush(QColor(t.place(hue).fill))
    p.drawRoundedRect(block, 3, 3)
    back = path.elementAt(0).x > path.currentPosition().x()
    chevron(p, block.center(), t.place(hue).text, flip=not back)
    return path.boundingRect().adjusted(-18, -12, 18, 12)


def ribbon(origin: Slot, berth: Slot) -> QPainterPath:
    a, b = origin.rect, berth.rect
    side = 1.0 if b.center().x() > a.center().x() else -1.0
    start = QPointF(a.left() - NUMBERS if side < 0 else a.right() + PAD, a.center().y())
    end = QPointF(b.right() + PAD if side < 0 else b.left() - NUMBERS, b.center().y())
    reach = abs(end.x() - start.x()) * 0.5 * side
    path = QPainterPath(start)
    path.cubicTo(QPointF(start.x() + reach, start.y()), QPointF(end.x() - reach, end.y()), end)
    return path


def chevron(p: QPainter, at: QPointF, colour: str, flip: bool = False) -> None:
    """Points left, towards accelerators; `flip` turns it round."""
    d = -2.6 if flip else 2.6
    p.setPen(QPen(QColor(colour), 1.5, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap, Qt.PenJoinStyle.RoundJoin))
    p.setBrush(Qt.BrushStyle.NoBrush)
    p.drawPolyline(
        [QPointF(at.x() + d, at.y() - 3.2), QPointF(at.x() - d * 0.4, at.y()), QPointF(at.x() + d, at.y() + 3.2)]
    )


def berth_of(plan: Arrangement, unit: Unit) -> Slot | None:
    """Where a carried unit runs: the berth of the lane of the device that runs it."""
    for lane, each in enumerate(plan.lanes):
        if each.place == unit.runs_on:
            for key in ("berth", "working"):
                found = plan.by_key.get((lane, key))
                if found is not None:
                    return plan.slots[found]
    return None


def draw_light(p: QPainter, plan: Arrangement, running: str, t: Theme, halo: Halo) -> None:
    """The block that runs, and where it rests elsewhere the way it takes from there."""
    found = plan.slot_of(running)
    if found is None or found.unit is None:
        return
    if not found.unit.carried:
        draw_running(p, found, found.unit, t, halo)
        return
    draw_source(p, found, t)
    berth = berth_of(plan, found.unit)
    if berth is not None:
        draw_ribbon(p, found, berth, plan.lanes[found.lane].hue, t)
        draw_running(p, berth, found.unit, t, halo)


def light_areas(plan: Arrangement, running: str | None) -> list[QRect]:
    """All that `draw_light` may paint."""
    found = plan.slot_of(running) if running else None
    if found is None or found.unit is None:
        return []
    areas = [light_area(found)]
    berth = berth_of(plan, found.unit) if found.unit.carried else None
    if berth is not None:
        areas += [light_area(berth), ribbon(found, berth).boundingRect().adjusted(-20, -14, 20, 14)]
    return [area.toAlignedRect() for area in areas]
