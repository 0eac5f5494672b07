"""`calibrate` measures, keeps and tells; `plan` and `run` tell seconds by it, and by what runs took."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from layerlight.core.device import Device
from layerlight.core.errors import OutOfMemory
from tests.core.models import MIB
from tests.terminal.conftest import Command
from tests.terminal.fake_engine import FakeEngine

LONG = ("So", " many" * 10, " words" * 10)


def per_token(layerlight: Command, folder: Path, *words: object) -> float:
    return float(layerlight("plan", folder, *words, "--json").found["predicted"]["seconds"]["per_token"])


def test_rates_are_shown_and_how_sure_they_are(layerlight: Command, engine: FakeEngine) -> None:
    said = layerlight("calibrate")
    assert said.code == 0
    for words in ("9", "GB/s", "200", "GFLOP/s", "2", "ms", "50%", "one sample", "Measured in 14.0 s", "busy"):
        assert words in said.out
    assert "Memory of everything" in said.err
    assert engine.closed == 1


def test_json_gives_the_rates_by_name(layerlight: Command, engine: FakeEngine) -> None:
    found = layerlight("calibrate", "--json", "--seconds", 2.5, "--offload-folder", "/fast").found
    assert found["rates"] == dict(engine.rates)
    assert found["spreads"] == {"cpu": 0.5}
    (request,) = engine.calibrations
    assert (request.seconds, request.folder) == (2.5, "/fast")


@pytest.mark.parametrize("words", ["0", "-1", "soon", "nan", "inf", "1e9"])
def test_odd_lengths_are_a_bad_request(layerlight: Command, engine: FakeEngine, words: str) -> None:
    assert layerlight("calibrate", "--seconds", words).code == 2
    assert engine.calibrations == []


def test_plans_tell_seconds_by_it_from_then_on(layerlight: Command, tiny_folder: Path) -> None:
    before = layerlight("plan", tiny_folder)
    typical = per_token(layerlight, tiny_folder)
    assert "typical figures" in before.out
    layerlight("calibrate")
    after = layerlight("plan", tiny_folder, "--json").found
    assert after["predicted"]["calibrated"] is True
    assert after["predicted"]["seconds"]["per_token"] > typical, "its layers take 2 ms each"
    assert "typical figures" not in layerlight("plan", tiny_folder).out
    assert layerlight("devices", "--json").found["bandwidths"]["cpu"] == 9e9


def test_another_machine_has_no_rates_of_this_one(layerlight: Command, tiny_folder: Path, engine: FakeEngine) -> None:
    layerlight("calibrate")
    card = Device("cuda:0", "cuda", "A card", 64 * MIB, 64 * MIB)
    engine.machine = replace(engine.machine, devices=(card, *engine.machine.devices))
    assert layerlight("devices", "--json").found["bandwidths"] == {}


def test_a_run_is_remembered_for_the_next_plan(layerlight: Command, tiny_folder: Path, engine: FakeEngine) -> None:
    engine.pieces = LONG
    first = layerlight("run", tiny_folder, "--prompt", "x", "--json").found
    assert first["predicted"]["last_time"] is None
    found = layerlight("plan", tiny_folder, "--json").found["predicted"]
    assert (found["last_time"], found["seconds"]["per_token"], found["runs"]) == (0.25, 0.25, 1)
    assert found["seconds"]["uncorrected_per_token"] == pytest.approx(first["predicted"]["seconds"]["per_token"])
    assert found["seconds"]["load"] == pytest.approx(1.5)
    assert "last time 0.25" in layerlight("plan", tiny_folder).out
    assert "last time 0.25, took 0.25" in layerlight("run", tiny_folder, "--prompt", "x").err


def test_another_context_is_another_plan_and_only_moved(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine
) -> None:
    engine.pieces = LONG
    before = per_token(layerlight, tiny_folder, "--context", 64)
    layerlight("run", tiny_folder, "--prompt", "x")
    found = layerlight("plan", tiny_folder, "--context", 64, "--json").found["predicted"]
    assert found["last_time"] is None
    assert found["seconds"]["per_token"] != before


@pytest.mark.parametrize("failing", ["loading", "answering"])
def test_a_failed_run_teaches_nothing(layerlight: Command, tiny_folder: Path, engine: FakeEngine, failing: str) -> None:
    def fail() -> None:
        raise OutOfMemory("full")

    setattr(engine, failing, fail)
    assert layerlight("run", tiny_folder, "--prompt", "x").code == 1
    assert layerlight("plan", tiny_folder, "--json").found["predicted"]["runs"] == 0


def test_a_failure_is_told_and_keeps_no_rates(layerlight: Command, engine: FakeEngine, own_home: Path) -> None:
    def fail() -> None:
        raise OutOfMemory("full", "h")

    engine.calibrating = fail
    said = layerlight("calibrate", "--json")
    assert (said.code, said.found["error"]["kind"], engine.closed) == (1, "OutOfMemory", 1)
    assert layerlight("devices", "--json").found["bandwidths"] == {}


def test_measurements_that_can_not_be_kept_stop_nothing(layerlight: Command, tiny_folder: Path, own_home: Path) -> None:
    own_home.mkdir(parents=True)
    (own_home / "data").write_text("in the way")
    for words in (("calibrate",), ("run", tiny_folder, "--prompt", "x"), ("plan", tiny_folder)):
        assert layerlight(*words).code == 0
    assert "not saved" in layerlight("calibrate").err


def test_looking_makes_no_file(layerlight: Command, tiny_folder: Path, own_home: Path) -> None:
    layerlight("plan", tiny_folder)
    layerlight("devices")
    assert not (own_home / "data").exists()
