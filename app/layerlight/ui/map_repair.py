"""What of a map's picture has to be painted again when only looks of its blocks and its memory changed."""

from __future__ import annotations

from PySide6.QtCore import QRectF
from PySide6.QtGui import QRegion

from layerlight.ui.arrangement import HEADER, Arrangement
from layerlight.ui.lanes import Lane

MOST_BLOCKS = 64
"""Changed blocks above which all of it is painted as fast."""


def changed_region(before: Arrangement, now: Arrangement) -> QRegion | None:
    """The blocks whose looks changed, and memory that comes and goes; None when more than that changed."""
    if len(before.slots) != len(now.slots) or before.scale != now.scale or before.torn != now.torn:
        return None
    region = QRegion()
    changed: set[int] = set()
    for i, (old_lane, new_lane) in enumerate(zip(before.lanes, now.lanes, strict=True)):
        if _frame_of(old_lane) != _frame_of(new_lane) or before.columns[i] != now.columns[i]:
            return None
        if _memory_of(old_lane) != _memory_of(new_lane):
            changed.add(i)
            region += _memory_area(now, i)
    blocks = 0
    for old, new in zip(before.slots, now.slots, strict=True):
        if new.unit is None and new.lane in changed and new.kind == old.kind and new.kind != "limit":
            continue
        if old.rect != new.rect or old.kind != new.kind or (old.unit is None and old.size != new.size):
            return None
        if old.unit != new.unit:
            blocks += 1
            region += new.rect.toAlignedRect().adjusted(-1, -1, 1, 1)
    return region if blocks <= MOST_BLOCKS else None


def _memory_area(plan: Arrangement, lane: int) -> QRegion:
    """A lane's head, and all of it below its blocks: what other programs' memory changes."""
    boxes = plan.columns[lane]
    floor = max((s.rect.bottom() for s in plan.slots if s.lane == lane and s.unit), default=boxes[0].top())
    head = QRectF(boxes[0].left() - 2, boxes[0].top() - HEADER, boxes[-1].right() - boxes[0].left() + 24, HEADER - 2)
    below = QRectF(boxes[-1].left() - 10, floor - 8, boxes[-1].width() + 20, boxes[-1].bottom() + 6 - floor + 8)
    return QRegion(head.toAlignedRect()) + QRegion(below.toAlignedRect())


def _frame_of(lane: Lane) -> tuple[object, ...]:
    """What a lane's frame and words are drawn from, without blocks and without memory that comes and goes."""
    return lane.title, lane.total, lane.limit, lane.over, lane.note, lane.taken


def _memory_of(lane: Lane) -> tuple[object, ...]:
    return lane.margin, lane.other, lane.spare
