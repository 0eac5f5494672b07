"""Copies go on while others are computed with, and never into what is still computed with: by streams that are told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from layerlight.engine.staged_layers import HeldWeight, StagedLayers
from layerlight.engine.staging.device_layout import HeldTensor

UNITS, WIDTH, PASSES = 5, 32, 3
LONG = 30.0
"""Seconds after which something will never come."""


class Mark:
    """An event: what is marked has ended once it is `done`."""

    def __init__(self, done: bool) -> None:
        self.done = threading.Event()
        if done:
            self.done.set()


class ToldLanes:
    """Streams whose device has ended its work when it is told so; counts the copies that have arrived."""

    overlap = True

    def __init__(self, ends_at_once: bool) -> None:
        self._ends_at_once = ends_at_once
        self.marks: list[Mark] = []
        self.arrived = 0
        self.arrival = threading.Condition()

    def lane(self) -> ToldLanes:
        return self

    def mark(self) -> Mark:
        first = len(self.marks) < 2  # those of new buffers, with which nothing was computed
        self.marks.append(Mark(first or self._ends_at_once))
        return self.marks[-1]

    @contextmanager
    def after(self, mark: Mark) -> Iterator[None]:
        assert mark.done.wait(LONG)
        yield

    def finish(self) -> None:
        with self.arrival:
            self.arrived += 1
            self.arrival.notify_all()

    def wait_for(self, copies: int) -> bool:
        with self.arrival:
            return self.arrival.wait_for(lambda: self.arrived >= copies, LONG)


@pytest.fixture
def plain() -> torch.nn.Sequential:
    torch.manual_seed(3)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(UNITS)))


def staged(plain: torch.nn.Sequential, lanes: ToldLanes) -> tuple[torch.nn.Sequential, StagedLayers]:
    """The same model with weights that are brought for each pass."""
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False, device="meta") for _ in range(UNITS)))
    weights: dict[str, list[HeldWeight]] = {}
    for name, module in model.named_children():
        weight = plain.get_submodule(name).weight
        assert isinstance(weight, torch.Tensor)
        raw = weight.detach().reshape(-1).view(torch.uint8)
        held = HeldTensor(raw, 0, raw.numel(), weight.dtype, tuple(weight.shape))
        resting: Any = module.weight
        weights[name] = [HeldWeight(f"{name}.weight", module._parameters, "weight", resting, held)]
    return model, StagedLayers(model, weights, torch.device("cpu"), lanes)


def test_the_next_layer_comes_while_one_is_computed_with(plain: torch.nn.Sequential) -> None:
    """Round and round: the first layers of the next pass come during the last ones of this."""
    lanes = ToldLanes(ends_at_once=True)
    model, layers = staged(plain, lanes)
    begun = 0

    def computes(*_unused: object) -> None:
        nonlocal begun
        begun += 1
        assert lanes.wait_for(begun + 1), "the next layer does not come before this one is done"

    for module in model:
        module.register_forward_pre_hook(computes)
    hidden = torch.randn(2, WIDTH)
    for _ in range(PASSES):
        with torch.inference_mode(), layers.during(lambda: None):
            assert torch.equal(model(hidden), plain(hidden))
    assert begun == PASSES * UNITS
    layers.close()
    assert lanes.arrived <= PASSES * UNITS + 2, "each layer crosses once a pass, two of them ahead"


def test_nothing_comes_into_a_buffer_that_is_computed_with(plain: torch.nn.Sequential) -> None:
    """The host is ahead of the device: a layer that was left may still be computed with."""
    lanes = ToldLanes(ends_at_once=False)
    model, layers = staged(plain, lanes)
    computed: list[tuple[torch.Tensor, torch.Tensor]] = []

    def computes(module: torch.nn.Module, _inputs: object) -> None:
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        computed.append((weight.detach(), weight.detach().clone()))

    for module in model:
        module.register_forward_pre_hook(computes)
    ended = checked = 0

    def device_goes_on() -> None:
        """Called while a layer is waited for: all that the device has not ended is as it was, then it ends one."""
        nonlocal ended, checked
        for seen, was in computed[ended:]:
            assert torch.equal(seen, was)
            checked += 1
        if ended < len(lanes.marks) - 2:
            lanes.marks[2 + ended].done.set()
            ended += 1

    hidden = torch.randn(2, WIDTH)
    for _ in range(PASSES):
        with torch.inference_mode(), layers.during(device_goes_on):
            assert torch.equal(model(hidden), plain(hidden))
    assert checked >= PASSES * UNITS - 2
    for mark in lanes.marks:
        mark.done.set()
    layers.close()


def test_closing_ends_threads_and_leaves_the_layers_empty(plain: torch.nn.Sequential) -> None:
    before = threading.active_count()
    model, layers = staged(plain, ToldLanes(ends_at_once=True))
    assert threading.active_count() > before
    layers.close()
    assert threading.active_count() == before
    assert all(parameter.device.type == "meta" for parameter in model.parameters())
