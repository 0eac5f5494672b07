"""Steps of the focus from block to block, as arrow keys make them: along the sweep, and across to the next lane."""

from __future__ import annotations

from layerlight.ui.arrangement import Arrangement, Slot

Block = tuple[int, str]
"""(lane, key)."""


def along(plan: Arrangement, focus: Block | None, by: int) -> Block | None:
    """Through the blocks of the sweep, then the other claims of each lane; stays at either end. None without blocks."""
    blocks = plan.sweep() + [slot for slot in plan.slots if slot.unit and slot.unit.order < 0]
    keys = [(slot.lane, slot.unit.key) for slot in blocks if slot.unit]
    if not keys:
        return None
    at = keys.index(focus) if focus in keys else -1
    return keys[max(0, min(len(keys) - 1, at + by))]


def across(plan: Arrangement, here: Slot, by: int) -> Block | None:
    """The nearest block, in height, of the next lane that has any; `by` is 1 to the right, -1 to the left."""
    lane, y = here.lane + by, here.rect.center().y()
    while 0 <= lane < len(plan.lanes):
        blocks = [(slot.rect.center().y(), slot.unit.key) for slot in plan.slots if slot.lane == lane and slot.unit]
        if blocks:
            return lane, min(blocks, key=lambda block: abs(block[0] - y))[1]
        lane += by
    return None
