"""Whatever order passes take units in, each is the right one and whole; no thread outlives its ring."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerlight.core.errors import RunFailed, Stopped
from layerlight.engine.ring import layer_ring
from layerlight.engine.ring.layer_ring import LayerRing
from layerlight.engine.ring.page_buffer import PAGE
from layerlight.engine.ring.slot import Slot
from layerlight.engine.ring.source_file import SourceFile
from layerlight.engine.ring.unit_layout import StoredTensor, UnitLayout, UnitTensor, layout_of

UNITS = 5


def _layouts(folder: Path, sizes: list[int]) -> list[UnitLayout]:
    """A file for each unit, all of its bytes the unit's number."""
    layouts = []
    for number, size in enumerate(sizes):
        path = folder / f"{number}.weights"
        path.write_bytes(bytes([number]) * size)
        stored = StoredTensor(str(path), 0, size, torch.uint8)
        layouts.append(layout_of([UnitTensor(stored, torch.uint8, (size,))]))
    return layouts


@pytest.fixture
def layouts(tmp_path: Path) -> list[UnitLayout]:
    return _layouts(tmp_path, [3 * PAGE + 5] * UNITS)


@pytest.fixture
def ring(layouts: list[UnitLayout]) -> Iterator[LayerRing]:
    made = LayerRing(layouts, buffers=2, readers=2)
    yield made
    made.close()


def _holds(slot: Slot, unit: int, layout: UnitLayout) -> bool:
    (view,) = slot.views(layout)
    return bool((view == unit).all())


def _pass(ring: LayerRing, layouts: list[UnitLayout], order: list[int]) -> None:
    for unit in order:
        slot = ring.take(unit)
        assert _holds(slot, unit, layouts[unit])
        ring.give(slot)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.lists(st.integers(0, UNITS - 1), max_size=25), buffers=st.integers(1, 4), small=st.booleans())
def test_any_order_brings_the_right_units(
    order: list[int], buffers: int, small: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also units that never come, come twice in a row, or are so small that they have buffers of their own."""
    folder = tmp_path_factory.mktemp("units")
    layouts = _layouts(folder, [40 * PAGE if small and number % 2 else PAGE for number in range(UNITS)])
    ring = LayerRing(layouts, buffers=buffers, readers=2)
    try:
        _pass(ring, layouts, order)
        ring.rewind()
        _pass(ring, layouts, list(range(UNITS)) * 2)
    finally:
        ring.close()


def _starts(ring: LayerRing, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of reads from now on, in their order."""
    read: list[str] = []
    plain = SourceFile.read

    def noted(file: SourceFile, offset: int, into: memoryview) -> None:
        read.append(Path(file.path).stem)
        plain(file, offset, into)

    monkeypatch.setattr(SourceFile, "read", noted)
    return read


def test_units_are_read_ahead_and_around(
    ring: LayerRing, layouts: list[UnitLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is read once a pass, in its order, and the first of the next pass while this one is not over."""
    while not ring.full:
        pass
    read = _starts(ring, monkeypatch)
    _pass(ring, layouts, list(range(UNITS)) * 3)
    while not ring.full:
        pass
    assert sorted(read) == sorted("01234" * 3)
    assert read[-2:] in (["0", "1"], ["1", "0"])


def test_another_order_is_learnt(ring: LayerRing, layouts: list[UnitLayout], monkeypatch: pytest.MonkeyPatch) -> None:
    """After one pass in it nothing is read in vain."""
    order = [3, 1, 4, 0, 2]
    _pass(ring, layouts, order * 2)
    while not ring.full:
        pass
    read = _starts(ring, monkeypatch)
    _pass(ring, layouts, order)
    while not ring.full:
        pass
    assert len(read) == UNITS


def test_a_unit_inside_another_has_a_buffer_too(ring: LayerRing, layouts: list[UnitLayout]) -> None:
    outer = ring.take(0)
    inner = ring.take(1)
    assert _holds(outer, 0, layouts[0])
    assert _holds(inner, 1, layouts[1])
    with pytest.raises(RunFailed, match="in use at once"):
        ring.take(2)
    ring.give(inner)
    assert _holds(ring.take(2), 2, layouts[2])
    assert _holds(outer, 0, layouts[0])


def test_a_run_that_broke_off_begins_anew_at_the_first(ring: LayerRing, layouts: list[UnitLayout]) -> None:
    _pass(ring, layouts, [0, 1, 2])
    ring.rewind()
    _pass(ring, layouts, [0, 1, 2, 3, 4, 0])


def test_what_passes_leave_out_is_read_no_more(
    ring: LayerRing, layouts: list[UnitLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model's tower for pictures comes first and is no part of a run over text."""
    for _ in range(2):
        ring.rewind()
        _pass(ring, layouts, [1, 2, 3, 4] * 2)
    ring.rewind()
    while not ring.full:
        pass
    read = _starts(ring, monkeypatch)
    _pass(ring, layouts, [1, 2, 3, 4] * 2)
    ring.rewind()
    while not ring.full:
        pass
    assert "0" not in read
    assert len(read) == 8


def test_a_fault_is_raised_where_its_unit_is_taken_and_read_anew_after(
    layouts: list[UnitLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, broken = SourceFile.read, threading.Event()
    broken.set()

    def read(file: SourceFile, offset: int, into: memoryview) -> None:
        if broken.is_set() and file.path.endswith("2.weights"):
            raise OSError(5, "Input/output error")
        plain(file, offset, into)

    monkeypatch.setattr(SourceFile, "read", read)
    ring = LayerRing(layouts, buffers=2)
    _pass(ring, layouts, [0, 1])
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            ring.take(2)
    broken.clear()
    ring.rewind()
    _pass(ring, layouts, list(range(UNITS)))
    ring.close()


def test_what_was_read_while_its_file_was_written_is_never_given(
    layouts: list[UnitLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = SourceFile.read

    def read(file: SourceFile, offset: int, into: memoryview) -> None:
        plain(file, offset, into)
        if file.path.endswith("1.weights"):
            os.utime(file.path, ns=(1, 1))

    monkeypatch.setattr(SourceFile, "read", read)
    ring = LayerRing(layouts, buffers=2)
    _pass(ring, layouts, [0])
    with pytest.raises(RunFailed, match=r"1\.weights was changed"):
        ring.take(1)
    ring.close()


def test_a_stop_is_heard_while_a_read_hangs(layouts: list[UnitLayout], monkeypatch: pytest.MonkeyPatch) -> None:
    plain, hangs = SourceFile.read, threading.Event()

    def read(file: SourceFile, offset: int, into: memoryview) -> None:
        if file.path.endswith("1.weights"):
            hangs.wait(30)
        plain(file, offset, into)

    monkeypatch.setattr(SourceFile, "read", read)
    ring = LayerRing(layouts, buffers=2)
    _pass(ring, layouts, [0])

    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        ring.take(1, stop)
    ring.rewind()
    hangs.set()
    _pass(ring, layouts, list(range(UNITS)))
    ring.close()


def test_no_thread_outlives_its_ring(layouts: list[UnitLayout]) -> None:
    before = threading.active_count()
    ring = LayerRing(layouts)
    assert threading.active_count() > before
    ring.close()
    ring.close()
    assert threading.active_count() == before
    with pytest.raises(RunFailed, match="closed"):
        ring.take(0)


def test_a_read_that_never_returns_does_not_hold_its_ring(
    layouts: list[UnitLayout], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A share on a network may be gone for good: the model can be unloaded all the same."""
    monkeypatch.setattr(layer_ring, "PATIENCE", 0.01)
    answers = threading.Event()
    monkeypatch.setattr(SourceFile, "read", lambda *_unused: answers.wait(30))
    before = set(threading.enumerate())
    ring = LayerRing(layouts)
    threads = set(threading.enumerate()) - before
    ring.close()
    assert "a read does not return" in caplog.text
    answers.set()
    for thread in threads:
        thread.join()


def test_no_room_for_buffers_leaves_nothing_open(layouts: list[UnitLayout], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_unused: object) -> None:
        raise MemoryError

    monkeypatch.setattr(layer_ring, "Slot", full)
    closed: list[str] = []
    plain = SourceFile.close

    def close(file: SourceFile) -> None:
        closed.append(file.path)
        plain(file)

    monkeypatch.setattr(SourceFile, "close", close)
    with pytest.raises(MemoryError):
        LayerRing(layouts)
    assert len(closed) == UNITS


def test_a_file_that_is_not_there_leaves_nothing_open(layouts: list[UnitLayout]) -> None:
    Path(layouts[-1].paths[0]).unlink()
    before = threading.active_count(), len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    with pytest.raises(OSError, match="No such file"):
        LayerRing(layouts)
    after = threading.active_count(), len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    assert after == before
