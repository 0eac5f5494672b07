"""Measurements outlive the program, belong to their machine, and never stop anything."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from layerlight.core.device import Budget, Machine
from layerlight.core.errors import StoreFailed
from layerlight.core.pacing.calibration import calibrated, identity_of
from layerlight.core.pacing.correction import Pace, Peak, Run, kind_of, model_identity, plan_identity
from layerlight.core.placing import make_plan
from layerlight.store import measurements
from layerlight.store.measurements import MeasurementStore, open_measurements
from tests.core.models import accelerator, dense, disk, machine, ram

HERE = machine(ram(), disk())
OTHER = machine(accelerator(), ram(), disk())
RATES = (("cpu", 9e9), ("disk", 1e9))
PLAN = make_plan(dense(), HERE, Budget(context=128))


def run(number: int, on: Machine = HERE) -> Run:
    peaks = (Peak("cpu", 10, None),)
    names = model_identity(PLAN.model), plan_identity(PLAN), kind_of(PLAN)
    return Run(identity_of(on), *names, Pace(1.0, 0.1), Pace(None, 0.2 + number), peaks, 5, 20, float(number))


def test_a_calibration_is_there_the_next_time(tmp_path: Path) -> None:
    kept = calibrated(replace(HERE, bandwidths=RATES), (("cpu", 0.1),), 7.0)
    with MeasurementStore(tmp_path / "new" / "m.sqlite3") as store:
        assert store.calibration(HERE) is None
        assert store.with_rates(HERE) == HERE
        store.keep_calibration(replace(kept, rates=(("cpu", 1.0),)))
        store.keep_calibration(kept)
    with MeasurementStore(tmp_path / "new" / "m.sqlite3") as store:
        assert store.calibration(HERE) == kept
        assert store.with_rates(HERE).bandwidths == RATES
        assert store.with_rates(OTHER) == OTHER


def test_runs_come_back_newest_first_and_by_machine(tmp_path: Path) -> None:
    with MeasurementStore(tmp_path / "m.sqlite3") as store:
        for number in range(3):
            store.remember(run(number))
        store.remember(run(9, OTHER))
    with MeasurementStore(tmp_path / "m.sqlite3") as store:
        assert store.runs(HERE) == (run(2), run(1), run(0))
        assert store.runs(OTHER) == (run(9, OTHER),)
        assert store.corrected(PLAN).prediction.seconds_per_token == pytest.approx(2.2)
        assert store.corrected(PLAN).prediction.correction.last_time == 2.2


def test_the_oldest_runs_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "MOST_RUNS", 3)
    store = MeasurementStore(None)
    store.remember(run(99, OTHER))
    for number in range(7):
        store.remember(run(number))
    assert [each.when for each in store.runs(HERE)] == [6.0, 5.0, 4.0]
    assert len(store.runs(OTHER)) == 1


def test_what_another_version_wrote_is_left_out(tmp_path: Path) -> None:
    store = MeasurementStore(tmp_path / "m.sqlite3")
    store.remember(run(1))
    store.keep_calibration(calibrated(replace(HERE, bandwidths=RATES), (), 0.0))
    other = sqlite3.connect(tmp_path / "m.sqlite3", isolation_level=None)
    other.execute("""UPDATE calibrations SET body = '{"other": 1}'""")
    other.execute("INSERT INTO runs (machine, body, created) SELECT machine, 'no json', 0 FROM runs")
    other.close()
    assert store.calibration(HERE) is None
    assert store.runs(HERE) == (run(1),)


def test_h08_a_broken_file_is_kept_aside_and_measuring_goes_on(tmp_path: Path) -> None:
    (tmp_path / "m.sqlite3").write_bytes(b"no database" * 100)
    store = open_measurements(tmp_path / "m.sqlite3")
    assert "m.sqlite3.broken-" in store.notice
    store.remember(run(1))
    assert store.runs(HERE) == (run(1),)


def test_without_a_place_for_the_file_it_is_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = open_measurements(tmp_path / "file" / "m.sqlite3")
    assert "not saved" in store.notice
    store.remember(run(1))
    assert store.runs(HERE) == (run(1),)


def test_a_newer_file_is_left_as_it_is(tmp_path: Path) -> None:
    MeasurementStore(tmp_path / "m.sqlite3").close()
    database = sqlite3.connect(tmp_path / "m.sqlite3")
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreFailed, match="newer version"):
        MeasurementStore(tmp_path / "m.sqlite3")


def test_a_file_that_can_not_be_read_any_more_stops_no_plan(tmp_path: Path) -> None:
    store = MeasurementStore(tmp_path / "m.sqlite3")
    other = sqlite3.connect(tmp_path / "m.sqlite3", isolation_level=None)
    other.execute("DROP TABLE runs")
    other.execute("DROP TABLE calibrations")
    other.close()
    assert store.with_rates(HERE) == HERE
    assert store.corrected(PLAN) == PLAN
    with pytest.raises(StoreFailed, match="measurements"):
        store.remember(run(1))
