"""A model in hundreds of files can be read where a system allows few at first."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from layerlight.engine.open_files import allow_open_files
from layerlight.engine.ring.layer_ring import LayerRing
from layerlight.engine.ring.unit_layout import StoredTensor, UnitTensor, layout_of

if sys.platform == "win32":
    pytest.skip("Windows has no such limit", allow_module_level=True)
import resource


@pytest.fixture
def limit() -> Iterator[int]:
    """At first 64 files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    yield 64
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_only_rises(limit: int) -> None:
    allow_open_files(1000)
    raised = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert raised >= 1000
    allow_open_files(10)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == raised


def test_more_than_the_system_allows_is_no_failure(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_unused: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    with monkeypatch.context() as refusing:  # ends before the limit is put back
        refusing.setattr(resource, "setrlimit", refuse)
        allow_open_files(1000)


def test_a_unit_in_hundreds_of_files_is_read(limit: int, tmp_path: Path) -> None:
    tensors = []
    for number in range(200):
        path = tmp_path / f"{number}.weights"
        path.write_bytes(bytes([number]) * 100)
        tensors.append(UnitTensor(StoredTensor(str(path), 0, 100, torch.uint8), torch.uint8, (100,)))
    layout = layout_of(tensors)
    ring = LayerRing([layout], buffers=1, readers=1)
    slot = ring.take(0)
    assert [int(view[99]) for view in slot.views(layout)] == list(range(200))
    ring.close()
