"""What was measured becomes part of the machine it was measured on, and of no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from layerlight.core.device import Machine
from layerlight.core.pacing.calibration import (
    Calibration,
    calibrated,
    cpu_name,
    identity_of,
    medians,
    spreads,
    with_rates,
)
from tests.core.models import GIB, MIB, accelerator, disk, ram

RATES = (("cpu", 9e9), ("disk", 1e9), ("disk-load", 2e9), ("disk-ring", 3e9), ("overhead:cpu", 1e-3))


def here(**changes: object) -> Machine:
    return replace(Machine((accelerator(), ram(), disk()), torch_build="2.13.0"), **changes)  # type: ignore[arg-type]


def measured(machine: Machine) -> Calibration:
    return calibrated(replace(machine, bandwidths=RATES), (("cpu", 0.1),), when=7.0)


def test_rates_come_back_to_their_machine() -> None:
    assert with_rates(here(), measured(here())).bandwidths == RATES
    assert with_rates(here(), None) == here()


@pytest.mark.parametrize(
    "other",
    [
        here(torch_build="2.14.0"),
        here(devices=(ram(), disk())),
        here(devices=(replace(accelerator(), name="another"), ram(), disk())),
        here(devices=(accelerator(), replace(ram(), total=999 * GIB), disk())),
    ],
    ids=["torch", "no accelerator", "another accelerator", "more RAM"],
)
def test_rates_of_another_machine_are_not_taken(other: Machine) -> None:
    assert identity_of(other) != identity_of(here())
    assert with_rates(other, measured(here())) == other


def test_what_changes_from_day_to_day_is_no_other_machine() -> None:
    later = here(
        devices=(replace(accelerator(), free=1), replace(ram(), total=(ram().total or 0) - 3 * MIB, free=1), disk()),
        bandwidths=RATES,
        warnings=("x",),
    )
    assert identity_of(later) == identity_of(here())


def test_another_disk_has_no_rates_but_its_machine_keeps_the_rest() -> None:
    elsewhere = here(devices=(accelerator(), ram(), replace(disk(), total=17 * GIB)))
    assert with_rates(elsewhere, measured(here())).bandwidths == (("cpu", 9e9), ("overhead:cpu", 1e-3))


def test_rates_that_no_version_knows_or_that_can_not_be_are_left_out() -> None:
    odd = replace(measured(here()), rates=(("cpu", 9e9), ("warp", 1e9), ("disk", 0.0), ("bus", -1.0)))
    assert with_rates(here(), odd).bandwidths == (("cpu", 9e9),)


def test_medians_and_how_far_samples_lie_apart() -> None:
    samples = {"a": [1.0, 4.0, 2.0], "b": [3.0], "c": []}
    assert medians(samples) == {"a": 2.0, "b": 3.0}
    assert spreads(samples) == {"a": 1.5}


@pytest.mark.parametrize(
    ("facts", "name"),
    [("processor\t: 0\nmodel name\t: Ryzen 7 7840U\n", "Ryzen 7 7840U"), ("Hardware\t: Pi 5\n", "Pi 5")],
)
def test_the_processor_is_called_what_it_calls_itself(tmp_path: Path, facts: str, name: str) -> None:
    (tmp_path / "cpuinfo").write_text(facts)
    assert cpu_name(tmp_path / "cpuinfo") == name
    assert isinstance(cpu_name(tmp_path / "absent"), str)
