"""The planning benchmark: its table, and its exit status."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerlight.bench import planning


@pytest.mark.parametrize(("bound", "status"), [(1e6, 0), (0.0, 1)])
def test_it_fails_exactly_when_a_bound_is_missed(
    bound: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = tuple(replace(task, bound=bound) for task in planning.TASKS[:2])
    monkeypatch.setattr(planning, "TASKS", tasks)
    assert planning.main(["--rounds", "1"]) == status
    assert ("Every plan" in capsys.readouterr().out) == (status == 0)
