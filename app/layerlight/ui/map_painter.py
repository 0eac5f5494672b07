"""Draws what stays on the map: its lanes, the blocks in them with their words, and the routes of the sweep."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPainterPath, QPen, QRegion

from layerlight.core.device import DISK
from layerlight.ui.arrangement import HEADER, NUMBERS, PAD, Arrangement, Slot
from layerlight.ui.block_looks import clear_cells, draw_beyond, draw_body, draw_experts, draw_pin
from layerlight.ui.controls import draw_words
from layerlight.ui.lane_painter import LanePainter
from layerlight.ui.lanes import Unit
from layerlight.ui.map_heat import Heat, draw_heat, heat_words
from layerlight.ui.map_light import chevron
from layerlight.ui.palette import Theme
from layerlight.ui.stamps import Stamps
from layerlight.ui.theme import font
from layerlight.ui.words import duration, short_size

RIGHT, CENTRE = Qt.AlignmentFlag.AlignRight, Qt.AlignmentFlag.AlignHCenter
LOWEST_ROW = 6.0
"""px below which a row has no words of its own."""
STAMPED = 40.0
"""px below which a block's look is kept as a picture."""


@dataclass(slots=True)
class MapPainter:
    """Paints one arrangement in one theme."""

    plan: Arrangement
    t: Theme
    area: QRectF
    only: QRegion | None = None
    """What is to be painted anew; None paints everything."""
    stamps: Stamps = field(default_factory=Stamps)
    """Kept from one painting to the next by whoever paints often."""
    heat: Heat | None = None
    """Shades of the blocks in place of the colours of places."""

    def paint(self, p: QPainter) -> None:
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self.only is not None:
            p.setClipRegion(self.only)
            p.fillRect(self.only.boundingRect(), QColor(self.t.window))
        lanes = LanePainter(self.plan, self.t, self.area, self.only)
        lanes.ruler(p)
        for i in range(len(self.plan.lanes)):
            lanes.frame(p, i)
        for slot in self.plan.slots:
            if not self._wanted(slot.rect):
                continue
            if slot.unit is not None:
                self.unit(p, slot)
            else:
                lanes.rest(p, slot)
        self.numbers(p)
        self.thin_rows(p)
        self.routes(p)
        for slot in self.plan.slots:
            if slot.kind == "over":
                lanes.short(p, slot)

    def _wanted(self, rect: QRectF) -> bool:
        return self.only is None or self.only.intersects(rect.toAlignedRect().adjusted(-2, -2, 2, 2))

    # -- blocks --------------------------------------------------------------------------------------------------

    def unit(self, p: QPainter, slot: Slot) -> None:
        """Outline: planned. Part filled: loading. Solid: resting."""
        unit = slot.unit
        if unit is None:
            return
        hue = self._hue(slot)
        high = slot.rect.height()
        gap = 1.0 if high >= 6 else 0.4 if high >= 3 else 0.0
        r = slot.rect.adjusted(0, gap / 2, 0, -gap / 2)
        corner = 3 if r.height() >= 12 else 2 if r.height() >= 6 else 0
        body = QRectF(r)
        if unit.kv and unit.size and unit.kind == "layer":
            band = max(3.0, r.width() * unit.kv / unit.size)
            body.setRight(r.right() - band - 1)
            strength = 0.62 if unit.state == "resting" else 0.34
            p.fillRect(QRectF(body.right() + 1, r.top(), band, r.height()), self.t.tint(hue, strength))
        share = self.heat.share(unit.key) if self.heat is not None and not slot.beyond else None
        if share is not None:
            solid = unit.state == "resting"
            look = (self.t.name, "heat", share, solid, corner)
            self.stamps.set_down(p, body, look, partial(_drawn_heat, share, solid, self.t, corner))
        elif unit.kind == "berth":
            self._berth(p, r)
        elif unit.kind == "experts" and not slot.beyond:
            draw_experts(p, body, unit, hue, self.t)
        elif slot.beyond:
            draw_beyond(p, body, self.t, corner)
        else:
            self._body(p, body, unit, hue, corner)
        if not slot.beyond:
            self._words(p, body, unit, hue, heat_words(share, self.t) if share is not None else "")
        if unit.pinned:
            draw_pin(p, body, self.t)

    def _body(self, p: QPainter, r: QRectF, unit: Unit, hue: str, corner: float) -> None:
        """Low blocks are many and alike: each look is drawn once."""
        pale = unit.kind in ("kv", "working")
        draw = partial(_drawn_body, unit.state, hue, self.t, corner, unit.fill, pale)
        if r.height() < STAMPED and unit.state != "loading":
            self.stamps.set_down(p, r, (self.t.name, unit.state, hue, corner, pale), draw)
        else:
            draw(p, r)

    def _hue(self, slot: Slot) -> str:
        """Unified memory is one lane with two claims: what the CPU runs keeps the CPU's colour."""
        if slot.unit and slot.unit.runs_on == "cpu" and slot.unit.rests_on != DISK:
            return "ram"
        return self.plan.lanes[slot.lane].hue

    def _berth(self, p: QPainter, r: QRectF) -> None:
        p.setPen(QPen(QColor(self.t.ram.line), 1.2, Qt.PenStyle.DashLine))
        p.setBrush(self.t.tint("ram", 0.07))
        p.drawRoundedRect(r.adjusted(0.6, 0.6, -0.6, -0.6), 3, 3)

    def _words(self, p: QPainter, r: QRectF, unit: Unit, hue: str, colour: str = "") -> None:
        t, high = self.t, r.height()
        solid = unit.kind in ("layer", "table", "experts") and (unit.state == "resting" or unit.fill > 0.5)
        cells = unit.kind == "experts" and not colour
        colour = colour or (t.place(hue).text if solid else t.place(hue).line)
        if unit.carried and unit.kind in ("layer", "experts") and high >= 8 and unit.state != "loading":
            box = QRectF(r.left() + 3, r.center().y() - 5, 10, 10)
            self.stamps.set_down(p, box, ("chevron", colour), partial(_drawn_chevron, colour))
        if high < 13:
            return
        if unit.kind in ("layer", "experts"):
            if unit.state == "loading" and unit.fill < 1:
                draw_words(p, r.adjusted(8, 0, -8, 0), f"{unit.fill:.0%}", colour, 11, 600, RIGHT)
        elif r.width() > 90:
            size = f"  {short_size(unit.size)}" if unit.order < 0 and r.width() > 150 else ""
            draw_words(p, r.adjusted(8, 0, -8, 0), unit.label + size, colour, 11, 500)
        if unit.seconds and unit.state != "loading" and r.width() > 70 and (unit.kind != "table" or r.width() > 150):
            words = duration(unit.seconds)
            if cells:
                clear_cells(p, r, words, unit.state, hue, t)
            draw_words(p, r.adjusted(0, 0, -7, 0), words, colour, 11, align=RIGHT)

    def numbers(self, p: QPainter) -> None:
        """Layer numbers in the lane's own margin, like line numbers; thinned where a lane's rows are low."""
        for lane in range(len(self.plan.lanes)):
            rows = [
                slot
                for slot in self.plan.slots
                if slot.lane == lane and slot.unit and slot.unit.kind in ("layer", "experts") and not slot.beside
            ]
            rows = [slot for slot in rows if slot.rect.height() >= LOWEST_ROW] or rows
            low = min((slot.rect.height() for slot in rows), default=13.0)
            every = next((k for k in (1, 2, 5, 10, 20, 50, 100, 200) if k * low >= 12), 500)
            for slot in rows:
                self.number(p, slot, every)

    def number(self, p: QPainter, slot: Slot, every: int) -> None:
        if slot.unit is None or slot.unit.index is None or slot.unit.index % every:
            return
        r = QRectF(slot.rect.left() - NUMBERS, slot.rect.center().y() - 8, NUMBERS - 6, 16)
        if not self._wanted(r):
            return
        draw_words(p, r, str(slot.unit.index), self.t.ink3, 10, align=RIGHT)

    def thin_rows(self, p: QPainter) -> None:
        """Words on layers whose experts lie elsewhere: what is left of each is too low to be told from the next."""
        apart = {slot.unit.index for slot in self.plan.slots if slot.unit and slot.unit.experts and not slot.beside}
        thin = [
            slot
            for slot in self.plan.slots
            if slot.unit and slot.unit.kind == "layer" and slot.unit.index in apart and slot.rect.height() < LOWEST_ROW
        ]
        for _, group in groupby(thin, key=lambda slot: (slot.lane, slot.rect.left(), slot.unit and slot.unit.state)):
            rows = list(group)
            first, last = rows[0], rows[-1]
            r = first.rect.united(last.rect)
            if r.height() < 13 or first.unit is None or last.unit is None or not self._wanted(r):
                continue
            words = f"{first.unit.index}–{last.unit.index} without experts"
            words = QFontMetricsF(font(11)).elidedText(words, Qt.TextElideMode.ElideRight, r.width() - 12)
            place = self.t.place(self._hue(first))
            draw_words(p, r, words, place.text if first.unit.state == "resting" else place.line, 11, 500, CENTRE)

    # -- the sweep -----------------------------------------------------------------------------------------------

    def routes(self, p: QPainter) -> None:
        """Where the sweep hands over from one place to another: thin lines, only at the crossings.

        Layers that all have their experts elsewhere cross at each of them: the first such crossing stands for all.
        """
        steps = [slot for slot in self.plan.sweep() if slot.unit and not slot.unit.carried]
        seen: set[tuple[int, int]] = set()
        for before, after in pairwise(steps):
            if before.lane == after.lane:
                continue
            if "experts" in (before.unit.kind if before.unit else "", after.unit.kind if after.unit else ""):
                if (before.lane, after.lane) in seen:
                    continue
                seen.add((before.lane, after.lane))
            self._hop(p, before, after)

    def _hop(self, p: QPainter, before: Slot, after: Slot) -> None:
        t, forward = self.t, after.lane > before.lane
        a = QPointF(before.rect.right() + PAD if forward else before.rect.left() - NUMBERS, before.rect.center().y())
        b = QPointF(after.rect.left() - NUMBERS if forward else after.rect.right() + PAD, after.rect.center().y())
        side = 1 if forward else -1
        path = QPainterPath(a)
        if abs(after.lane - before.lane) > 1:
            sky = self.area.top() + HEADER - 5
            turn = QPointF(a.x() + 52 * side, sky)
            path.cubicTo(QPointF(a.x() + 34 * side, a.y()), QPointF(a.x() + 20 * side, sky), turn)
            path.lineTo(b.x() - 52 * side, sky)
            path.cubicTo(QPointF(b.x() - 20 * side, sky), QPointF(b.x() - 34 * side, b.y()), b)
        else:
            reach = abs(b.x() - a.x()) * 0.55 * side
            path.cubicTo(QPointF(a.x() + reach, a.y()), QPointF(b.x() - reach, b.y()), b)
        p.setPen(QPen(QColor(t.edge), 1.4))
        p.setBrush(Qt.BrushStyle.NoBrush)
        p.drawPath(path)
        p.setBrush(QColor(t.window))
        p.drawEllipse(a, 2.6, 2.6)
        chevron(p, QPointF(b.x() - 3 * side, b.y()), t.edge, flip=forward)


def _drawn_body(state: str, hue: str, t: Theme, corner: float, fill: float, pale: bool, p: QPainter, r: QRectF) -> None:
    draw_body(p, r, state, hue, t, corner, fill, pale)


def _drawn_heat(share: float, solid: bool, t: Theme, corner: float, p: QPainter, r: QRectF) -> None:
    draw_heat(p, r, share, solid, t, corner)


def _drawn_chevron(colour: str, p: QPainter, r: QRectF) -> None:
    chevron(p, r.center(), colour)
