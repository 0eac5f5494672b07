"""Experts merged part by part are what transformers makes of them, with less memory and a stop between two."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.core_model_loading import Concatenate, ConversionOps, MergeModulelist, Transpose, WeightConverter

from layerlight.core.errors import Stopped
from layerlight.core.messages import LoadProgressed
from layerlight.engine import merging, progress
from layerlight.engine.engine import TorchEngine
from layerlight.engine.merging import merge_experts
from tests.engine.events import Events
from tests.engine.tiny_models import FUSED, request_for

EXPERTS = 4
GATE, UP, FUSED_NAME = "experts.*.gate.weight", "experts.*.up.weight", "experts.gate_up"


def _parts(rows: int, wrap: Callable[[torch.Tensor], Any]) -> list[Any]:
    torch.manual_seed(rows)
    return [wrap(torch.randn(rows, 3)) for _ in range(EXPERTS)]


def _lazy(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: tensor


def _mapping(operations: list[ConversionOps], sources: dict[str, int], wrap: Callable[[torch.Tensor], Any]) -> Any:
    mapping = WeightConverter(list(sources), FUSED_NAME, operations)
    for source, rows in sources.items():
        mapping.collected_tensors[source] = _parts(rows, wrap)
    return mapping


MERGES: dict[str, tuple[Callable[[], list[ConversionOps]], dict[str, int]]] = {
    "side by side": (lambda: [MergeModulelist(0), Concatenate(1)], {GATE: 5, UP: 5}),
    "of different lengths": (lambda: [MergeModulelist(0), Concatenate(1)], {GATE: 5, UP: 2}),
    "one": (lambda: [MergeModulelist(0)], {GATE: 5}),
}


@pytest.mark.parametrize("name", sorted(MERGES))
def test_the_merged_weight_is_transformers(name: str) -> None:
    operations, sources = MERGES[name]
    theirs = _mapping(operations(), sources, _lazy).convert("layer." + FUSED_NAME)
    mapping = _mapping(operations(), sources, _lazy)
    shares: list[float] = []
    merge_experts(mapping, shares.append)
    ours = mapping.convert("layer." + FUSED_NAME)
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert len(shares) == EXPERTS * len(sources)
    assert (shares, shares[-1]) == (sorted(shares), 1.0)


def _done(tensor: torch.Tensor) -> Future[torch.Tensor]:
    future: Future[torch.Tensor] = Future()
    future.set_result(tensor)
    return future


@pytest.mark.parametrize(
    ("operations", "wrap"),
    [
        (lambda: [MergeModulelist(0), Concatenate(1)], _done),
        (lambda: [MergeModulelist(0), Concatenate(0)], _lazy),
        (lambda: [MergeModulelist(1), Concatenate(1)], _lazy),
        (lambda: [MergeModulelist(0), Concatenate(1), Transpose(1, 2)], _lazy),
        (lambda: [Concatenate(0)], _lazy),
    ],
)
def test_every_other_change_is_left_to_transformers(
    operations: Callable[[], list[ConversionOps]], wrap: Callable[[torch.Tensor], Any]
) -> None:
    mapping = _mapping(operations(), {GATE: 5, UP: 5}, wrap)
    before = dict(mapping.collected_tensors)
    merge_experts(mapping, pytest.fail)
    assert dict(mapping.collected_tensors) == before
    assert [type(each) for each in mapping.operations] == [type(each) for each in operations()]


@pytest.mark.parametrize("kind", FUSED)
def test_a_stop_is_heard_between_two_experts(
    kind: str, engine: TorchEngine, model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F13: merging one layer's experts takes as long as reading them; what was merged by then goes with it."""
    events = Events()
    heard: list[float] = []
    real = progress.LoadProgress._merging

    def stopping(told: Any, before: float, size: float, share: float) -> None:
        heard.append(share)
        if len(heard) == 2:
            events.stop.set()
        real(told, before, size, share)

    monkeypatch.setattr(progress.LoadProgress, "_merging", stopping)
    with pytest.raises(Stopped):
        engine.load(request_for(model_folder(kind)), events.job())
    assert len(heard) == 2
    assert heard[-1] < 1.0
    assert events.of(LoadProgressed)
    assert engine.loaded is None


@pytest.mark.parametrize("kind", FUSED)
def test_public_mixtures_are_merged_here(
    kind: str, engine: TorchEngine, model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's mapping has the form that is known: a new version that changes it must be looked at."""
    merged: list[int] = []
    real = merging._filled

    def counting(columns: Any, after: Any) -> torch.Tensor:
        merged.append(len(columns))
        return real(columns, after)

    monkeypatch.setattr(merging, "_filled", counting)
    engine.load(request_for(model_folder(kind)), Events().job())
    assert sorted(merged) == [1] * 4 + [2] * 4
