"""Keys and values in float8: rounded as torch rounds, the same whatever came first, and tried on each device."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from layerlight.engine import fp8
from layerlight.engine.fp8 import FLOAT8, HEADROOM, LARGEST, pack, runnable_caches, scale_of, turn_back

pytestmark = pytest.mark.engine

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
NUMBERS = torch.arange(256, dtype=torch.uint8)
ALL = NUMBERS[NUMBERS & 127 != 127].view(FLOAT8)
"""Every float8 that is a number."""


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp8, "_known", {})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("power", [-9, -1, 0, 3, 7])
def test_bits_moved_by_a_cpu_are_what_torch_converts(dtype: torch.dtype, power: int) -> None:
    scale = torch.tensor(2.0**power)
    assert torch.equal(turn_back(ALL, scale, dtype), ALL.to(dtype).mul_(scale))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_states_come_back_within_a_sixteenth(dtype: torch.dtype) -> None:
    states = torch.randn(2, 3, 50, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
    scale = scale_of(states)
    back = turn_back(pack(states, scale), scale, dtype)
    assert back.dtype == dtype
    off = (back.float() - states.float()).abs()
    assert bool((off <= states.float().abs() / 16 + scale * 2.0**-10).all())


@pytest.mark.parametrize("first", [0.5, 1.0, 4.0])
def test_the_same_states_are_rounded_alike_whatever_came_first(first: float) -> None:
    """Scales are powers of two: a cache that was cut back holds what a new one would."""
    states = torch.randn(400, generator=torch.Generator().manual_seed(2)).clamp(-4, 4)
    states = states[states.abs() > 0.05]
    scale = scale_of(torch.tensor([first]))
    other = scale_of(states)
    assert torch.equal(
        turn_back(pack(states, scale), scale, states.dtype), turn_back(pack(states, other), other, states.dtype)
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_larger_than_the_scale_allows_is_cut_off(dtype: torch.dtype) -> None:
    scale = scale_of(torch.ones(4, dtype=dtype))
    far = torch.tensor([1e4, -1e4], dtype=dtype)
    back = turn_back(pack(far, scale), scale, dtype).float()
    assert bool(back.isfinite().all())
    assert back[0] == -back[1] == LARGEST * scale >= HEADROOM


@pytest.mark.parametrize("largest", [0.0, 1e-30, 1.0, 6e4])
def test_a_scale_is_a_finite_power_of_two(largest: float) -> None:
    scale = float(scale_of(torch.tensor([0.0, largest])))
    assert scale > 0
    assert torch.frexp(torch.tensor(scale)).mantissa == 0.5


def test_a_cpu_keeps_them() -> None:
    assert runnable_caches("cpu") == ("fp8",)


@pytest.mark.simulated
def test_a_simulated_device_keeps_them(simulated: Callable[..., ModuleType]) -> None:
    simulated([8 << 20])
    assert runnable_caches("sim:0") == ("fp8",)


@pytest.mark.parametrize("error", [TypeError("no float8 here"), RuntimeError("not implemented for Float8")])
def test_a_device_that_can_not_is_asked_once(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    tried = []
    real = torch.Tensor.to

    def to(states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if args[0] == "meta":
            tried.append(states)
            raise error
        return real(states, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", to)
    assert runnable_caches("meta") == ()
    assert runnable_caches("meta") == ()
    assert len(tried) == 1


def test_no_room_for_the_attempt_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(states: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("full")

    with monkeypatch.context() as patched:
        patched.setattr(fp8, "_there_and_back", full)
        assert runnable_caches("cpu") is None
    assert runnable_caches("cpu") == ("fp8",)
