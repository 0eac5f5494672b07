"""Plans of random models on random machines, held against a second opinion and against every other placement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from layerlight.core.device import Budget, Device, Machine
from layerlight.core.errors import BadRequest, DoesNotFit, MapMismatch
from layerlight.core.model import Model
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan, Wishes
from layerlight.core.planning.workload import Workload
from tests.core import plan_checker
from tests.core.models import MIB, accelerator, dense, disk, ram
from tests.core.plan_checker import check, groups_of, main_of
from tests.core.random_plans import CONTEXT, Case, cases

slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
workloads = st.sampled_from([Workload(), Workload(1, 1), Workload(48, 4), Workload(4, 60), Workload(16, 16, batch=3)])


def planned(case: Case, wishes: Wishes) -> Plan:
    try:
        return make_plan(case.model, case.machine, case.budget, wishes)
    except (DoesNotFit, MapMismatch):
        assume(False)
        raise


def hold(plan: Plan) -> None:
    """What is true of every plan, by the checker's count."""
    assert sorted(each.layer for each in plan.placements) == sorted(each.name for each in plan.model.layers)
    for group in groups_of(plan.model):
        assert len({plan.device_map()[layer.name] for layer in group}) == 1, "what shares weights rests together"
    main = main_of(plan.machine, plan.device_map().values())
    runs = {each.layer: each.runs_on for each in plan.placements}
    assert runs in plan_checker.ways_to_run(plan, plan.device_map()), "what is carried runs on the main device"
    assert main in runs.values()
    found = check(plan)
    for use in plan.prediction.places:
        assert use.used == found.used[use.place]
        limit = plan.budget.limit(use.place)
        if plan.fits:
            assert use.capacity is None or found.used[use.place] <= use.capacity
            assert limit is None or found.used[use.place] <= limit
            free = plan.machine.device(use.place).free
            assert free is None or use.place == "disk" or found.used[use.place] <= free - use.margin
    assert plan.prediction.seconds_per_token == pytest.approx(found.token, rel=1e-9)
    assert plan.prediction.prefill_seconds == pytest.approx(found.prompt, rel=1e-9)
    assert plan.prediction.workload_seconds == pytest.approx(found.total, rel=1e-9)


@settings(slow, max_examples=800)
@given(cases(), workloads, st.sampled_from(["fastest", "fastest", "most-on-gpu"]))
def test_every_plan_holds_by_another_count(case: Case, work: Workload, strategy: str) -> None:
    """A04, A08: complete, whole units, within every limit, the same whatever the order of limits."""
    wishes, budget = Wishes(workload=work, strategy=strategy), case.budget
    plan = planned(case, wishes)
    hold(plan)
    turned = replace(budget, limits=budget.limits[::-1])
    assert make_plan(case.model, case.machine, turned, wishes) == replace(plan, budget=turned)


@settings(slow, max_examples=400)
@given(cases(), st.data())
def test_pins_are_kept_and_the_rest_is_planned_around_them(case: Case, data: st.DataObject) -> None:
    model, machine, budget = case.model, case.machine, case.budget
    allowed = [device.id for device in machine.devices if budget.limit(device.id) != 0]
    assume(allowed)
    groups = groups_of(model)
    pinned = data.draw(
        st.dictionaries(st.integers(0, len(groups) - 1), st.sampled_from(allowed), min_size=1, max_size=4)
    )
    pins = tuple((groups[number][0].name, place) for number, place in pinned.items())
    plan = planned(case, Wishes(pins=pins))
    hold(plan)
    for name, place in pins:
        assert plan.device_map()[name] == place
    if plan.fits:
        free = make_plan(model, machine, budget)
        assert free.fits
        proven = free.prediction.workload_seconds * (1 - free.prediction.gap)
        assert proven <= plan.prediction.workload_seconds * (1 + 1e-9), "no pin beats what a search has proven"


# -- other placements --------------------------------------------------------------------------------------------------


def allowed_places(plan: Plan) -> list[str]:
    return [device.id for device in plan.machine.devices if plan.budget.limit(device.id) != 0]


def fits(plan: Plan, places: dict[str, str]) -> bool:
    """Whether a map keeps to the limits, by the checker's count."""
    if not plan_checker.ways_to_run(plan, places):
        return False
    capacity = {use.place: use.capacity for use in plan.prediction.places}
    used = check(plan, places).used
    return all(capacity[place] is None or size <= (capacity[place] or 0) for place, size in used.items())


def mixes_one_pool(plan: Plan, places: dict[str, str]) -> bool:
    """Unified memory is no second tier beside its own accelerator, unless a person gave RAM a limit."""
    pooled = [
        device for device in plan.machine.accelerators if device.shares_memory_with and device.id in places.values()
    ]
    limited = plan.budget.limit("cpu") is not None and all(device.kind != "mps" for device in pooled)
    return bool(pooled) and "cpu" in places.values() and not limited


def greedy_maps(plan: Plan) -> Iterator[dict[str, str]]:
    """In the manner of accelerate: one device after the other, never back, with a margin for the largest layer kept on
    the first, or shares that are even. Rooms count weights only, as there."""
    model = plan.model
    sizes = {layer.name: plan_checker.weight_bytes(plan, layer) for layer in model.layers}
    largest = max(sizes.values())
    whole = sum(sizes.values())
    devices = [place for place in allowed_places(plan) if place != "disk"]
    capacity = {use.place: use.capacity for use in plan.prediction.places}
    cards = [place for place in devices if place != "cpu"]
    for kept, even, skip in product((0, largest), (False, True), (False, True)):
        room = {place: float("inf") if capacity[place] is None else capacity[place] or 0 for place in devices}
        for place in cards:
            if even:
                room[place] = min(room[place], whole / len(cards) + largest)
            if place == cards[0]:
                room[place] = 0 if skip else room[place] - kept
        for share in (1.0, 0.75, 0.5):
            yield _filled(model, sizes, {place: share * left for place, left in room.items()})


def _filled(model: Model, sizes: dict[str, int], room: dict[str, float]) -> dict[str, str]:
    order = [*room, "disk"]
    at = 0
    places: dict[str, str] = {}
    for group in groups_of(model):
        needed = sum(sizes[layer.name] for layer in group)
        while at < len(order) - 1 and needed > room[order[at]]:
            at += 1
        if at < len(order) - 1:
            room[order[at]] -= needed
        places.update(dict.fromkeys((layer.name for layer in group), order[at]))
    return places


@settings(slow, max_examples=400)
@given(cases())
def test_no_greedy_map_is_faster(case: Case) -> None:
    """Priced by the checker, one device after another is never faster, but for the gap that the plan itself tells, and
    ours fits where any such map does."""
    plan = planned(case, Wishes())
    for places in {tuple(each.items()): each for each in greedy_maps(plan)}.values():
        if "disk" in places.values() and case.budget.limit("disk") == 0:
            continue
        if fits(plan, places) and not mixes_one_pool(plan, places):
            assert plan.fits
            possible = check(plan).total * (1 - plan.prediction.gap)
            assert possible <= check(plan, places).total * (1 + 1e-9)


@settings(slow, max_examples=400)
@given(cases(most_layers=3, most_accelerators=2), workloads)
def test_small_plans_are_the_best_there_is(case: Case, work: Workload) -> None:
    """Of all placements of all units, priced by the checker, none is faster, and none fits where ours does not."""
    plan = planned(case, Wishes(workload=work))
    groups = groups_of(case.model)
    allowed = allowed_places(plan)
    assume(len(allowed) ** len(groups) <= 4096)
    best = float("inf")
    price = plan_checker.Table(plan)
    for chosen in product(allowed, repeat=len(groups)):
        if "mps" in chosen and "cpu" in chosen:
            continue
        best = min(best, price.total(chosen))
    assert plan.fits == (best < float("inf"))
    if plan.fits:
        assert check(plan).total == pytest.approx(best, rel=1e-8)
        assert plan.prediction.gap == 0


def test_the_table_of_the_checker_agrees_with_the_checker() -> None:
    machine = Machine((accelerator("cuda:0"), accelerator("cuda:1"), ram(), disk()))
    plan = make_plan(dense(tied=True), machine, Budget(context=CONTEXT))
    table = plan_checker.Table(plan)
    groups = groups_of(plan.model)
    for chosen in (("cuda:0",) * 6, ("cuda:0", "cuda:1", "cpu", "disk", "cuda:1", "cuda:0"), ("cpu", "disk") * 3):
        places = {layer.name: place for group, place in zip(groups, chosen, strict=True) for layer in group}
        assert table.total(chosen) == pytest.approx(check(plan, places).total, rel=1e-9)


@settings(slow, max_examples=50)
@given(st.lists(st.integers(0, 4 * MIB), min_size=2, max_size=2), st.integers(2, 12))
def test_layers_of_one_device_stand_together(free: list[int], layers: int) -> None:
    """Each accelerator is visited once: no more hand-overs than accelerators after the first, and one back at most."""
    devices: list[Device] = [accelerator(f"cuda:{index}", size) for index, size in enumerate(free)]
    plan = make_plan(dense(layers=layers), Machine((*devices, ram(), disk())), Budget(context=CONTEXT))
    running = {each.runs_on for each in plan.placements}
    assert len(plan.prediction.hand_overs) <= len(running)
    with pytest.raises(BadRequest):
        make_plan(plan.model, plan.machine, plan.budget, Wishes(strategy="auto"))


@settings(slow, max_examples=80)
@given(cases())
def test_no_plan_has_more_on_accelerators_than_the_one_that_wants_most(case: Case) -> None:
    fast, most = planned(case, Wishes()), planned(case, Wishes(strategy="most-on-gpu"))
    assert fast.fits == most.fits
    held = [sum(plan.bytes_on(device.id) for device in case.machine.accelerators) for plan in (fast, most)]
    assert held[0] <= held[1] or not fast.fits
    assert fast.prediction.workload_seconds * (1 - fast.prediction.gap) <= most.prediction.workload_seconds * (1 + 1e-9)


def test_hand_overs_are_told_with_what_crosses() -> None:
    """Before which layer, from where to where, how many bytes a token: a tied head runs where its table is."""
    model = dense(layers=4, tied=True)
    places = ("cuda:0", "cuda:0", "cuda:0", "cuda:1", "cuda:1", "cuda:1", "cuda:0")
    by_hand = tuple((layer.name, place) for layer, place in zip(model.layers, places, strict=True))
    here = Machine((accelerator("cuda:0"), accelerator("cuda:1"), ram(), disk()))
    plan = make_plan(model, here, Budget(context=CONTEXT), Wishes(map=by_hand))
    assert [(each.layer, each.source, each.target, each.bytes) for each in plan.prediction.hand_overs] == [
        ("model.layers.2", "cuda:0", "cuda:1", 128),
        ("lm_head", "cuda:1", "cuda:0", 128),
    ]
