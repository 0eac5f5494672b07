"""Two clocks: others that compute at the same time slow the wall's only."""

from __future__ import annotations

import pytest

from layerlight.bench.stopwatch import TimedPair, Took, clock_of, line, speeds, timed

PAIR = TimedPair(ours=Took(wall=2.0, processor=1.0), theirs=Took(wall=1.0, processor=3.0), quiet=True)
DISTURBED = TimedPair(ours=Took(wall=2.0, processor=1.0), theirs=Took(wall=1.0, processor=2.0), quiet=False)


@pytest.mark.parametrize(
    ("pairs", "expected", "clock"),
    [([PAIR, PAIR], [0.5, 0.5], "quiet"), ([PAIR, DISTURBED], [3.0, 2.0], "processor seconds")],
)
def test_one_disturbed_pair_has_all_judged_by_the_processor(
    pairs: list[TimedPair], expected: list[float], clock: str
) -> None:
    assert speeds(pairs) == expected
    assert clock in clock_of(pairs)


def test_work_is_timed_by_both_and_its_result_kept() -> None:
    took, result = timed(lambda: sum(range(200_000)))
    assert result == 19_999_900_000
    assert took.wall > 0
    assert took.processor > 0


def test_a_pair_is_told_with_both_clocks() -> None:
    assert line(0, PAIR) == "  1: 2000 ms, theirs 1000 ms; of a processor 1000 and 3000 ms"
