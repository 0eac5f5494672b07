"""A simulated device's memory: limits that hold, peaks, and errors like a real device's."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import ModuleType

import pytest
import torch

pytestmark = pytest.mark.simulated
Simulated = Callable[..., ModuleType]
MIB = 1 << 20


def test_used_and_free_bytes_are_exact(simulated: Simulated) -> None:
    sim = simulated([8 * MIB, 4 * MIB])
    held = torch.empty(3 * MIB, dtype=torch.uint8, device="sim:1")
    assert sim.memory_allocated(1) == 3 * MIB
    assert sim.mem_get_info(1) == (MIB, 4 * MIB)
    assert sim.mem_get_info(0) == (8 * MIB, 8 * MIB)
    del held
    assert sim.memory_allocated(1) == 0


def test_the_peak_stays_until_it_is_reset(simulated: Simulated) -> None:
    sim = simulated([8 * MIB])
    torch.empty(5 * MIB, dtype=torch.uint8, device="sim")
    assert (sim.memory_allocated(0), sim.max_memory_allocated(0)) == (0, 5 * MIB)
    held = torch.empty(MIB, dtype=torch.uint8, device="sim")
    sim.reset_peak_memory_stats(0)
    assert sim.max_memory_allocated(0) == held.nbytes


@pytest.mark.parametrize("device", ["sim:0", "sim:1"])
def test_more_than_the_total_is_a_real_out_of_memory_error(simulated: Simulated, device: str) -> None:
    sim = simulated([2 * MIB, 3 * MIB])
    index = torch.device(device).index
    total = sim.mem_get_info(index)[1]
    torch.empty(total, dtype=torch.uint8, device=device)
    with pytest.raises(torch.OutOfMemoryError, match=rf"Device {index} has a total capacity"):
        torch.empty(total + 1, dtype=torch.uint8, device=device)
    assert sim.memory_allocated(index) == 0


def _matmul(big: torch.Tensor) -> torch.Tensor:
    return big.unsqueeze(1) @ big.unsqueeze(0)


@pytest.mark.parametrize(
    "grow",
    [
        _matmul,
        lambda big: torch.cat([big] * 3000),
        lambda big: big.expand(3000, -1).contiguous(),
        lambda big: torch.nn.functional.one_hot(torch.arange(1024).to(big.device), 1024),
        lambda big: big.expand(2000, -1).to(torch.float64),
        lambda big: torch.zeros(8 * MIB, device=big.device),
        lambda big: big.resize_(8 * MIB),
        lambda big: big.untyped_storage().resize_(32 * MIB),
    ],
    ids=["matmul", "cat", "contiguous", "one_hot", "cast", "zeros", "resize", "storage"],
)
def test_results_of_operators_count_against_the_limit(simulated: Simulated, grow: Callable[..., object]) -> None:
    sim = simulated([3 * MIB])
    big = torch.rand(1024).to("sim")
    with pytest.raises(torch.OutOfMemoryError):
        grow(big)
    gc.collect()
    assert sim.memory_allocated(0) == big.untyped_storage().nbytes()


def test_attention_in_one_kernel_never_holds_the_scores(simulated: Simulated) -> None:
    sim = simulated([8 * MIB])
    query = torch.rand(1, 4, 1024, 16).to("sim")
    scores = 4 * 1024 * 1024 * 4
    torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    assert sim.max_memory_allocated(0) == 2 * query.nbytes < scores


def test_attention_turns_a_mask_of_booleans_into_numbers_first(simulated: Simulated) -> None:
    sim = simulated([8 * MIB])
    query = torch.rand(1, 4, 1024, 16, dtype=torch.bfloat16).to("sim")
    mask = torch.ones(1, 1, 1024, 1024, dtype=torch.bool).to("sim")
    torch.nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=mask)
    assert sim.max_memory_allocated(0) == 2 * query.nbytes + mask.nbytes + 2 * mask.nbytes


def test_a_device_that_is_not_there_is_named(simulated: Simulated) -> None:
    simulated([MIB])
    with pytest.raises(RuntimeError, match="sim:1 does not exist: there are 1 simulated devices"):
        torch.empty(1, device="sim:1")


def test_sixteen_devices_and_no_more(simulated: Simulated) -> None:
    sim = simulated([MIB] * 16)
    assert sim.device_count() == torch.accelerator.device_count() == 16
    assert torch.ones(2, device="sim:15").device == torch.device("sim", 15)
    with pytest.raises(ValueError, match="17 simulated devices"):
        simulated([MIB] * 17)


def test_devices_that_hold_memory_are_not_taken_away(simulated: Simulated) -> None:
    simulated([MIB, MIB])
    held = torch.ones(4, device="sim:1")
    with pytest.raises(ValueError, match=f"sim:1 still holds {held.nbytes} bytes"):
        simulated([MIB])


def test_another_program_can_take_memory_meanwhile(simulated: Simulated) -> None:
    sim = simulated([4 * MIB])
    held = torch.empty(2 * MIB, dtype=torch.uint8, device="sim")
    sim.set_total(0, MIB)
    assert sim.mem_get_info(0) == (0, MIB)
    with pytest.raises(torch.OutOfMemoryError):
        held.clone()


def test_torchs_own_accelerator_module_reads_the_same(simulated: Simulated) -> None:
    sim = simulated([4 * MIB, 8 * MIB])
    held = torch.empty(MIB, dtype=torch.uint8, device="sim:1")
    assert torch.accelerator.current_accelerator() == torch.device("sim")
    assert torch.accelerator.memory_allocated(1) == held.nbytes == sim.memory_stats(1)["allocated_bytes.all.current"]
    assert torch.accelerator.get_memory_info(1) == sim.mem_get_info(1)
    torch.accelerator.synchronize(1)
    torch.accelerator.empty_cache()


@pytest.mark.parametrize("unified", [False, True])
def test_a_device_says_whether_it_shares_ram(simulated: Simulated, unified: bool) -> None:
    sim = simulated([4 * MIB], unified=unified)
    properties = sim.get_device_properties("sim:0")
    assert (properties.is_integrated, properties.total_memory) == (unified, 4 * MIB)
    assert properties.name == sim.get_device_name(0) == "Simulated accelerator 0"


def test_pinned_memory_is_known_and_counted(simulated: Simulated) -> None:
    sim = simulated([MIB])
    plain = torch.rand(100)
    pinned = plain.pin_memory()
    assert (plain.is_pinned(), pinned.is_pinned(), pinned[10:].is_pinned()) == (False, True, True)
    assert sim.pinned_bytes() == pinned.nbytes
    del pinned
    assert sim.pinned_bytes() == 0
