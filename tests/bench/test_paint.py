"""`layerlight bench paint`: it times the real map, and a missed bound is a failure."""

from __future__ import annotations

import pytest

from layerlight.bench import paint


@pytest.fixture(scope="module")
def times() -> dict[str, dict[str, list[float]]]:
    return paint._probe()


def test_it_times_every_number_of_layers(times: dict[str, dict[str, list[float]]]) -> None:
    assert list(times) == list(paint.LAYERS)
    for each in times.values():
        assert len(each["moving"]) > 100
        assert len(each["whole"]) > 10
        assert all(0 < ms < 10_000 for ms in (*each["moving"], *each["whole"]))


@pytest.mark.parametrize(("bound", "value", "code"), [("MOVING", 0.0, 1), ("WHOLE", 0.0, 1), ("", 0.0, 0)])
def test_a_missed_bound_is_said_and_is_a_failure(
    times: dict[str, dict[str, list[float]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    bound: str,
    value: float,
    code: int,
) -> None:
    """How fast this machine is does not matter here."""
    for name in ("MOVING", "WHOLE"):
        monkeypatch.setattr(paint, name, value if name == bound else 1e9)
    monkeypatch.setattr(paint, "_probe", lambda: times)
    assert paint.main([]) == code
    assert ("MISSED" in capsys.readouterr().out) == bool(code)
