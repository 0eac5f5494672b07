"""Many small events as few: what arrives faster than a screen can show is joined."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from layerlight.core.messages import (
    Event,
    LayerRan,
    LoadProgressed,
    MemoryMeasured,
    StarterProgressed,
    TextProduced,
)

NEWEST_COUNTS = (LayerRan, LoadProgressed, MemoryMeasured, StarterProgressed)
"""Snapshots: of several in a row only the last is news."""


def joined(events: Iterable[Event]) -> list[Event]:
    """The same events with text in a row joined, and of snapshots between two other events only the newest."""
    result: list[Event] = []
    snapshots: dict[type[Event], int] = {}
    text: int | None = None
    for event in events:
        if isinstance(event, TextProduced):
            if text is None:
                text = len(result)
                result.append(event)
            else:
                before = result[text]
                if isinstance(before, TextProduced):
                    result[text] = TextProduced(before.text + event.text, before.tokens + event.tokens)
        elif isinstance(event, NEWEST_COUNTS):
            at = snapshots.get(type(event))
            if at is None:
                snapshots[type(event)] = len(result)
                result.append(event)
            else:
                result[at] = _newer(result[at], event)
        else:
            snapshots.clear()
            text = None
            result.append(event)
    return result


def _newer(before: Event, now: Event) -> Event:
    """The newer snapshot; a progress never falls below an older one."""
    if isinstance(before, LoadProgressed) and isinstance(now, LoadProgressed):
        bytes_done, layers_done = max(before.bytes_done, now.bytes_done), max(before.layers_done, now.layers_done)
        return replace(now, bytes_done=bytes_done, layers_done=layers_done)
    return now
