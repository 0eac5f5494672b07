"""Every byte of a unit comes to its place on the device, once, whatever lies beside it in its file or in RAM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from layerlight.engine.ring.source_file import SourceFile
from layerlight.engine.ring.unit_layout import PIECE, StoredTensor, UnitTensor
from layerlight.engine.staging.device_landing import DeviceLanding
from layerlight.engine.staging.device_layout import (
    ALIGNMENT,
    RUN,
    DeviceLayout,
    HeldTensor,
    layout_from_files,
    layout_from_ram,
    packed,
)
from layerlight.engine.staging.lanes import OneQueue
from layerlight.engine.staging.locked_weights import LockedWeights

HERE = torch.device("cpu")


def brought(layout: DeviceLayout) -> list[torch.Tensor]:
    """The unit's weights as the device sees them, once every piece has been brought."""
    landing = DeviceLanding(HERE, OneQueue(), [layout])
    buffer = landing.buffer(layout.size)
    buffer.tensor.fill_(0xAB)
    files = {path: SourceFile(path) for path in layout.paths}
    reader = landing.reader(files)
    for piece in layout.pieces:
        reader.read(piece, buffer)
    for file in files.values():
        file.close()
    landing.close()
    found = []
    for view in layout.views:
        size = view.dtype.itemsize * torch.Size(view.shape).numel()
        found.append(buffer.tensor[view.position : view.position + size].view(view.dtype).view(view.shape))
    return found


def copied(layout: DeviceLayout) -> int:
    return sum(each.size for piece in layout.pieces for each in piece.crossings)


def random_bytes(size: int) -> torch.Tensor:
    return torch.randint(0, 100, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(size))


@pytest.mark.parametrize("gap", [0, 2, 70_000])
@pytest.mark.parametrize("begin", [0, 120, 4096 + 8])
def test_from_a_file(begin: int, gap: int, tmp_path: Path) -> None:
    """Tensors of a file in another order than its own, one larger than a piece, with others between them."""
    path = tmp_path / "weights"
    sizes = [2 * 300, 2 * (PIECE // 2 + 1000), 2 * 64, 2 * 1]
    content = random_bytes(begin + sum(sizes) + len(sizes) * gap)
    path.write_bytes(content.numpy().tobytes())
    tensors, expected, at = [], [], begin
    for size in sizes:
        tensors.append(UnitTensor(StoredTensor(str(path), at, size, torch.bfloat16), torch.bfloat16, (size // 2,)))
        expected.append(content[at : at + size])
        at += size + gap
    layout = layout_from_files([tensors[number] for number in (2, 0, 3, 1)])
    found = [each.view(torch.uint8) for each in brought(layout)]
    for each, number in zip(found, (2, 0, 3, 1), strict=True):
        assert torch.equal(each, expected[number])
    assert copied(layout) == sum(sizes), "only the weights cross"
    assert all(view.position % ALIGNMENT == 0 for view in layout.views)


@pytest.mark.parametrize(("stored", "dtype"), [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)])
def test_cast_on_the_way(stored: torch.dtype, dtype: torch.dtype, tmp_path: Path) -> None:
    """What is loaded as another dtype is cast in RAM; what crosses is the dtype that is computed with."""
    elements = PIECE // stored.itemsize + 5000
    weights = torch.arange(elements, dtype=torch.float32).remainder(251).to(stored)
    path = tmp_path / "weights"
    path.write_bytes(b"12345678" + weights.view(torch.uint8).numpy().tobytes())
    source = StoredTensor(str(path), 8, elements * stored.itemsize, stored)
    layout = layout_from_files([UnitTensor(source, dtype, (elements,))])
    assert torch.equal(brought(layout)[0], weights.to(dtype))
    assert copied(layout) == elements * dtype.itemsize


@pytest.mark.simulated
@pytest.mark.parametrize("room", [0, 2 * (RUN + 10_000)])
def test_from_ram_locked_or_not(room: int, simulated: Callable[..., ModuleType]) -> None:
    """What can't be page-locked stays where it is; either way all of it arrives, and neighbours cross as one."""
    sim = simulated([2**20])
    sizes = [ALIGNMENT, RUN + 4096, 1000, 64]
    weights = [random_bytes(size) for size in sizes]
    locked = LockedWeights(torch.device("sim:0"), room)
    held = locked.hold(weights)
    assert [each.pinned for each in held] == [room > 0] * len(held)
    assert (sim.pinned_bytes() >= sum(sizes)) is (room > 0)
    layout = layout_from_ram(held)
    assert all(torch.equal(found, weight) for found, weight in zip(brought(layout), weights, strict=True))
    assert copied(layout) == sum(sizes)
    assert (locked.size == 0) is (room == 0)
    assert locked.left_out == (0 if room else packed(sizes)[1])
    locked.close()


def test_weights_that_two_layers_share_are_held_once() -> None:
    table = random_bytes(1000)
    locked = LockedWeights(HERE, 0)
    first, second = locked.hold([table])[0], locked.hold([table, random_bytes(10)])[0]
    assert first is second


def test_an_empty_weight_needs_no_piece() -> None:
    held = HeldTensor(torch.empty(0, dtype=torch.uint8), 0, 0, torch.float32, (0,))
    layout = layout_from_ram([held])
    assert (layout.size, layout.pieces) == (0, ())
