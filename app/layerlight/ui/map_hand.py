"""The hand on the map: which blocks are chosen, where they may go, and the drag that carries them there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen

from layerlight.core.device import CPU, DISK
from layerlight.ui.arrangement import HEADER, Arrangement, Slot
from layerlight.ui.controls import draw_words
from layerlight.ui.lanes import Lane
from layerlight.ui.palette import Theme

FAR = 8.0
"""px that a pressed mouse moves before blocks move with it."""
FREE_LETTERS = "GHJKLMNQSTUVWXYZ"


@dataclass(slots=True)
class Drag:
    """Blocks that are being carried. `lane` is the one they would be put on."""

    began: QPointF
    at: QPointF
    moving: bool = False
    lane: int | None = None


def letters_of(lanes: Iterable[Lane]) -> dict[str, str]:
    """Letter → place: R for RAM, D for the disk, G and on for accelerators."""
    found: dict[str, str] = {}
    free = iter(FREE_LETTERS)
    for lane in lanes:
        letter = {CPU: "R", DISK: "D"}.get(lane.place) or next(free, "")
        if letter:
            found[letter] = lane.place
    return found


class Hand:
    """`keys` are the chosen blocks in the model's order; a range has its `anchor` where it was begun."""

    def __init__(self) -> None:
        self.keys: tuple[str, ...] = ()
        self.drag: Drag | None = None
        self._anchor = ""

    @property
    def is_moving(self) -> bool:
        return self.drag is not None and self.drag.moving

    def choose(self, key: str, plan: Arrangement, extend: bool = False) -> None:
        """One block, or all from the anchor to it. What is no layer can't be moved."""
        order = [slot.unit.key for slot in plan.sweep() if slot.unit]
        if key not in order:
            self.forget()
        elif extend and self._anchor in order:
            first, last = sorted((order.index(self._anchor), order.index(key)))
            self.keys = tuple(order[first : last + 1])
        else:
            self._anchor, self.keys = key, (key,)

    def forget(self) -> None:
        self.keys, self._anchor, self.drag = (), "", None

    # -- dragging --------------------------------------------------------------------------------------------------

    def press(self, at: QPointF) -> None:
        self.drag = Drag(at, at)

    def move(self, at: QPointF, plan: Arrangement) -> bool:
        """Whether blocks are being carried now."""
        if self.drag is None:
            return False
        self.drag.at = at
        if not self.drag.moving and (at - self.drag.began).manhattanLength() > FAR:
            self.drag.moving = bool(self.keys)
        self.drag.lane = lane_at(plan, at)
        return self.drag.moving

    def release(self, plan: Arrangement) -> str | None:
        """The place where the blocks were put down; None when they were not carried to one."""
        drag, self.drag = self.drag, None
        if drag is None or not drag.moving or drag.lane is None:
            return None
        return plan.lanes[drag.lane].place

    # -- painting --------------------------------------------------------------------------------------------------

    def draw(self, p: QPainter, plan: Arrangement, t: Theme) -> None:
        if len(self.keys) > 1:
            p.setPen(QPen(QColor(t.ink), 1.5))
            p.setBrush(Qt.BrushStyle.NoBrush)
            for slot in self._slots(plan):
                p.drawRoundedRect(slot.rect.adjusted(-1, 0.5, 1, -0.5), 3, 3)
        if self.drag is not None and self.drag.moving:
            self._draw_drag(p, plan, t, self.drag)

    def _draw_drag(self, p: QPainter, plan: Arrangement, t: Theme, drag: Drag) -> None:
        hue = plan.lanes[drag.lane].hue if drag.lane is not None else ""
        if drag.lane is not None:
            p.setBrush(t.tint(hue, 0.10))
            p.setPen(QPen(QColor(t.place(hue).line), 2))
            for box in plan.columns[drag.lane]:
                p.drawRoundedRect(box, 8, 8)
        words = "1 block" if len(self.keys) == 1 else f"{len(self.keys)} blocks"
        target = f" to {plan.lanes[drag.lane].title}" if drag.lane is not None else ""
        box = QRectF(drag.at.x() + 12, drag.at.y() + 10, 26 + 6.4 * len(words + target), 24)
        box.moveRight(min(box.right(), p.viewport().width() - 8))
        p.setPen(QPen(QColor(t.ink), 1))
        p.setBrush(QColor(t.raised))
        p.drawRoundedRect(box, 6, 6)
        draw_words(p, box, words + target, t.ink, 12, 500, Qt.AlignmentFlag.AlignHCenter)

    def _slots(self, plan: Arrangement) -> list[Slot]:
        chosen = set(self.keys)
        return [slot for slot in plan.slots if slot.unit is not None and slot.unit.key in chosen]


def lane_at(plan: Arrangement, at: QPointF) -> int | None:
    """The lane whose columns, head included, lie under a point; of a short lane all below it too."""
    for i, boxes in enumerate(plan.columns):
        left, right = boxes[0].left() - 10, boxes[-1].right() + 10
        if left <= at.x() <= right and at.y() >= boxes[0].top() - HEADER:
            return i
    return None
