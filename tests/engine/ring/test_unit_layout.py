"""However weights lie in their files, they come out of the buffer as they went in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from layerlight.core.inspecting.safetensors_header import read_placed_tensors
from layerlight.engine.ring import unit_layout
from layerlight.engine.ring.page_buffer import PAGE, PageBuffer
from layerlight.engine.ring.piece_reading import PieceReader
from layerlight.engine.ring.slot import Slot
from layerlight.engine.ring.source_file import SourceFile
from layerlight.engine.ring.unit_layout import StoredTensor, UnitLayout, UnitTensor, layout_of

Weights = dict[str, torch.Tensor]


def _random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def _unit(files: dict[Path, Weights], names: list[str], dtype: torch.dtype | None = None) -> list[UnitTensor]:
    """Writes the files; the named weights, loaded as `dtype` or as they are stored."""
    stored = {}
    for path, weights in files.items():
        save_file(weights, str(path))
        for begin, tensor in read_placed_tensors(path):
            kind = getattr(torch, tensor.dtype)
            stored[tensor.name] = UnitTensor(
                StoredTensor(str(path), begin, tensor.size, kind), dtype or kind, tensor.shape
            )
    return [stored[name] for name in names]


def _read(layout: UnitLayout) -> tuple[torch.Tensor, ...]:
    files = {path: SourceFile(path) for path in layout.paths}
    slot = Slot(layout.size, 0)
    slot.prepare(layout)
    reader = PieceReader(files, casts=True)
    for piece in reversed(layout.pieces):
        reader.read(piece, slot.buffer)
    for file in files.values():
        file.close()
    return tuple(view.detach() for view in slot.views(layout))


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("piece", [4 * PAGE, 4 * 2**20])
def test_weights_come_out_as_they_went_in(
    piece: int, dtype: torch.dtype | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two shards, weights of others between, three dtypes, an element, none at all; in small pieces and in one."""
    monkeypatch.setattr(unit_layout, "PIECE", piece)
    first = {
        "a": _random(70, 33),
        "b": _random(7),
        "m": _random(400, 200),
        "other": _random(300, 300),
        "z": _random(1, dtype=torch.float32),
    }
    second = {"c": _random(50, 50, dtype=torch.float32), "none": _random(0, 5), "d": _random(3, dtype=torch.float16)}
    names = ["d", "z", "m", "a", "c", "none", "b"]
    tensors = _unit({tmp_path / "1.safetensors": first, tmp_path / "2.safetensors": second}, names, dtype)
    whole = first | second
    for name, found in zip(names, _read(layout_of(tensors)), strict=True):
        assert found.shape == whole[name].shape
        assert torch.equal(found, whole[name].to(found.dtype)), name
        assert found.dtype == (dtype or whole[name].dtype)


def test_an_element_across_its_own_size_is_moved(tmp_path: Path) -> None:
    """A header may be of any length: then floats begin at odd bytes."""
    weights = {"a": _random(100, 30, dtype=torch.float32)}
    (tensor,) = _unit({tmp_path / "m.safetensors": weights}, ["a"])
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"x" + path.read_bytes())
    stored = StoredTensor(str(path), tensor.stored.begin + 1, tensor.stored.size, torch.float32)
    (found,) = _read(layout_of([UnitTensor(stored, torch.float32, tensor.shape)]))
    assert torch.equal(found, weights["a"])
    assert found.data_ptr() % 4 == 0


def _neighbours(tmp_path: Path, between: int) -> UnitLayout:
    weights = {"a": _random(64, 64), "b": _random(between, 64), "c": _random(64, 64)}
    return layout_of(_unit({tmp_path / "m.safetensors": weights}, ["a", "c"]))


@pytest.mark.parametrize(("between", "reads"), [(64, 1), (64 * 64, 2)])
def test_neighbours_are_one_read(between: int, reads: int, tmp_path: Path) -> None:
    """Across a small gap it is cheaper to read on; across a large one it is not."""
    assert len(_neighbours(tmp_path, between).pieces) == reads


def test_reads_are_of_whole_pages(tmp_path: Path) -> None:
    for piece in _neighbours(tmp_path, 64 * 64).pieces:
        assert (piece.offset % PAGE, piece.length % PAGE, piece.position % PAGE) == (0, 0, 0)


def test_equal_layers_share_their_views(tmp_path: Path) -> None:
    """Layers that lie alike in their files are the same objects in a buffer, however many there are."""
    sizes: Callable[[int], Weights] = lambda number: {f"{number}.a": _random(64, 64), f"{number}.b": _random(64, 32)}  # noqa: E731
    tensors = _unit({tmp_path / "m.safetensors": {**sizes(0), **sizes(1), **sizes(2)}}, ["0.a", "0.b", "2.a", "2.b"])
    first, second = layout_of(tensors[:2]), layout_of(tensors[2:])
    assert first.views == second.views
    slot = Slot(max(first.size, second.size), 0)
    slot.prepare(first)
    slot.prepare(second)
    assert slot.views(first) is slot.views(second)


@pytest.mark.parametrize("size", [1, PAGE, 3 * 2**20 + 1])
def test_buffers_begin_at_pages(size: int) -> None:
    """Large ones at huge pages, which the system only then gives."""
    buffer = PageBuffer(size)
    assert buffer.size >= size
    assert buffer.tensor.data_ptr() % (2 * 2**20 if size >= 2 * 2**20 else PAGE) == 0
    buffer.bytes[-1] = 7
    assert int(buffer.tensor[-1]) == 7
    assert buffer.holds(buffer.tensor.data_ptr())
    assert not buffer.holds(buffer.tensor.data_ptr() + buffer.size)
