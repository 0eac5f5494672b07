"""Times of layers of two sizes give back the rates that they were made from."""

from __future__ import annotations

import pytest

from layerlight.core.pacing.decode_rates import (
    LARGE_ON_DISK,
    SMALL,
    SMALL_HALF_ON_DISK,
    LayerBytes,
    large,
    on,
    overhead_and_rate,
    rates_from,
)
from layerlight.core.pacing.rate_names import is_rate_name

LAYER = LayerBytes("bfloat16", 2, 3_000_000, 45_000_000)
OVERHEAD, RAM, DISK_OVERHEAD, RING = 1e-3, 8e9, 4e-3, 1.5e9


def samples() -> dict[str, float]:
    """What a machine of these rates would show."""
    small, big = OVERHEAD + LAYER.small_bytes / RAM, OVERHEAD + LAYER.large_bytes / RAM
    return {
        SMALL: small,
        large("bfloat16"): big,
        large("float32"): OVERHEAD + LAYER.large * 4 / 16e9,
        SMALL_HALF_ON_DISK: (max(2 * small, LAYER.small_bytes / RING) + DISK_OVERHEAD) / 2,
        LARGE_ON_DISK: LAYER.large_bytes / RING,
        "disk-load": 1.5e9,
        "matrix:cpu:bfloat16": 3e11,
        on("cuda:0"): 5e-4,
        on("cuda:1"): 6e-4,
        "bus:cuda:0:to-pageable": 8e9,
        "bus:cuda:1:to-pageable": 6e9,
        "bus:cuda:1:to-pinned": 2e9,
    }


def rates(found: dict[str, float]) -> dict[str, float]:
    return {name: figure.rate for name, figure in rates_from(found, LAYER, ("cuda:0", "cuda:1")).items()}


def test_the_rates_behind_the_times_are_found() -> None:
    assert rates(samples()) == pytest.approx(
        {
            "cpu": RAM,
            "weights:cpu:bfloat16": RAM,
            "weights:cpu:float32": 16e9,
            "overhead:cpu": OVERHEAD,
            "overhead:disk": DISK_OVERHEAD,
            "disk-ring": RING,
            "disk-load": 1.5e9,
            "matrix:cpu:bfloat16": 3e11,
            "overhead:cuda:0": 5e-4,
            "overhead:cuda:1": 6e-4,
            "bus:cuda:0:to-pageable": 8e9,
            "bus:cuda:1:to-pageable": 6e9,
            "bus:cuda:1:to-pinned": 2e9,
            "bus": 6e9,
        }
    )
    assert all(is_rate_name(name) for name in rates(samples()))


@pytest.mark.parametrize("missing", list(samples()))
def test_what_was_not_measured_is_absent_and_the_rest_stays_true(missing: str) -> None:
    whole, found = rates(samples()), rates({name: value for name, value in samples().items() if name != missing})
    assert len(found) < len(whole)
    assert all(whole[name] == pytest.approx(rate) for name, rate in found.items() if name != "bus")


def test_work_that_takes_longer_than_the_read_is_no_overhead_of_the_disk() -> None:
    """A slow processor computes while it is read."""
    slow = samples()
    slow[SMALL] = slow[SMALL_HALF_ON_DISK] = 20e-3
    assert "overhead:disk" not in rates(slow)


def test_every_figure_names_the_probes_it_came_from() -> None:
    figures = rates_from(samples(), LAYER, ("cuda:0", "cuda:1"))
    assert all(figure.probes and set(figure.probes) <= set(samples()) for figure in figures.values())


@pytest.mark.parametrize(
    ("small", "big", "found"),
    [
        ((2.0, 10), (4.0, 30), (1.0, 10.0)),
        ((1.0, 10), (5.0, 30), (0.0, 6.0)),
        ((2.0, 10), (2.0, 30), None),
        ((2.0, 10), (1.0, 30), None),
        ((2.0, 10), (3.0, 10), None),
    ],
    ids=["both", "noise in the overhead", "no slower", "faster", "one size"],
)
def test_overhead_and_rate(small: tuple[float, int], big: tuple[float, int], found: tuple[float, float] | None) -> None:
    assert overhead_and_rate(*small, *big) == found


def test_noise_that_hides_a_rate_leaves_no_rate() -> None:
    noisy = samples()
    noisy[SMALL_HALF_ON_DISK] = 0.9 * noisy[SMALL]
    assert "overhead:disk" not in rates(noisy)
    noisy[large("bfloat16")] = noisy[SMALL] / 2
    assert not {"cpu", "overhead:cpu", "weights:cpu:float32"} & set(rates(noisy))
