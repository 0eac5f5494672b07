"""`bench decode` counts quiet rounds only, and holds each of them to both bounds."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from layerlight.bench.decode import AFTER_A_RUN, BY_CALIBRATION, DRIFT, Outcome, Round, judge

GOOD = Outcome(1.1, 1.0, 1.0, 1.05)
STEADY = (8e9, 8e9 * (1 + DRIFT * 0.9), 8e9)
MOVED = (8e9, 8e9 * (1 + DRIFT * 1.1), 8e9)


def judged(*rounds: Round) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=120)
    code = judge(console, rounds)
    assert isinstance(console.file, io.StringIO)
    return code, console.file.getvalue()


def test_predictions_that_hold() -> None:
    code, words = judged(*[Round({"in RAM": GOOD, "half on disk": GOOD}, STEADY)] * 5)
    assert code == 0
    assert "5 of 5 rounds were quiet" in words
    assert "All predictions hold" in words


@pytest.mark.parametrize(
    ("bad", "missed"),
    [
        (Outcome(1.01 + BY_CALIBRATION, 1.0, 1.0, 1.0), "in RAM by calibration"),
        (Outcome(0.99 - BY_CALIBRATION, 1.0, 1.0, 1.0), "in RAM by calibration"),
        (Outcome(1.0, 1.0, 1.01 + AFTER_A_RUN, 1.0), "in RAM after a run"),
        (Outcome(1.0, 1.0, 0.99 - AFTER_A_RUN, 1.0), "in RAM after a run"),
    ],
)
def test_one_quiet_round_that_is_off_misses(bad: Outcome, missed: str) -> None:
    code, words = judged(Round({"in RAM": GOOD}, STEADY), Round({"in RAM": bad}, STEADY))
    assert code == 1
    assert f"MISSED: {missed}" in words


def test_a_round_whose_bandwidth_moved_is_thrown_away_and_said() -> None:
    bad = Outcome(9.0, 1.0, 9.0, 1.0)
    code, words = judged(Round({"in RAM": bad}, MOVED), Round({"in RAM": GOOD}, STEADY))
    assert code == 0
    assert "Round 1 is thrown away" in words
    assert "1 of 2 rounds were quiet" in words


def test_without_a_quiet_round_nothing_is_proved() -> None:
    code, words = judged(Round({"in RAM": GOOD}, MOVED))
    assert code == 1
    assert "none counts" in words
