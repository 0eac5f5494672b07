"""`bench plan` at tiny size: predicted bytes beside measured ones, and what is said of a miss."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from layerlight.bench import plan as bench
from layerlight.bench.plan import Row, measure_shape
from layerlight.bench.plan_models import SHAPES

Simulated = Callable[..., ModuleType]
KINDS = {shape.name: shape for shape in SHAPES}


@pytest.mark.engine
@pytest.mark.simulated
@pytest.mark.parametrize("kind", ["MLA", "MoE, small experts", "sliding", "GQA, fp8 cache"])
def test_predicted_bytes_are_the_measured_ones(kind: str, simulated: Simulated) -> None:
    """Shows 1, A08: weights and cache within 1 %, the device's peak within 5 %, eager and sdpa apart."""
    simulated([256 << 20])
    rows = measure_shape(KINDS[kind])
    assert {(row.place, row.attention) for row in rows} == {
        (place, attention) for place in ("cpu", "sim:0") for attention in ("eager", "sdpa")
    }
    assert all(row.peak[1] > row.weights[1] for row in rows if row.place == "sim:0")
    assert [each for row in rows for each in row.missed()] == []


@pytest.mark.engine
@pytest.mark.parametrize("kind", ["nf4, double", "fp8 files", "GPT-2 in int8"])
def test_quantised_weights_weigh_what_was_predicted(kind: str) -> None:
    """A15: scales, tables and what stays as it is; and fp8 files that become bfloat16 where nothing computes in fp8."""
    rows = measure_shape(KINDS[kind])
    assert rows
    assert [each for row in rows for each in row.missed()] == []


def row(weights: int = 100, cache: int = 100, peak: int = 100) -> Row:
    return Row("dense", "sim:0", "sdpa", (weights, 100), (cache, 100), (peak, 100))


@pytest.mark.parametrize(
    ("measured", "missed"),
    [
        (row(), []),
        (row(peak=104), []),
        (row(weights=98), ["dense on sim:0, sdpa: weights -2.0%"]),
        (row(cache=102), ["dense on sim:0, sdpa: cache +2.0%"]),
        (row(peak=94), ["dense on sim:0, sdpa: peak -6.0%"]),
        (Row("dense", "cpu", "sdpa", (100, 100), (100, 100), (400, 0)), []),
    ],
)
def test_a_missed_bound_is_named(measured: Row, missed: list[str]) -> None:
    assert measured.missed() == missed


@pytest.mark.parametrize(
    ("rows", "large", "code", "said"),
    [
        ([row()], [], 0, "1 shapes on sim:0: weights within 1%"),
        ([row()], [("llama", (105, 100))], 0, "1 large models within 10%"),
        ([row(peak=50)], [], 1, "MISSED: dense on sim:0, sdpa: peak -50.0%"),
        ([row()], [("llama", (120, 100))], 1, "MISSED: llama: anonymous memory +20.0%"),
    ],
)
def test_the_command_fails_when_a_bound_is_missed(
    rows: list[Row],
    large: list[tuple[str, tuple[int, int]]],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(bench, "measure_shape", lambda shape: rows if shape.name == "dense" else [])
    monkeypatch.setattr(bench, "_measure_large", lambda console: large)
    assert bench.main([]) == code
    assert said in capsys.readouterr().out


def test_a_command_that_measures_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--only", "no such shape"]) == 1
    assert "no shape was measured" in capsys.readouterr().out
