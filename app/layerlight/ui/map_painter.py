"""Draws what stays on the map: lanes, blocks, bands of KV cache, margins, the ruler and the legend."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby, pairwise

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPainterPath, QPen, QPixmap, QRegion

from layerlight.core.device import DISK
from layerlight.ui.arrangement import HEADER, NUMBERS, PAD, RULER, Arrangement, Slot
from layerlight.ui.controls import draw_words
from layerlight.ui.icons import draw_icon
from layerlight.ui.lanes import Lane, Unit
from layerlight.ui.map_heat import Heat, draw_heat, heat_words
from layerlight.ui.map_light import chevron, glow
from layerlight.ui.palette import Theme
from layerlight.ui.stamps import Stamps
from layerlight.ui.theme import font
from layerlight.ui.words import duration, of_size, short_size

RIGHT, CENTRE = Qt.AlignmentFlag.AlignRight, Qt.AlignmentFlag.AlignHCenter
GIB = 2**30
STEPS = tuple(2**n * 2**20 for n in range(20))
PINNED = "by hand"
EXPERTS = "experts"
LOWEST_OUTLINE = 2.5
"""px below which the outlines of blocks would run together and look like what rests: those are pale instead."""
LOWEST_ROW = 6.0
"""px below which a row has no words of its own."""
STAMPED = 40.0
"""px below which a block's look is kept as a picture."""
CELL = 5.0
"""px of an expert's cell at least."""
LEGEND = ("planned", "loading", "resting", "running", "KV cache", "working memory", "margin", "other programs")


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
        self.ruler(p)
        for i in range(len(self.plan.lanes)):
            self.frame(p, i)
        for slot in self.plan.slots:
            if not self._wanted(slot.rect):
                continue
            if slot.unit is not None:
                self.unit(p, slot)
            else:
                self.rest(p, slot)
        self.numbers(p)
        self.thin_rows(p)
        self.routes(p)
        for slot in self.plan.slots:
            if slot.kind == "over":
                self._short(p, slot)

    def _wanted(self, rect: QRectF) -> bool:
        return self.only is None or self.only.intersects(rect.toAlignedRect().adjusted(-2, -2, 2, 2))

    # -- lanes ---------------------------------------------------------------------------------------------------

    def ruler(self, p: QPainter) -> None:
        plan, area = self.plan, self.area
        if plan.folded or not plan.columns or (all(plan.torn) and not any(lane.units for lane in plan.lanes)):
            return
        step = next((each for each in STEPS if each * plan.scale >= 44), STEPS[-1])
        top = plan.columns[0][0].top() + PAD
        floor = max(self._to_scale(i) for i in range(len(plan.lanes)))
        right = max(boxes[-1].right() for boxes in plan.columns)
        n = 0
        while top + n * step * plan.scale <= floor + 1:
            y = top + n * step * plan.scale
            if not self._wanted(QRectF(area.left() - 16, y - 8, right - area.left() + 16, 16)):
                n += 1
                continue
            p.setPen(QPen(QColor(self.t.line), 1))
            p.drawLine(QPointF(area.left() + RULER - 8, y), QPointF(right, y))
            words = short_size(n * step).replace(".0 ", " ") if n else "0"
            draw_words(p, QRectF(area.left() - 16, y - 8, RULER + 4, 16), words, self.t.ink3, 10, align=RIGHT)
            n += 1

    def _to_scale(self, lane: int) -> float:
        """The y down to which a lane is to scale."""
        box = self.plan.columns[lane][0]
        if not self.plan.torn[lane]:
            return box.bottom() - PAD
        rects = [slot.rect.bottom() for slot in self.plan.slots if slot.lane == lane and slot.kind == "unit"]
        return max(rects, default=box.top())

    def frame(self, p: QPainter, i: int) -> None:
        t, lane, boxes = self.t, self.plan.lanes[i], self.plan.columns[i]
        box = boxes[0]
        if self._wanted(QRectF(box.left(), box.top() - HEADER, boxes[-1].right() + 16 - box.left(), HEADER)):
            self._head(p, i)
        for each in boxes:
            if not self._wanted(each):
                continue
            if self._only_within(i, each):  # much faster than all of it
                p.fillRect(each, QColor(t.well))
                continue
            path = QPainterPath()
            path.addRoundedRect(each, 8, 8)
            if self.plan.torn[i]:
                upper, lower = self._torn(path, i, each)
                self._sheet(p, upper)
                if not lower.isEmpty():
                    self._sheet(p, lower)
            else:
                self._sheet(p, path)
        below = QRectF(box.left(), boxes[-1].bottom() + 5, boxes[-1].right() - box.left() + 44, 16)
        if lane.note and self._wanted(below):
            note = QFontMetricsF(font(11)).elidedText(lane.note, Qt.TextElideMode.ElideRight, below.width() - 4)
            draw_words(p, below, note, t.ink2, 11)

    def _head(self, p: QPainter, i: int) -> None:
        """A lane's icon, its name and how full it is."""
        t, lane, boxes = self.t, self.plan.lanes[i], self.plan.columns[i]
        box = boxes[0]
        draw_icon(p, lane.hue, box.left() + 1, box.top() - HEADER + 7, t.place(lane.hue).line)
        room = boxes[-1].right() - box.left() - 24
        title = QFontMetricsF(font(13, 600)).elidedText(lane.title, Qt.TextElideMode.ElideMiddle, room)
        draw_words(p, QRectF(box.left() + 24, box.top() - HEADER + 4, room, 20), title, t.ink, 13, 600)
        fitted = QFontMetricsF(font(11)).elidedText(self._detail(lane), Qt.TextElideMode.ElideRight, room + 16)
        draw_words(p, QRectF(box.left() + 24, box.top() - HEADER + 23, room + 16, 16), fitted, t.ink3, 11)

    def _only_within(self, i: int, box: QRectF) -> bool:
        """Whether all that is painted anew of this box lies on its even ground, away from edges, corners and tear."""
        if self.only is None:
            return False
        even = box.adjusted(2, 8, -2, -8)
        if self.plan.torn[i]:
            tear = self._tear(i, box)
            if tear is not None:
                even.setBottom(tear - 2)
        part = self.only.intersected(box.toAlignedRect().adjusted(-1, -1, 1, 1)).boundingRect()
        return even.toAlignedRect().contains(part)

    def _sheet(self, p: QPainter, path: QPainterPath) -> None:
        """An empty lane. Its edge is smooth and hides that of its ground, which is painted much faster without."""
        p.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        p.fillPath(path, QColor(self.t.well))
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        p.strokePath(path, QPen(QColor(self.t.line), 1))

    def _detail(self, lane: Lane) -> str:
        planned = any(each.units for each in self.plan.lanes)
        if lane.units and lane.place == DISK:
            return f"{short_size(lane.taken)} read from it"
        if lane.over:
            return f"{short_size(lane.used)} wanted of {short_size(lane.total)}"
        if lane.units:
            return of_size(lane.used, lane.total) if lane.total else f"{short_size(lane.taken)} of ours"
        free = "free memory unknown" if lane.free is None else f"{short_size(max(0, lane.free))} free"
        return "not needed" if planned else free

    def _torn(self, path: QPainterPath, i: int, box: QRectF) -> tuple[QPainterPath, QPainterPath]:
        """The part above the tear and the part below it; a disk and an unused place have no part below."""
        y = self._tear(i, box)
        if y is None:
            return path, QPainterPath()
        upper = path.intersected(_above(box, y))
        return upper, QPainterPath() if self._is_open_ended(i) else path.subtracted(_above(box, y + 7))

    def _tear(self, i: int, box: QRectF) -> float | None:
        """The y of the tear in a lane that is not drawn whole; None where this box of it has none."""
        free = next((slot.rect for slot in self.plan.slots if slot.lane == i and slot.kind == "free"), None)
        if free is None or not box.intersects(free):
            return None
        return box.bottom() - 8 if self._is_open_ended(i) else free.bottom() - 12

    def _is_open_ended(self, i: int) -> bool:
        lane = self.plan.lanes[i]
        return lane.place == DISK or (not lane.units and any(each.units for each in self.plan.lanes))

    # -- what is no layer ----------------------------------------------------------------------------------------

    def rest(self, p: QPainter, slot: Slot) -> None:
        t, r, lane = self.t, slot.rect, self.plan.lanes[slot.lane]
        match slot.kind:
            case "margin":
                hatch(p, r.adjusted(0, 1, 0, -1), t.hatch)
                p.setPen(QPen(QColor(t.ink2), 1.5))
                p.drawLine(r.topLeft(), r.topRight())
                if r.height() >= 13:
                    self._boxed(p, r, f"margin {short_size(slot.size)}")
            case "other":
                p.setPen(Qt.PenStyle.NoPen)
                p.setBrush(QColor(t.other))
                p.drawRoundedRect(r.adjusted(0, 1, 0, 0), 3, 3)
                if r.height() >= 13:
                    draw_words(p, r, f"other programs {short_size(slot.size)}", t.ink, 11, align=CENTRE)
            case "free":
                words = "" if slot.size is None else f"{short_size(slot.size)} free"
                torn = self.plan.torn[slot.lane]
                if r.height() >= 14 and words and (lane.units or not torn):
                    draw_words(p, r.translated(0, -7 if torn else 0), words, t.ink3, 11, align=CENTRE)
            case "limit":
                p.setPen(QPen(QColor(t.ink), 1.5, Qt.PenStyle.DashLine))
                p.drawLine(r.topLeft(), r.topRight())
            case _:
                p.setPen(QPen(QColor(t.danger), 2))
                p.drawLine(r.topLeft(), r.topRight())

    def _short(self, p: QPainter, slot: Slot) -> None:
        """How much does not fit, on the line where the room ends."""
        words = f"no room: {short_size(slot.size)} short"
        wide = QFontMetricsF(font(11, 700)).horizontalAdvance(words) + 20
        box = QRectF(slot.rect.center().x() - wide / 2, slot.rect.top() - 10, wide, 20)
        p.setPen(QPen(QColor(self.t.danger), 2))
        p.setBrush(QColor(self.t.panel))
        p.drawRoundedRect(box, 4, 4)
        draw_words(p, box, words, self.t.danger, 11, 700, CENTRE)

    def _boxed(self, p: QPainter, r: QRectF, words: str) -> None:
        wide = QFontMetricsF(font(11)).horizontalAdvance(words) + 12
        p.fillRect(QRectF(r.center().x() - wide / 2, r.top() + 1.5, wide, r.height() - 2), QColor(self.t.well))
        draw_words(p, r, words, self.t.ink2, 11, align=CENTRE)

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


def _above(box: QRectF, y: float) -> QPainterPath:
    """All of a box above a zigzag at `y`."""
    path = QPainterPath(QPointF(box.left() - 2, box.top() - 2))
    path.lineTo(box.right() + 2, box.top() - 2)
    teeth = max(4, round(box.width() / 10))
    for i in range(teeth, -1, -1):
        path.lineTo(box.left() - 2 + (box.width() + 4) * i / teeth, y + (4 if i % 2 else 0))
    path.closeSubpath()
    return path


def _drawn_body(state: str, hue: str, t: Theme, corner: float, fill: float, pale: bool, p: QPainter, r: QRectF) -> None:
    draw_body(p, r, state, hue, t, corner, fill, pale)


def _drawn_heat(share: float, solid: bool, t: Theme, corner: float, p: QPainter, r: QRectF) -> None:
    draw_heat(p, r, share, solid, t, corner)


def _drawn_chevron(colour: str, p: QPainter, r: QRectF) -> None:
    chevron(p, r.center(), colour)


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
