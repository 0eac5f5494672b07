"""The dtype probe: what runs and is right, whatever a list says."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from layerlight.engine import dtypes
from layerlight.engine.dtypes import CANDIDATES, runnable_dtypes

pytestmark = [pytest.mark.engine, pytest.mark.simulated]


@pytest.fixture
def sim(simulated: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(dtypes, "_known", {})
    return simulated([1 << 20])


def _meddle(monkeypatch: pytest.MonkeyPatch, dtype: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A device on which products of one dtype come out changed."""
    real = torch.Tensor.softmax

    def softmax(self: torch.Tensor, *args: Any) -> torch.Tensor:
        result = real(self, *args)
        return change(result) if self.device.type == "sim" and str(self.dtype) == f"torch.{dtype}" else result

    monkeypatch.setattr(torch.Tensor, "softmax", softmax)


def _refuse(kind: type[Exception], words: str) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(result: torch.Tensor) -> torch.Tensor:
        raise kind(words)

    return change


WRONG: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "not finite": lambda result: result / 0,
    "one nan": lambda result: result.index_fill(0, torch.tensor([3], device=result.device), torch.nan),
    "wrong": lambda result: result * 1.5,
    "zero": torch.zeros_like,
    "refused on mps": _refuse(TypeError, "BFloat16 is not supported on MPS"),
    "no kernel": _refuse(NotImplementedError, "Could not run 'aten::softmax'"),
    "driver": _refuse(RuntimeError, "CUDA error: no kernel image is available for execution on the device"),
}


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("dtype", CANDIDATES)
def test_a_dtype_that_fails_or_errs_is_left_out(
    sim: ModuleType, monkeypatch: pytest.MonkeyPatch, dtype: str, how: str
) -> None:
    _meddle(monkeypatch, dtype, WRONG[how])
    assert runnable_dtypes("sim:0") == tuple(name for name in CANDIDATES if name != dtype)


def test_a_device_is_asked_once(sim: ModuleType) -> None:
    assert runnable_dtypes("sim:0") == CANDIDATES
    sim.reset_transfers(0)
    assert runnable_dtypes("sim:0") == CANDIDATES
    assert sim.transfers(0) == sim.Transfers()


def test_no_room_is_no_answer(sim: ModuleType) -> None:
    sim.set_total(0, 16)
    assert runnable_dtypes("sim:0") is None
    sim.set_total(0, 1 << 20)
    assert runnable_dtypes("sim:0") == CANDIDATES
