"""Transfers are the copies a program asked for: each counted once, and nothing that operators do inside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

pytestmark = pytest.mark.simulated
Simulated = Callable[..., ModuleType]
MIB = 1 << 20


@pytest.fixture
def sim(simulated: Simulated) -> ModuleType:
    return simulated([8 * MIB, 8 * MIB])


@pytest.mark.parametrize("non_blocking", [False, True])
def test_each_way_is_counted_on_its_own_device(sim: ModuleType, non_blocking: bool) -> None:
    source = torch.rand(256, pin_memory=False)
    placed = source.to("sim:1", non_blocking=non_blocking)
    back = torch.empty(256).copy_(placed, non_blocking=non_blocking)
    moved = sim.transfers(1)
    assert (moved.to_device, moved.to_device_count, moved.from_device, moved.from_device_count) == (1024, 1, 1024, 1)
    assert torch.equal(back, source)
    assert sim.transfers(0) == sim.Transfers()


def test_between_devices_both_sides_count(sim: ModuleType) -> None:
    first = torch.rand(64).to("sim:0")
    sim.reset_transfers(0)
    second = first.to("sim:1")
    assert sim.transfers(0) == sim.Transfers(to_peer=256, to_peer_count=1)
    assert sim.transfers(1) == sim.Transfers(from_peer=256, from_peer_count=1)
    assert torch.equal(second.cpu(), first.cpu())


def test_what_operators_do_inside_is_no_transfer(sim: ModuleType) -> None:
    weight = torch.rand(64, 64).to("sim")
    sim.reset_transfers(0)
    hidden = torch.zeros(1, 64, device="sim")
    for _ in range(3):
        hidden = torch.nn.functional.layer_norm(hidden @ weight.t() + 1, (64,)).softmax(-1).clone()
    hidden.view(8, 8).t().contiguous()[2:4].add_(1)
    assert sim.transfers(0) == sim.Transfers()


def test_reading_one_number_is_counted_apart(sim: ModuleType) -> None:
    number = torch.ones(1, device="sim")
    sim.reset_transfers(0)
    assert number.item() == 1
    assert sim.transfers(0) == sim.Transfers(scalars_read=1)


def test_a_cast_on_the_way_counts_the_bytes_that_arrive(sim: ModuleType) -> None:
    torch.rand(128).to("sim:0", torch.bfloat16)
    assert sim.transfers(0).to_device == 256


def test_safetensors_reads_onto_a_device(sim: ModuleType, tmp_path: Path) -> None:
    tensors = {"a": torch.rand(4, 6), "b": torch.arange(5)}
    save_file(tensors, tmp_path / "m.safetensors")
    loaded = load_file(tmp_path / "m.safetensors", device="sim:1")
    assert {name: tensor.device for name, tensor in loaded.items()} == dict.fromkeys(tensors, torch.device("sim:1"))
    with safe_open(tmp_path / "m.safetensors", "pt", device="sim:0") as file:
        assert sorted(file.keys()) == ["a", "b"]
        part = file.get_slice("a")
        assert part.get_shape() == [4, 6]
        assert part[1:3].device == torch.device("sim:0")
        assert torch.equal(part[1:3].cpu(), tensors["a"][1:3])


def test_torch_saves_and_loads_on_a_device(sim: ModuleType, tmp_path: Path) -> None:
    tensor = torch.rand(12).to("sim:1")
    torch.save({"t": tensor[2:]}, tmp_path / "t.pt")
    here = torch.load(tmp_path / "t.pt", map_location="cpu", weights_only=True)["t"]
    there = torch.load(tmp_path / "t.pt", map_location="sim:0", weights_only=True)["t"]
    assert torch.equal(here, tensor[2:].cpu())
    assert torch.equal(there.cpu(), here)
    assert there.device == torch.device("sim:0")
