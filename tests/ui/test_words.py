"""Numbers as people read them."""

from __future__ import annotations

import pytest

from layerlight.ui.words import count, duration, of_size, plural, short_size


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0000042, "4 µs"), (0.00234, "2.3 ms"), (0.254, "254 ms"), (0.63, "0.63 s"), (3.14, "3.1 s"), (42, "42 s"),
     (80.2, "80 s"), (125, "2 min 05 s")],
)  # fmt: skip
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("number", "words"), [(812, "812"), (3_540_000, "3.54 M"), (134_515_008, "135 M"), (70_553_706_496, "70.55 B")]
)
def test_counts(number: int, words: str) -> None:
    assert count(number) == words


@pytest.mark.parametrize(
    ("size", "words"),
    [(None, "unknown"), (0, "0 B"), (26_600_000, "25.4 MiB"), (330_000_000, "315 MiB"), (2**33, "8.0 GiB")],
)
def test_sizes(size: int | None, words: str) -> None:
    assert short_size(size) == words


@pytest.mark.parametrize(
    ("part", "whole", "words"),
    [(2**32, 2**33, "4.0 of 8.0 GiB"), (2**28, 2**33, "256 MiB of 8.0 GiB"), (2**30, None, "1.0 GiB used")],
)
def test_parts_of_sizes(part: int, whole: int | None, words: str) -> None:
    assert of_size(part, whole) == words


def test_plurals() -> None:
    assert [plural(1, "layer"), plural(2, "layer"), plural(1000, "layer")] == ["1 layer", "2 layers", "1,000 layers"]
