"""Strategies beside each other: each one's own plan, or its trouble in words."""

from __future__ import annotations

from dataclasses import replace

from layerlight.core.comparison import compared
from layerlight.core.device import Budget, Machine
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
from tests.core.models import MIB, accelerator, dense, disk, ram

MACHINE = Machine((accelerator(free=300 * MIB), ram(), disk()))
MODEL = dense(8, hidden=1024, intermediate=4096, vocabulary=8000)
OURS = make_plan(MODEL, MACHINE, Budget(context=64))


def all_on(place: str) -> tuple[tuple[str, str], ...]:
    return tuple((layer.name, place) for layer in MODEL.layers)


def test_each_strategy_has_its_own_plan_of_the_same_question() -> None:
    most = compared(OURS, "most-on-gpu").plan
    assert most is not None
    assert (most.wishes.strategy, most.budget, most.model) == ("most-on-gpu", OURS.budget, MODEL)
    theirs = compared(OURS, "auto", all_on("cpu")).plan
    assert theirs is not None
    assert theirs.places == ("cpu",)
    assert {each.reason for each in theirs.placements} == {"Placed by accelerate's “auto”."}
    assert theirs.prediction.seconds_per_token > OURS.prediction.seconds_per_token


def test_what_does_not_fit_is_a_plan_that_tells_how_much_is_missing() -> None:
    theirs = compared(replace(OURS, budget=Budget.of([("cuda:0", 8 * MIB)], 64)), "sequential", all_on("cuda:0")).plan
    assert theirs is not None
    assert theirs.shortfall > 0


def test_a_plan_that_can_not_be_is_a_sentence() -> None:
    mixed = ((MODEL.layers[0].name, "cuda:0"), *all_on("cpu")[1:])
    found = compared(replace(OURS, wishes=Wishes(quantization="nf4")), "balanced", mixed)
    assert found.plan is None
    assert "bitsandbytes" in found.trouble


def test_freed_wishes_leave_every_place_to_the_plan_and_the_rest_alone() -> None:
    asked = Wishes("float16", "nf4", map=all_on("cpu"), strategy="auto")
    assert asked.freed == Wishes("float16", "nf4")
    pinned = Wishes(pins=all_on("cpu")[:1], strategy="most-on-gpu")
    assert pinned.freed == Wishes(strategy="most-on-gpu")
