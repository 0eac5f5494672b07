"""What was measured is kept on a thread and comes back: rates at the start, the last time of the same placement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from layerlight.core.messages import (
    CalibrateRequest,
    CalibrationProgressed,
    DevicesSurveyed,
    Failed,
    Failure,
    MachineCalibrated,
    PromptCounted,
    RunFinished,
    StopRequest,
)
from layerlight.core.pacing.calibration import calibrated
from layerlight.core.state import Phase
from layerlight.store.measurements import MeasurementStore
from layerlight.ui.measurement_keeper import MeasurementKeeper
from tests import fakes
from tests.ui.conftest import Bench, MakeBench

RATES = (("cpu", 2e10), ("cuda:0", 2e11), ("disk", 1e9))
Keep = Callable[[Bench], MeasurementKeeper]
UNMEASURED = replace(fakes.laptop(), bandwidths=())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "measurements.sqlite3"


@pytest.fixture
def keep(path: Path) -> Iterator[Keep]:
    kept: list[MeasurementKeeper] = []

    def begin(bench: Bench) -> MeasurementKeeper:
        kept.append(MeasurementKeeper(bench.session, path))
        bench.engine.tell(DevicesSurveyed(bench.engine.machine))
        return kept[-1]

    yield begin
    for each in kept:
        each.finish()


def answer(bench: Bench) -> None:
    """An answer of 20 tokens at 5 a second."""
    bench.session.ask("Where?")
    request = bench.engine.sent[-1]
    result = replace(fakes.result_of(request, [" a"] * 20), tokens_per_second=5.0)  # type: ignore[arg-type]
    bench.engine.tell(PromptCounted(24, 4096, 4072), RunFinished(result))


def test_a_run_corrects_the_next_plan_of_the_same_placement(opened: Bench, keep: Keep) -> None:
    """“Predicted 7.9, last time 8.1.”"""
    keeper = keep(opened)
    opened.load()
    answer(opened)
    session = opened.session
    opened.qtbot.waitUntil(
        lambda: session.state.plan is not None and session.state.plan.prediction.correction.last_time == 0.2
    )
    assert session.state.plan is not None
    assert session.state.plan.prediction.seconds_per_token == pytest.approx(0.2)
    assert session.plan_is_loaded
    keeper.finish()


def test_what_was_measured_is_there_at_the_next_start(make_bench: MakeBench, keep: Keep, path: Path) -> None:
    with MeasurementStore(path) as store:
        store.keep_calibration(calibrated(replace(fakes.laptop(), bandwidths=RATES), (), 1.0))
    bench = make_bench(UNMEASURED)
    assert not bench.session.is_calibrated
    keep(bench)
    bench.qtbot.waitUntil(lambda: bench.session.is_calibrated)
    assert bench.session.state.machine is not None
    assert dict(bench.session.state.machine.bandwidths) == dict(RATES)
    bench.open()
    assert bench.session.state.plan is not None
    assert bench.session.state.plan.prediction.calibrated


def test_the_last_time_is_said_beside_the_prediction(make_bench: MakeBench, keep: Keep) -> None:
    bench = make_bench(UNMEASURED)
    bench.open()
    keep(bench)
    bench.load()
    answer(bench)
    bench.session.unload()
    bench.qtbot.waitUntil(
        lambda: bench.session.state.plan is not None and bench.session.state.plan.prediction.correction.runs > 0
    )
    from layerlight.ui.banner import BannerWriter

    bench.engine.tell(*fakes.FakeEngine(obliging=True).answer(bench.engine.sent[-1]))
    banner = BannerWriter(bench.session).write()
    assert banner is not None
    assert "last time 5.0 tokens a second" in banner.second or "last time 0.2 s a token" in banner.second


@pytest.mark.parametrize("by", ["welcome", "device column", "menu"])
def test_measuring_is_offered_shown_and_kept(make_bench: MakeBench, keep: Keep, path: Path, by: str) -> None:
    """Offered at the first start, never forced."""
    bench = make_bench(UNMEASURED)
    keeper = keep(bench)
    if by == "device column":
        bench.open()
        bench.desk.work.facts.measure.click()
    elif by == "welcome":
        assert bench.desk.welcome.measure.isVisible()
        bench.desk.welcome.measure.click()
    else:
        bench.desk.menus.actions["calibrate"].trigger()
    assert len(bench.engine.of_kind(CalibrateRequest)) == 1
    bench.engine.tell(CalibrationProgressed("reading memory", 3.0, 15.0))
    banner = bench.desk.work.verdict.banner
    assert banner is not None
    assert banner.share == pytest.approx(0.2)
    assert "reading memory" in banner.second
    measured = replace(fakes.laptop(), bandwidths=RATES)
    bench.engine.tell(MachineCalibrated(measured, 12.0))
    assert bench.session.is_calibrated
    assert not bench.session.busy
    keeper.finish()
    with MeasurementStore(path) as store:
        found = store.calibration(UNMEASURED)
    assert found is not None
    assert dict(found.rates) == dict(RATES)


def test_measuring_can_be_stopped(make_bench: MakeBench) -> None:
    bench = make_bench(UNMEASURED)
    bench.session.calibrate()
    bench.engine.tell(CalibrationProgressed("reading memory", 3.0, 15.0))
    bench.desk.work.verdict.button("cancel").click()  # type: ignore[attr-defined]
    assert bench.engine.of_kind(StopRequest)
    bench.engine.tell(Failed(Failure("Stopped", "", "", "Stopped"), "CalibrateRequest"))
    assert bench.session.state.phase is Phase.EMPTY
    assert not bench.session.is_calibrated
    assert bench.session.state.error is None


def test_a_store_that_can_not_be_is_said_once_and_nothing_stops(opened: Bench, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    keeper = MeasurementKeeper(opened.session, blocked / "measurements.sqlite3")
    opened.engine.tell(DevicesSurveyed(opened.engine.machine))
    opened.qtbot.waitUntil(lambda: "not saved" in opened.session.notice)
    opened.load()
    answer(opened)
    keeper.finish()
    assert opened.session.state.phase is Phase.READY
