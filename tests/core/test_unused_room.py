"""Why a place is not fuller: each fuller plan lacks bytes or seconds, and that is said."""

from __future__ import annotations

import pytest

from layerlight.core.device import Budget, Machine
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan, Wishes
from layerlight.core.unused_room import fuller_plans, unused_words
from tests.core.models import GIB, SLOW_CPU, accelerator, dense, disk, machine, ram

FAST_BUS = (*SLOW_CPU, ("bus", 1e10))
SLOW_DEVICE = (("cpu", 1e10), ("cuda:0", 1e8), ("bus", 1e8), ("matrix:cuda:0:bfloat16", 1e8))


def planned(limit: int, rates: tuple[tuple[str, float], ...] = FAST_BUS, **wishes: object) -> Plan:
    here: Machine = machine(accelerator("cuda:0", GIB), ram(), disk(), rates=rates)
    return make_plan(dense(), here, Budget.of([("cuda:0", limit)], 256), Wishes(**wishes))  # type: ignore[arg-type]


def needed() -> int:
    return planned(GIB).prediction.use("cuda:0").used


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8, 0.95, 0.999])
def test_every_fuller_plan_is_refuted(share: float) -> None:
    plan = planned(int(needed() * share))
    fuller = list(fuller_plans(plan, "cuda:0"))
    assert fuller
    assert all(each.is_refuted for each in fuller)
    assert {each.layer for each in fuller} <= {each.layer for each in plan.placements if each.rests_on != "cuda:0"}


def test_what_is_missing_is_said_in_bytes() -> None:
    plan = planned(needed() * 6 // 10)
    first = next(fuller_plans(plan, "cuda:0"))
    assert first.lacking > 0
    assert unused_words(plan, "cuda:0").startswith("CUDA:0 keeps ")
    assert first.layer in unused_words(plan, "cuda:0")


def test_room_that_would_only_slow_it_is_said_in_seconds() -> None:
    plan = planned(GIB, SLOW_DEVICE)
    assert plan.places == ("cpu",)
    assert all(each.lacking == 0 and each.slower > 0 for each in fuller_plans(plan, "cuda:0"))
    assert " longer." in unused_words(plan, "cuda:0")


def test_nothing_is_said_where_all_is_there() -> None:
    plan = planned(GIB)
    assert list(fuller_plans(plan, "cuda:0")) == []
    assert unused_words(plan, "cuda:0") == ""


def test_a_person_who_pins_layers_away_hears_that_fuller_is_faster() -> None:
    """Not refuted: the plan is not the fastest, because it was told so."""
    plan = planned(GIB, pins=(("model.layers.1", "cpu"),))
    assert [each.is_refuted for each in fuller_plans(plan, "cuda:0")] == [False]
    assert unused_words(plan, "cuda:0") == ""
