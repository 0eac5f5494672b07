"""The streams of a device: copies on streams of their own, in order with what computes by events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

_REFUSALS = (RuntimeError, NotImplementedError, TypeError, ValueError, AssertionError)
"""What torch raises where a device has no streams or events."""


class Lane(Protocol):
    """Where one thread issues its copies."""

    def after(self, mark: Any) -> Any:
        """A context: copies issued in it begin once the work before this mark has ended."""
        ...

    def finish(self) -> None:
        """Waits until the copies issued so far are there."""
        ...


class Lanes(Protocol):
    """A device's lanes, and marks in the order of what computes."""

    overlap: bool
    """Whether copies and computing go on at once."""

    def lane(self) -> Lane: ...

    def mark(self) -> Any:
        """The end of what the calling thread has had the device compute so far."""
        ...


def lanes_of(device: torch.device) -> Lanes:
    """By streams where the device has them, else in the order of its one queue."""
    try:
        torch.Event(device=device).record(torch.Stream(device=device))
    except _REFUSALS:
        return OneQueue()
    return Streams(device)


class Streams:
    """Copies run beside what computes."""

    overlap = True

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def lane(self) -> SideLane:
        return SideLane(self._device)

    def mark(self) -> torch.Event:
        event = torch.Event(device=self._device, blocking=True)
        event.record(torch.accelerator.current_stream(self._device))
        return event


class SideLane:
    """A stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.Stream(device=device)

    @contextmanager
    def after(self, mark: torch.Event | None) -> Iterator[None]:
        with self._stream:
            if mark is not None:
                self._stream.wait_event(mark)
            yield

    def finish(self) -> None:
        event = torch.Event(device=self._device, blocking=True)
        event.record(self._stream)
        event.synchronize()


class OneQueue:
    """A device without streams does one thing after another: a copy waits for what was asked of it before."""

    overlap = False

    def lane(self) -> OneQueue:
        return self

    @contextmanager
    def after(self, _mark: None) -> Iterator[None]:
        yield

    def finish(self) -> None:
        """Copies have ended when their calls return."""

    def mark(self) -> None:
        return None
