"""Draws what a lane is: the ruler, its frame with head and tear, and the memory in it that is no layer."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPainterPath, QPen, QRegion

from layerlight.core.device import DISK
from layerlight.ui.arrangement import HEADER, PAD, RULER, Arrangement, Slot
from layerlight.ui.controls import draw_words
from layerlight.ui.hatching import hatch
from layerlight.ui.icons import draw_icon
from layerlight.ui.lanes import Lane
from layerlight.ui.palette import Theme
from layerlight.ui.theme import font
from layerlight.ui.words import of_size, short_size

RIGHT, CENTRE = Qt.AlignmentFlag.AlignRight, Qt.AlignmentFlag.AlignHCenter
STEPS = tuple(2**n * 2**20 for n in range(20))
"""Bytes between two lines of the ruler."""


@dataclass(slots=True)
class LanePainter:
    """Paints the lanes of one arrangement in one theme."""

    plan: Arrangement
    t: Theme
    area: QRectF
    only: QRegion | None = None
    """What is to be painted anew; None paints everything."""

    def wants(self, rect: QRectF) -> bool:
        """Whether something in this rectangle is to be painted."""
        return self.only is None or self.only.intersects(rect.toAlignedRect().adjusted(-2, -2, 2, 2))

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
            if not self.wants(QRectF(area.left() - 16, y - 8, right - area.left() + 16, 16)):
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
        if self.wants(QRectF(box.left(), box.top() - HEADER, boxes[-1].right() + 16 - box.left(), HEADER)):
            self._head(p, i)
        for each in boxes:
            if not self.wants(each):
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
        if lane.note and self.wants(below):
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
        return lane.idle or "not needed" if planned else free

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

    def short(self, p: QPainter, slot: Slot) -> None:
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


def _above(box: QRectF, y: float) -> QPainterPath:
    """All of a box above a zigzag at `y`."""
    path = QPainterPath(QPointF(box.left() - 2, box.top() - 2))
    path.lineTo(box.right() + 2, box.top() - 2)
    teeth = max(4, round(box.width() / 10))
    for i in range(teeth, -1, -1):
        path.lineTo(box.left() - 2 + (box.width() + 4) * i / teeth, y + (4 if i % 2 else 0))
    path.closeSubpath()
    return path
