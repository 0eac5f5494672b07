"""Seconds of layers, hand-overs and loads, from rates that a person can check by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerlight.core.model import LayerKind, Model
from layerlight.core.planning.runtime import ACCELERATE, STAGED, TODAY
from layerlight.core.planning.units import units_of
from layerlight.core.planning.workload import USUAL, Workload
from layerlight.core.speed import (
    LAYER_OVERHEAD,
    WAITING,
    WORKING,
    Prices,
    Traffic,
    carry_seconds,
    load_seconds,
    rates_of,
    traffic_of,
)
from tests.core.models import accelerator, dense, disk, layer, machine, ram, tensor

RATES = (
    ("cpu", 10e9), ("cuda:0", 100e9), ("disk", 1e9), ("disk-load", 2e9), ("disk-ring", 1.6e9),
    ("matrix:cpu:bfloat16", 1e10), ("matrix:cuda:0:bfloat16", 1e13), ("bus:cuda:0:to-pageable", 4e9),
    ("bus:cuda:0:to-pinned", 8e9),
    ("bus:cuda:0:from-pageable", 2e9), ("bus:cuda:1:to-pageable", 5e9), ("overhead:cuda:0", 1e-4),
    ("overhead:cpu", 2e-4),
)  # fmt: skip
HERE = machine(accelerator(), accelerator("cuda:1"), ram(), disk(), rates=RATES)
WEIGHTS = 20_000_000
PLAIN = Traffic(WEIGHTS, 0, WEIGHTS, 0, float(WEIGHTS), 0, False, True, None)
"""A decoder layer of 10 million parameters in two bytes each."""


def prices(work: Workload = USUAL, model: Model | None = None, context: int = 4096) -> Prices:
    shape = (model or dense()).shape
    assert shape is not None
    return Prices(HERE, shape, "bfloat16", 2, work, context, 512)


@pytest.mark.parametrize(
    ("rests", "runs", "seconds"),
    [
        ("cpu", "cpu", 0.0),
        ("cuda:0", "cuda:0", 0.0),
        ("cpu", "cuda:0", 0.0025),
        ("disk", "cuda:0", 0.0125),
    ],
)
def test_what_carrying_takes(rests: str, runs: str, seconds: float) -> None:
    """Read from disk and copied from page-locked RAM at once; work on a layer hides as much of the next one's."""
    assert carry_seconds(WEIGHTS, rests, runs, rates_of(RATES)) == pytest.approx(seconds)
    found = prices().layer(PLAIN, rests, runs)
    assert found.decode_carrying == pytest.approx(max(0.0, seconds - found.decode_working))


def test_layers_on_disk_are_read_ahead_while_the_processor_computes() -> None:
    """Of all that is read and all that is computed a pass takes the longer."""
    price = prices(Workload(prompt=1, answer=2))
    there, here = price.layer(PLAIN, "disk", "cpu"), price.layer(PLAIN, "cpu", "cpu")
    read, work = WEIGHTS / 1.6e9, WEIGHTS / 10e9 + 2e-4
    assert (there.decode_carrying, there.decode_reading) == pytest.approx((0.0, read))
    assert there.decode_working == here.decode_working == pytest.approx(work)
    assert (there + here).decode() == pytest.approx(max(read, 2 * work))
    assert sum([here] * 9, there).decode() == pytest.approx(10 * work), "what is read hides behind the work"
    assert (there + here).waiting() == pytest.approx(read - 2 * work)
    mixed = [price.shared(there, shares) for shares in (WORKING, WAITING, (0.5, 0.5))]
    assert mixed == pytest.approx([2 * work, work + read, work + read])
    assert max(*mixed, 2 * read) == pytest.approx(price.of(there)), "of work and reads the longer counts"


def test_reading_threads_slow_the_work_of_layers_on_disk() -> None:
    model = dense()
    assert model.shape is not None
    here = machine(ram(), disk(), rates=(*RATES, ("overhead:disk", 3e-3)))
    price = Prices(here, model.shape, "bfloat16", 2, Workload(prompt=600, answer=2), 4096, 512)
    slowed, plain = price.layer(PLAIN, "disk", "cpu"), price.layer(PLAIN, "cpu", "cpu")
    assert slowed.decode_working - plain.decode_working == pytest.approx(3e-3)
    assert slowed.prefill_working - plain.prefill_working == pytest.approx(2 * 3e-3), "once in each of two chunks"
    table = replace(PLAIN, decoder=False)
    assert price.layer(table, "disk", "cpu").decode_working == price.layer(table, "cpu", "cpu").decode_working


@pytest.mark.parametrize(
    ("measured", "ring", "hooks"),
    [
        ((), 1.4e9, 0.5e9),
        ((("disk-load", 2e9),), 0.93 * 2e9, 0.28 * 2e9),
        ((("disk-load", 2e9), ("disk-ring", 1e9), ("disk", 3e8)), 1e9, 3e8),
    ],
    ids=["typical", "by the long read", "measured"],
)
def test_how_fast_layers_come_from_disk(measured: tuple[tuple[str, float], ...], ring: float, hooks: float) -> None:
    """Read ahead, or by hooks tensor after tensor and then copied."""
    rates = rates_of(measured)
    assert carry_seconds(WEIGHTS, "disk", "cpu", rates) == pytest.approx(WEIGHTS / ring)
    assert carry_seconds(WEIGHTS, "disk", "cuda:0", rates) == pytest.approx(WEIGHTS / ring)
    by_hooks = carry_seconds(WEIGHTS, "disk", "cuda:0", rates, ACCELERATE)
    assert by_hooks == pytest.approx(WEIGHTS / hooks + WEIGHTS / 8e9)
    assert carry_seconds(WEIGHTS, "disk", "cpu", rates, ahead=False) == pytest.approx(WEIGHTS / hooks)


def test_a_pass_reads_weights_or_multiplies_by_them() -> None:
    """Decode is bound by bytes; a prompt by whichever takes longer, chunk by chunk."""
    on_cpu = prices(Workload(prompt=600, answer=2)).layer(PLAIN, "cpu", "cpu")
    assert on_cpu.decode_working == pytest.approx(WEIGHTS / 10e9 + 2e-4)
    assert on_cpu.prefill_working == pytest.approx(600 * WEIGHTS / 1e10 + 2 * 2e-4)
    few = prices(Workload(prompt=3, answer=2)).layer(PLAIN, "cuda:0", "cuda:0")
    assert few.prefill_working == pytest.approx(WEIGHTS / 100e9), "three tokens are multiplied while weights are read"


def test_an_accelerator_works_while_python_prepares_the_next_layer() -> None:
    small = replace(PLAIN, read=1000, operations=1000.0)
    assert prices().layer(small, "cuda:0", "cuda:0").decode_working == pytest.approx(1e-4)
    assert prices().layer(PLAIN, "cuda:0", "cuda:0").decode_working == pytest.approx(2e-4)
    assert prices().layer(PLAIN, "cpu", "cuda:0").decode_working == pytest.approx(2e-4 + 1e-4), "it waits for weights"
    assert prices().overhead("cuda:1") == LAYER_OVERHEAD, "until that is measured"


def test_every_chunk_of_a_prompt_carries_anew() -> None:
    found = prices(Workload(prompt=1100, answer=1)).layer(PLAIN, "cpu", "cuda:0")
    assert found.prefill() == pytest.approx(3 * found.decode()) == pytest.approx(3 * WEIGHTS / 8e9)


def test_the_cache_is_read_as_far_as_it_is_filled() -> None:
    """Growing it reads the old one and writes the new, and attention reads that."""
    work = Workload(prompt=500, answer=200)
    cached = replace(PLAIN, kv=8_000_000)
    extra = prices(work, context=1200).layer(cached, "cpu", "cpu").decode_working
    extra -= prices(work, context=1200).layer(PLAIN, "cpu", "cpu").decode_working
    assert extra == pytest.approx(3 * 8_000_000 * 600 / 1200 / 10e9)


def test_experts_are_read_as_far_as_tokens_choose_them_but_carried_whole_to_an_accelerator() -> None:
    """A CPU reads a file's pages where it needs them; an accelerator is brought every expert."""
    model = dense()
    assert model.shape is not None
    model = replace(model, shape=replace(model.shape, experts=8, experts_per_token=2))
    mixed = replace(PLAIN, routed=16_000_000, ahead=False)
    price = prices(Workload(prompt=1, answer=2), model)
    resident = price.layer(mixed, "cpu", "cpu").decode_working
    assert resident == pytest.approx((4_000_000 + 16_000_000 / 4) / 10e9 + 2e-4)
    assert price.layer(mixed, "disk", "cpu").decode_carrying == pytest.approx((4_000_000 + 16_000_000 / 4) / 1e9)
    carried = price.layer(mixed, "cpu", "cuda:0").decode()
    assert carried == pytest.approx(price.layer(PLAIN, "cpu", "cuda:0").decode())
    assert carried > price.layer(replace(PLAIN, carried=WEIGHTS // 2), "cpu", "cuda:0").decode()


def test_quantised_weights_are_slow_on_a_processor() -> None:
    """bitsandbytes saves memory there, not time."""
    slow = prices().layer(replace(PLAIN, quantization="nf4"), "cpu", "cpu").decode_working
    assert slow == pytest.approx(WEIGHTS / 0.4e9 + 2e-4)


def test_a_hand_over_takes_its_bytes_out_and_in_and_a_moment() -> None:
    model = dense(hidden=64)
    price = prices(Workload(prompt=100, answer=2), model)
    one = 64 * 2 * (1 / 2e9 + 1 / 5e9)
    found = price.hand_over("cuda:0", "cuda:1")
    assert found.decode_working == pytest.approx(one + 50e-6)
    assert found.prefill_working == pytest.approx(100 * one + 50e-6)
    assert price.hand_over("cuda:0", "cuda:0").decode_working == 0
    assert price.crossing_bytes() == 128


def test_what_each_kind_of_layer_asks_of_a_pass() -> None:
    tower = layer("model.visual", LayerKind.TOWER, tensor("model.visual.weight", 100, 100))
    tied = replace(dense(tied=True), layers=(tower, *dense(tied=True).layers))
    assert tied.shape is not None
    units = units_of(tied, tied.shape, 64, "bfloat16", None)
    found = {
        each.name: traffic
        for unit in units
        for each, traffic in zip(unit.layers, traffic_of(unit, tied.shape, None), strict=True)
    }
    table = 500 * 64 * 2
    assert (found["model.embed_tokens"].read, found["model.embed_tokens"].carried) == (0, table), (
        "rows, but all carried"
    )
    assert (found["lm_head"].read, found["lm_head"].carried) == (table, table), "the whole table of the embedding"
    assert found["lm_head"].last_only
    assert found["lm_head"].operations == 2 * 500 * 64
    assert (found["model.visual"].read, found["model.visual"].carried) == (0, 0), "no part of a pass over text"
    (beside,) = [unit for unit in units if unit.layers[0] is tower]
    assert [beside.passing(rests, runs) for rests, runs in (("disk", "cpu"), ("cpu", "cuda:0"))] == [0, 0]
    decoder = found["model.layers.0"]
    assert decoder.decoder
    assert decoder.read == decoder.carried == tied.layer("model.layers.0").size
    assert decoder.operations == 2 * tied.layer("model.layers.0").parameters


def test_a_load_reads_files_and_copies_to_the_device() -> None:
    rates = rates_of(RATES)
    assert load_seconds(WEIGHTS, "disk", rates) == 0
    assert load_seconds(WEIGHTS, "cpu", rates) == pytest.approx(0.01)
    assert load_seconds(WEIGHTS, "cuda:0", rates) == pytest.approx(0.015)


def test_hooks_carry_and_compute_in_turn_and_what_runs_today_at_once() -> None:
    assert TODAY is STAGED
    assert [ACCELERATE.waits(2.0, each) for each in (0.5, 3.0)] == [2.0, 2.0]
    assert [STAGED.waits(2.0, each) for each in (0.5, 3.0)] == [1.5, 0.0]
    shape = dense().shape
    assert shape is not None
    hooks = Prices(HERE, shape, "bfloat16", 2, USUAL, 4096, 512, ACCELERATE)
    work = WEIGHTS / 100e9 + 1e-4
    for rests, carried, staged in (("cpu", 1 / 4e9, 1 / 8e9), ("disk", 1 / 1e9 + 1 / 4e9, 1 / 1.6e9)):
        turns, at_once = hooks.layer(PLAIN, rests, "cuda:0"), prices().layer(PLAIN, rests, "cuda:0")
        assert turns.decode() == pytest.approx(WEIGHTS * carried + work)
        assert at_once.decode() == pytest.approx(max(WEIGHTS * staged, work))


def test_hidden_states_cross_from_ordinary_memory() -> None:
    found = prices(Workload(prompt=1, answer=2)).hand_over("cpu", "cuda:0")
    assert found.decode_working == pytest.approx(128 / 4e9 + 50e-6)


@pytest.mark.parametrize("context", [1, 2, 3, 100, 767, 768, 4096])
def test_a_workload_shrinks_to_its_context(context: int) -> None:
    found = USUAL.within(context)
    assert found.prompt >= 1
    assert found.answer >= 1
    assert found.prompt + found.answer <= max(2, context)
    assert context < 768 or found == USUAL
    assert found.passes == found.answer - 1
