"""`layerlight bench window`: bounds kept or missed are told in words, and a machine too busy for any window apart."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from layerlight.bench.window import EMPTY, Round, Start, judge, percentile

CALM = [10.0] * 200


def a_round(ours: list[float], empty: list[float] | None = None, painted: float = 0.2) -> Round:
    return Round([Start(0.2, painted)], {EMPTY: empty or CALM, "answers": ours}, [], 0.0)


def judged(*rounds: Round) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=200)
    code = judge(console, rounds)
    return code, console.file.getvalue()  # type: ignore[attr-defined]


def test_kept_bounds_are_no_failure() -> None:
    code, words = judged(a_round(CALM), a_round(CALM))
    assert code == 0
    assert "All gaps" in words


@pytest.mark.parametrize(
    ("ours", "painted", "words"),
    [
        ([*CALM, 51.0], 0.2, "answers: worst 51.0 > 50 ms"),
        ([*CALM, *[21.0] * 5], 0.2, "answers: p99 21.0 > 20 ms"),
        (CALM, 0.31, "first window 1.55 > 1.5 times an empty one"),
    ],
    ids=["worst", "p99", "start"],
)
def test_a_missed_bound_is_named(ours: list[float], painted: float, words: str) -> None:
    code, told = judged(a_round(ours, painted=painted))
    assert code == 1
    assert words in told


def test_a_round_in_which_even_the_empty_window_stalls_does_not_count() -> None:
    stalled = a_round([*CALM, 80.0], [*CALM, 60.0])
    code, words = judged(stalled, a_round(CALM))
    assert code == 0
    assert "1 of 2 rounds are thrown away" in words


def test_that_no_round_counts_is_a_failure() -> None:
    code, words = judged(a_round(CALM, [*CALM, 60.0]))
    assert code == 1
    assert "no round counts" in words


@pytest.mark.parametrize(("share", "found"), [(0.5, 2), (0.99, 4), (1.0, 4), (0.0, 1)])
def test_percentile(share: float, found: int) -> None:
    assert percentile([4, 2, 1, 3], share) == found
