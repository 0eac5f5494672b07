"""The ring: a few buffers that threads fill with the units to come, in the order in which passes need them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from layerlight.core.errors import RunFailed
from layerlight.core.planning.runtime import RING_BUFFERS
from layerlight.engine.failures import LIBRARY_FAILURES
from layerlight.engine.open_files import allow_open_files
from layerlight.engine.ring.landing import Buffer, Landing, RamLanding, Reader
from layerlight.engine.ring.slot import Slot, SlotState
from layerlight.engine.ring.source_file import SourceFile
from layerlight.engine.ring.unit_layout import Layout

log = logging.getLogger(__name__)

READERS = min(3, max(2, os.cpu_count() or 2))
"""Threads that read: they keep a disk busy, and on two cores a third would only take time from what computes."""
SMALL = 16
"""Units of less than this part of the largest have buffers of their own: a norm must not keep a layer waiting."""
PATIENCE = 5.0
"""Seconds in which reads that are under way must return when the ring is closed."""
_OPEN_TIMES = 4
"""How often a file is open at most: for either way of reading, to be watched, and as pages in memory."""
_LISTENING = 0.05
"""Seconds between two looks for a stop while a unit is waited for."""


class LayerRing:
    """Fills buffers with units, round and round. One thread takes and gives back; the readers are the ring's own.

    Units follow each other in the order they were given in, until passes show another one: the ring then learns what
    comes after what.
    """

    def __init__(
        self,
        layouts: Sequence[Layout],
        buffers: int = RING_BUFFERS,
        readers: int = READERS,
        landing: Landing | None = None,
    ) -> None:
        """`buffers` for large units and as many for small ones; at another `landing` than RAM just so many for all.
        Begins to read at once.

        Raises OSError when a file can't be opened, MemoryError when there is no room for the buffers.
        """
        self._layouts = tuple(layouts)
        self._files = _opened(self._layouts)
        self._kinds = (0,) * len(self._layouts) if landing else _kinds(self._layouts)
        there = landing or RamLanding(casts=any(each.cast for layout in self._layouts for each in layout.pieces))
        with ExitStack() as undo:
            for file in self._files.values():
                undo.callback(file.close)
            self._slots = _slots(self._layouts, self._kinds, buffers, there)
            each_reads = [there.reader(self._files) for _ in range(readers)]
            undo.pop_all()
        self._next = [*range(1, len(self._layouts)), 0]
        self._first = self._upcoming = 0
        self._taken: int | None = None
        self._filling: deque[Slot] = deque()
        """Buffers in the order in which they will be taken."""
        self._pieces: deque[tuple[Slot, int, Any]] = deque()
        self._closed = False
        lock = threading.Lock()
        self._work = threading.Condition(lock)
        self._came = threading.Condition(lock)
        self._threads = [
            threading.Thread(target=self._read, args=(reader,), name=f"ring-{number}", daemon=True)
            for number, reader in enumerate(each_reads)
        ]
        with lock:
            self._fill()
        for thread in self._threads:
            thread.start()

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are read."""
        return tuple(self._files)

    @property
    def full(self) -> bool:
        """Whether all that can be read ahead has been."""
        with self._came:
            waiting = any(slot.state in (SlotState.FILLING, SlotState.LEAVING) for slot in self._slots)
        return not waiting

    @property
    def size(self) -> int:
        """Bytes of all buffers."""
        return sum(slot.buffer.size for slot in self._slots)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(slot.buffer for slot in self._slots)

    @property
    def direct(self) -> bool:
        """Whether all reads go past the system's cache."""
        return all(file.direct for file in self._files.values())

    @property
    def ended(self) -> bool:
        """Whether no thread of it is at work any more."""
        return not any(thread.is_alive() for thread in self._threads)

    def take(self, unit: int, check: Callable[[], None] = lambda: None) -> Slot:
        """The buffer with this unit in it, once it is whole; others wait until it is given back.

        `check` is called while it waits, and may raise. Raises RunFailed or OSError when the unit could not be read:
        asking again reads it again.
        """
        with self._came:
            self._aim(unit)
            self._first = unit if self._taken is None else self._first
            while True:
                if self._closed:
                    raise RunFailed("The model's layers on disk are closed.", hint="Load the model again.")
                slot = self._filling[0] if self._filling else None
                if slot is not None and slot.trouble is not None:
                    raise self._taken_back()
                if slot is not None and slot.state is SlotState.READY:
                    self._filling.popleft()
                    slot.state, self._taken = SlotState.HELD, unit
                    return slot
                if slot is None and self._all_held(self._kinds[unit]):
                    raise RunFailed("More layers on disk are in use at once than there are buffers for.")
                if not self._came.wait(_LISTENING):
                    check()

    def give(self, slot: Slot) -> None:
        """What was in it is no longer needed: the next unit may come there."""
        with self._came:
            if slot.state is SlotState.HELD:
                slot.state = SlotState.FREE
                self._fill()

    def rewind(self) -> None:
        """The next pass begins as the last run did, wherever that broke off. What failed is read anew."""
        with self._came:
            self._taken = None
            if any(slot.trouble for slot in self._filling) or (self._filling and self._filling[0].unit != self._first):
                self._restart(self._first)

    def close(self) -> None:
        """Ends the threads and closes the files. Buffers go with their last views.

        A thread whose read does not return, from a share on a network that is gone, is left behind with its file.
        """
        with self._came:
            self._closed = True
            self._pieces.clear()
            self._work.notify_all()
            self._came.notify_all()
        deadline = time.monotonic() + PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if not self.ended:
            log.warning("a read does not return: its thread is left behind")
        else:
            for file in self._files.values():
                file.close()
        self._slots, self._filling = (), deque()

    # -- what comes next, under the lock -----------------------------------------------------------------------------

    def _aim(self, unit: int) -> None:
        """Makes this unit the next to be taken."""
        position = next((at for at, slot in enumerate(self._filling) if slot.unit == unit), None)
        if position == 0:
            return
        if self._taken is not None:
            self._next[self._taken] = unit
        if position is None:
            self._restart(unit)
            return
        for _ in range(position):
            self._drop(self._filling.popleft())
        self._fill()

    def _restart(self, unit: int) -> None:
        while self._filling:
            self._drop(self._filling.popleft())
        self._upcoming = unit
        self._fill()

    def _drop(self, slot: Slot) -> None:
        slot.fill += 1
        slot.trouble = None
        slot.state = SlotState.LEAVING if slot.reading else SlotState.FREE

    def _fill(self) -> None:
        """Hands out every free buffer that the unit to come fits."""
        while slot := self._free(self._kinds[self._upcoming]):
            layout = self._layouts[self._upcoming]
            slot.unit, slot.state = self._upcoming, SlotState.FILLING
            slot.fill += 1
            slot.left = len(layout.pieces)
            self._filling.append(slot)
            self._pieces.extend((slot, slot.fill, piece) for piece in layout.pieces)
            self._upcoming = self._next[self._upcoming]
        self._work.notify_all()

    def _free(self, kind: int) -> Slot | None:
        return next((slot for slot in self._slots if slot.kind == kind and slot.state is SlotState.FREE), None)

    def _all_held(self, kind: int) -> bool:
        return all(slot.state is SlotState.HELD for slot in self._slots if slot.kind == kind)

    def _taken_back(self) -> Exception:
        """The trouble at the head of the ring; its unit is read anew for the next one who asks."""
        slot = self._filling[0]
        trouble, unit = slot.trouble, slot.unit
        self._restart(unit)
        return trouble if trouble is not None else RunFailed("A layer could not be read.")

    # -- the readers' threads ----------------------------------------------------------------------------------------

    def _read(self, reader: Reader) -> None:
        while work := self._next_piece():
            slot, fill, piece = work
            trouble: Exception | None = None
            try:
                reader.read(piece, slot.buffer)
            except LIBRARY_FAILURES as error:
                trouble = error.with_traceback(None)  # its frames would hold the buffer
            self._landed(slot, fill, trouble)

    def _next_piece(self) -> tuple[Slot, int, Any] | None:
        """The next piece that is still wanted; None when the ring is closed."""
        with self._work:
            while True:
                while not self._pieces and not self._closed:
                    self._work.wait()
                if self._closed:
                    return None
                slot, fill, piece = self._pieces.popleft()
                if slot.fill == fill and slot.trouble is None:
                    slot.reading += 1
                    return slot, fill, piece

    def _landed(self, slot: Slot, fill: int, trouble: Exception | None) -> None:
        with self._came:
            slot.reading -= 1
            if slot.fill != fill:
                if slot.state is SlotState.LEAVING and not slot.reading:
                    slot.state = SlotState.FREE
                    self._fill()
                return
            slot.left -= 1
            slot.trouble = slot.trouble or trouble or (None if slot.left else self._change(slot))
            if not slot.left or slot.trouble:
                slot.state = SlotState.READY
                self._came.notify_all()

    def _change(self, slot: Slot) -> Exception | None:
        """What was read while its file was written to may be half of each."""
        for path in self._layouts[slot.unit].paths:
            if self._files[path].changed():
                return RunFailed(
                    f"{Path(path).name} was changed while the model was in use.",
                    hint="Load the model again once its files are whole.",
                )
        return None


def _opened(layouts: Sequence[Layout]) -> dict[str, SourceFile]:
    files: dict[str, SourceFile] = {}
    paths = tuple(dict.fromkeys(path for layout in layouts for path in layout.paths))
    allow_open_files(_OPEN_TIMES * len(paths))
    try:
        for path in paths:
            files[path] = SourceFile(path)
    except OSError:
        for file in files.values():
            file.close()
        raise
    return files


def _kinds(layouts: Sequence[Layout]) -> tuple[int, ...]:
    """0 for units of the size of the largest, 1 for small ones."""
    largest = max(layout.size for layout in layouts)
    return tuple(int(layout.size * SMALL < largest) for layout in layouts)


def _slots(layouts: Sequence[Layout], kinds: Sequence[int], buffers: int, landing: Landing) -> tuple[Slot, ...]:
    slots = []
    for kind in sorted(set(kinds)):
        own = [layout for layout, each in zip(layouts, kinds, strict=True) if each == kind]
        for _ in range(buffers):
            size = max(layout.size for layout in own)
            slot = Slot(size, kind, landing.buffer(size))
            for layout in own:
                slot.prepare(layout)
            slots.append(slot)
    return tuple(slots)
