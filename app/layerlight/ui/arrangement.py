"""Where everything on the map lies: pure geometry, one scale for all lanes, so that area is bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import median

from PySide6.QtCore import QPointF, QRectF

from layerlight.core.device import DISK
from layerlight.ui.lanes import Lane, Unit

HEADER = 48
RULER = 40
NUMBERS = 28
PAD = 6
MOST_COLUMNS = 4
ROW = 8
"""px below which layers are too low to read, so that their lane folds."""
WIDEST = 420
NARROW = 0.6
"""Width of a place without layers, as a share of a full lane's."""
TAIL_FREE = 46
TAIL_MARGIN = 20
TAIL_OTHER = 26
UNUSED = 44
NARROWEST = 12
"""px of a layer beside its experts, however few bytes the rest of it takes."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One thing drawn in a lane: `unit`, `free`, `margin`, `other`, `limit` (a line) or `over` (what does not fit)."""

    rect: QRectF
    kind: str
    lane: int
    unit: Unit | None = None
    size: int | None = 0
    beyond: bool = False
    """Whether this is what does not fit."""
    beside: bool = False
    """Whether it shares a row with the layer whose experts these are."""


@dataclass(slots=True)
class Arrangement:
    """The drawing's plan. `scale` is px per byte; `columns` the boxes of each lane, more than one when it is folded."""

    scale: float
    lanes: tuple[Lane, ...] = ()
    columns: list[list[QRectF]] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    torn: list[bool] = field(default_factory=list)
    by_key: dict[tuple[int, str], int] = field(default_factory=dict)

    @property
    def folded(self) -> bool:
        return any(len(boxes) > 1 for boxes in self.columns)

    def slot_of(self, key: str) -> Slot | None:
        """The slot of a layer, whatever lane it rests in."""
        for lane in range(len(self.lanes)):
            found = self.by_key.get((lane, key))
            if found is not None:
                return self.slots[found]
        return None

    def slot_at(self, point: QPointF) -> Slot | None:
        """The unit under a point. Low rows are widened to 3 px either side, so that they can be hit."""
        near = [slot for slot in self.slots if slot.unit is not None and slot.rect.contains(point)]
        if near:
            return near[0]
        reach = [
            slot for slot in self.slots if slot.unit is not None and slot.rect.adjusted(0, -3, 0, 3).contains(point)
        ]
        return min(reach, key=lambda slot: abs(slot.rect.center().y() - point.y()), default=None)

    def sweep(self) -> list[Slot]:
        """The layers in the model's order."""
        return sorted(
            (slot for slot in self.slots if slot.unit is not None and slot.unit.order >= 0),
            key=lambda slot: slot.unit.order if slot.unit else 0,
        )


def arrange(lanes: tuple[Lane, ...], area: QRectF) -> Arrangement:
    """Lanes beside each other in `area`.

    A lane is torn when what we use of it is less than half, and then gives its empty part away; a disk always is.
    Lanes fold into columns, as a newspaper does, when layers would be lower than `ROW`.
    """
    if not lanes:
        return Arrangement(1.0)
    planned = any(lane.units for lane in lanes)
    smallest = min((lane.total for lane in lanes if lane.total and lane.place != DISK), default=1)
    torn = [_torn(lane, planned, smallest) for lane in lanes]
    height = max(120.0, area.height() - HEADER - 2 * PAD)
    needs = [_need(lane, tear, planned, smallest) for lane, tear in zip(lanes, torn, strict=True)]
    tails = [_tail(lane, planned) if tear else 0.0 for lane, tear in zip(lanes, torn, strict=True)]
    rows = [
        sum(unit.size for unit in row)
        for lane in lanes
        for row in rows_of(lane.units)
        if row[0].kind in ("layer", "experts")
    ]
    row = median(rows) if rows else 0.0
    scale = _scale(needs, tails, height)
    folds = min(MOST_COLUMNS, math.ceil(ROW / max(0.01, row * scale))) if rows else 1
    if folds > 1:
        lows = zip(needs, tails, strict=True)
        scale = max(scale, min((height * folds - tail) / (need + folds * row) for need, tail in lows if need))
    counts = [
        max(1, min(MOST_COLUMNS, math.ceil((need * scale + tail) / height - 0.02)))
        for need, tail in zip(needs, tails, strict=True)
    ]
    shares = [count if lane.units or not planned else NARROW for lane, count in zip(lanes, counts, strict=True)]
    inner = area.width() - RULER
    gaps = len(lanes) - 1
    gutter = 28.0 if not planned else max(44.0, min(124.0, (inner - 176 * sum(shares)) / max(1, gaps)))
    wide = min((inner - gutter * gaps) / sum(shares), WIDEST if planned else 190)
    result = Arrangement(scale, lanes, torn=torn)
    x = area.left() + RULER
    for i, lane in enumerate(lanes):
        high = height if counts[i] > 1 else max(needs[i] * scale + tails[i], 24.0)
        boxes = [
            QRectF(
                x + n * wide,
                area.top() + HEADER,
                wide * min(1.0, shares[i]) - (8 if n < counts[i] - 1 else 0),
                high + 2 * PAD,
            )
            for n in range(counts[i])
        ]
        result.columns.append(boxes)
        _Filling(result, i, lane, boxes, planned).fill()
        x += wide * shares[i] + gutter
    return result


def rows_of(units: tuple[Unit, ...]) -> list[tuple[Unit, ...]]:
    """Units row by row: experts stand beside their layer where both rest on one place."""
    rows: list[tuple[Unit, ...]] = []
    for unit in units:
        last = rows[-1][0] if rows else None
        if unit.kind == "experts" and last and last.kind == "layer" and last.index == unit.index:
            rows[-1] = (*rows[-1], unit)
        else:
            rows.append((unit,))
    return rows


def _torn(lane: Lane, planned: bool, smallest: int) -> bool:
    if lane.place == DISK or lane.total is None:
        return True
    if not planned:
        return lane.total > 8 * smallest
    return not lane.over and lane.taken < lane.total / 2


def _need(lane: Lane, torn: bool, planned: bool, smallest: int) -> float:
    """Bytes that a lane draws to scale."""
    if not torn:
        return float(max(lane.total or 0, lane.used))
    if planned:
        return float(lane.taken)
    return 0.0 if lane.place == DISK else float(smallest)


def _tail(lane: Lane, planned: bool) -> float:
    """px of what lies below a tear and is not to scale."""
    if not lane.units and (planned or lane.place == DISK):
        return UNUSED
    if lane.place == DISK:
        return 34.0
    return TAIL_FREE + (TAIL_MARGIN if lane.margin else 0) + (TAIL_OTHER if lane.other else 0)


def _scale(needs: list[float], tails: list[float], height: float) -> float:
    """The largest scale at which every lane fits the height."""
    return min(
        ((height - tail) / need for need, tail in zip(needs, tails, strict=True) if need), default=height / 2**30
    )


@dataclass(slots=True)
class _Filling:
    """Fills one lane: the model from the top, what is not ours from the bottom, free memory between."""

    result: Arrangement
    index: int
    lane: Lane
    boxes: list[QRectF]
    planned: bool
    column: int = 0
    y: float = 0.0
    laid: int = 0
    """Bytes of units so far."""
    beyond: bool = False

    def fill(self) -> None:
        lane, scale = self.lane, self.result.scale
        torn = self.result.torn[self.index]
        self.y = self.boxes[0].top() + PAD
        top = self.y
        for row in rows_of(lane.units):
            high = sum(unit.size for unit in row) * scale
            for unit in row:
                self._mark_over(unit)
            least = 2.0 if row[0].kind == "table" and row[0].size else 0.0
            self._add("unit", max(high, least), row[0].size, row[0])
            if len(row) > 1 and high > 0:
                self._part(row)
        if torn and not lane.units and (self.planned or lane.place == DISK):
            self._add("free", UNUSED, lane.free)
            return
        below = (lane.margin + lane.other) * scale if not torn else self._tail_below()
        bottom = self.boxes[self.column].bottom() - PAD - below
        if not lane.over:
            self._add("free", max(0.0, bottom - self.y), lane.free)
        if torn and lane.place == DISK:
            return
        self._add("margin", lane.margin * scale if not torn else TAIL_MARGIN if lane.margin else 0, lane.margin)
        self._add("other", lane.other * scale if not torn else TAIL_OTHER if lane.other else 0, lane.other)
        if len(self.boxes) > 1:
            self.boxes[-1].setBottom(self.y + PAD)
        self._limit(top, torn)

    def _mark_over(self, unit: Unit) -> None:
        """A line before the first unit that has no room."""
        self.laid += unit.size
        if self.lane.over and not self.beyond and self.laid > self.lane.taken - self.lane.over:
            self._add("over", 0, self.lane.over)
            self.beyond = True

    def _tail_below(self) -> float:
        return (TAIL_MARGIN if self.lane.margin else 0) + (TAIL_OTHER if self.lane.other else 0)

    def _add(self, kind: str, high: float, size: int | None, unit: Unit | None = None) -> None:
        if high <= 0 and kind != "over":
            return
        last = self.column + 1 >= len(self.boxes)
        if self.y + high > self.boxes[self.column].bottom() - PAD + 0.5 and not last:
            self.column += 1
            self.y = self.boxes[self.column].top() + PAD
        box = self.boxes[self.column]
        inset = NUMBERS if kind == "unit" else PAD
        rect = QRectF(box.left() + inset, self.y, box.width() - inset - PAD, high)
        if unit is not None:
            self.result.by_key[(self.index, unit.key)] = len(self.result.slots)
        self.result.slots.append(Slot(rect, kind, self.index, unit, size, self.beyond and unit is not None))
        self.y += high

    def _part(self, row: tuple[Unit, ...]) -> None:
        """Gives the experts their share of the row's width; the layer keeps enough to be seen."""
        layer, experts = row
        slot = self.result.slots[-1]
        least = min(NARROWEST, slot.rect.width() / 2)
        wide = max(least, slot.rect.width() * layer.size / (layer.size + experts.size))
        first, second = QRectF(slot.rect), QRectF(slot.rect)
        first.setWidth(wide - 1)
        second.setLeft(slot.rect.left() + wide)
        self.result.slots[-1] = replace(slot, rect=first)
        self.result.by_key[(self.index, experts.key)] = len(self.result.slots)
        self.result.slots.append(Slot(second, "unit", self.index, experts, experts.size, self.beyond, beside=True))

    def _limit(self, top: float, torn: bool) -> None:
        """A person's limit as a line, where the lane is to scale and not folded."""
        limit = self.lane.limit
        room = (self.lane.total or 0) - self.lane.margin - self.lane.other
        if limit is None or torn or len(self.boxes) > 1 or not 0 < limit < room:
            return
        box = self.boxes[0]
        y = top + limit * self.result.scale
        if y < box.bottom() - PAD:
            self.result.slots.append(Slot(QRectF(box.left(), y, box.width(), 0), "limit", self.index, None, limit))
