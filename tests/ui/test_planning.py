"""Planning: small plans at once, large ones on a thread, the newest only; pins, undo, fixes, other machines."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from layerlight.core.errors import BadRequest
from layerlight.core.machines.machine_files import machine_names, read_machine_file
from layerlight.core.messages import LoadRequest
from layerlight.core.plan import Plan
from layerlight.ui.history import History
from layerlight.ui.planner import Advised, Planner
from layerlight.ui.planning import Levers, Question, moved, spoken
from tests import fakes
from tests.core.models import GIB, dense
from tests.ui.conftest import Bench, MakeBench

PLACES = {"cuda:0": "G", "cpu": "R", "disk": "D"}


@pytest.fixture
def large(make_bench: MakeBench) -> Bench:
    """40 layers that do not fit the card."""
    bench = make_bench(fakes.laptop(), fakes.fourteen_billion())
    bench.open()
    return bench


def place_of(bench: Bench, layer: str) -> str:
    assert bench.session.state.plan is not None
    return bench.session.state.plan.placement(layer).rests_on


# -- the thread ------------------------------------------------------------------------------------------------------


def test_of_many_large_plans_the_newest_is_made(qtbot: QtBot) -> None:
    """Requests that come while one is being made replace each other."""
    planner = Planner()
    began, go_on = threading.Event(), threading.Event()
    made: list[int] = []

    def slow(number: int) -> Plan:
        began.set()
        go_on.wait(5)
        made.append(number)
        raise BadRequest("enough")

    planner.plan(1, lambda: slow(1))
    assert began.wait(5)
    for number in (2, 3, 4):
        planner.plan(number, lambda number=number: slow(number))  # type: ignore[misc]
    with qtbot.waitSignals([planner.planned, planner.planned]):
        go_on.set()
    assert made == [1, 4]
    planner.close()


def test_a_mistake_on_the_thread_is_an_answer(qtbot: QtBot) -> None:
    planner = Planner()

    def broken() -> Plan:
        raise RuntimeError("a mistake")

    with qtbot.waitSignal(planner.planned) as told:
        planner.plan(7, broken)
    assert told.args is not None
    assert told.args[0] == 7
    assert "a mistake" in told.args[1].message
    planner.close()


def test_advice_comes_first_and_its_fixes_later(qtbot: QtBot) -> None:
    plan = Question(fakes.fourteen_billion(), fakes.mac(), Levers()).plan()
    planner = Planner()
    told: list[Advised] = []
    planner.advised.connect(told.append)
    planner.advise(plan)
    qtbot.waitUntil(lambda: len(told) == 2)
    assert told[0].fixes is None
    assert told[1].fixes
    assert told[1].advice.hint == told[0].advice.hint
    planner.close()


def test_models_with_experts_are_planned_on_the_thread() -> None:
    model = dense()
    assert model.shape is not None
    question = Question(model, fakes.laptop(), Levers())
    assert question.is_small
    assert not replace(question, model=replace(model, shape=replace(model.shape, experts=8))).is_small
    assert not replace(question, model=dense(140)).is_small


def test_a_large_plan_arrives_and_a_load_waits_for_it(make_bench: MakeBench) -> None:
    model = dense()
    assert model.shape is not None
    bench = make_bench(model=replace(model, shape=replace(model.shape, experts=8, experts_per_token=2)))
    bench.open()
    bench.session.set_limit("cuda:0", 0)
    bench.session.load()
    request = bench.engine.last_load
    assert isinstance(request, LoadRequest)
    assert {each.rests_on for each in request.placements} == {"cpu"}


# -- pins ------------------------------------------------------------------------------------------------------------


def test_pins_are_kept_and_the_rest_is_planned_around_them(large: Bench) -> None:
    names = [f"model.layers.{n}" for n in range(4)]
    large.session.pin(names, "cpu")
    assert {place_of(large, name) for name in names} == {"cpu"}
    assert place_of(large, "model.layers.4") == "cuda:0"
    lane = large.session.lanes()[1]
    assert [unit.key for unit in lane.units if unit.pinned] == names


def test_undo_and_redo_of_pins(large: Bench) -> None:
    session = large.session
    before = place_of(large, "model.layers.0")
    assert not session.can_undo
    session.pin(["model.layers.0"], "disk")
    session.pin(["model.layers.1"], "disk")
    assert place_of(large, "model.layers.0") == "disk"
    session.undo()
    session.undo()
    assert place_of(large, "model.layers.0") == before
    assert not session.can_undo
    session.redo()
    assert place_of(large, "model.layers.0") == "disk"
    assert session.planning.pins == (("model.layers.0", "disk"),)


def test_reset_to_the_fastest_and_back(large: Bench) -> None:
    session = large.session
    session.pin(["model.layers.0"], "disk")
    session.change_settings(strategy="most-on-gpu")
    assert session.is_by_hand
    session.reset_plan()
    assert not session.is_by_hand
    assert session.planning.pins == ()
    session.undo()
    assert session.planning.pins == (("model.layers.0", "disk"),)
    assert session.settings.strategy == "most-on-gpu"


def test_impossible_pins_are_refused_with_what_is_missing(large: Bench) -> None:
    session = large.session
    before = session.state.plan
    session.pin([f"model.layers.{n}" for n in range(40)], "cuda:0")
    assert "GiB are missing on RTX 4060 Laptop" in session.notice
    assert session.planning.pins == ()
    assert session.state.plan is before
    assert not session.can_undo


def test_pins_to_a_place_that_a_limit_forbids_are_refused(large: Bench) -> None:
    large.session.set_limit("disk", 0)
    large.session.planning.now()
    large.session.pin(["model.layers.0"], "disk")
    assert large.session.notice.startswith("That can’t be pinned")


def test_layers_that_share_weights_move_together(make_bench: MakeBench) -> None:
    bench = make_bench(fakes.laptop(), fakes.starter())
    bench.open()
    session = bench.session
    session.pin(["model.embed_tokens"], "cpu")
    session.pin(["lm_head"], "cuda:0")
    assert session.notice == ""
    assert {place for _, place in session.planning.pins} == {"cuda:0"}


def test_another_model_has_no_pins(large: Bench) -> None:
    large.session.pin(["model.layers.0"], "disk")
    large.open()
    large.qtbot.waitUntil(lambda: large.session.planning.pins == ())
    assert not large.session.can_undo


def test_nothing_is_pinned_while_it_loads(large: Bench) -> None:
    large.start_load(0.3)
    large.session.pin(["model.layers.0"], "disk")
    assert "loading" in large.session.notice
    assert large.session.planning.pins == ()


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (["model.layers.3"], "layer 3"),
        (["model.layers.3", "model.layers.4", "model.layers.5"], "layers 3–5"),
        (["model.layers.3", "model.layers.5"], "2 blocks"),
        (["model.embed_tokens"], "embedding"),
        (["model.embed_tokens", "model.layers.0"], "2 blocks"),
    ],
)
def test_blocks_are_named_as_people_do(layers: list[str], words: str) -> None:
    assert spoken(dense(8), layers) == words


def test_a_layer_has_one_pin() -> None:
    pins = moved((("a", "cpu"), ("b", "cpu")), ["a", "c"], "disk")
    assert pins == (("b", "cpu"), ("a", "disk"), ("c", "disk"))
    assert moved(pins, ["a", "b"], None) == (("c", "disk"),)


def test_history_skips_what_made_no_difference() -> None:
    history = History[int]()
    history.push(1)
    history.push(2)
    assert history.undo(2) == 1
    assert history.redo(1) == 2
    assert history.undo(2) == 1
    history.push(1)
    assert not history.can_redo


# -- fixes -----------------------------------------------------------------------------------------------------------


def fixes(bench: Bench) -> None:
    bench.qtbot.waitUntil(lambda: bench.session.planning.fixes is not None)


def test_a_fix_changes_what_it_says_and_can_be_undone(make_bench: MakeBench) -> None:
    bench = make_bench(fakes.mac(), fakes.fourteen_billion())
    bench.open()
    fixes(bench)
    before = bench.session.state.plan
    found = bench.session.planning.fixes
    assert before is not None
    assert found
    fix = next(each for each in found if each.wishes is not None and each.wishes.quantization == "nf4")
    bench.session.apply(fix)
    plan = bench.session.state.plan
    assert plan is not None
    assert plan.wishes.quantization == "nf4"
    assert plan.prediction.seconds_per_token == pytest.approx(fix.seconds_per_token)
    bench.session.undo()
    assert bench.session.state.plan is not None
    assert bench.session.state.plan.placements == before.placements


def test_a_fix_that_lifts_a_limit_keeps_those_of_absent_places(make_bench: MakeBench) -> None:
    limits = (("cpu", 40 * GIB), ("cuda:0", 0), ("cuda:1", 0), ("cuda:7", GIB))
    bench = make_bench(fakes.two_cards(), fakes.fourteen_billion(), limits=limits)
    bench.open()
    fixes(bench)
    found = [each for each in bench.session.planning.fixes or () if each.budget]
    lifting = [each for each in found if each.budget and each.budget.limit("cuda:0") is None]
    assert lifting
    bench.session.apply(lifting[0])
    assert bench.session.limits == (("cpu", 40 * GIB), ("cuda:1", 0), ("cuda:7", GIB))


# -- machines that are not there -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", machine_names())
def test_every_bundled_machine_can_be_planned_for(make_bench: MakeBench, name: str) -> None:
    bench = make_bench(fakes.no_card(), fakes.starter())
    bench.open()
    machine = read_machine_file(name)
    bench.session.plan_for(machine)
    plan = bench.session.state.plan
    assert plan is not None
    assert plan.machine is machine.machine
    assert [lane.place for lane in bench.session.lanes()][-1] == "disk"
    assert machine.title in bench.session.load_refusal


def test_nothing_is_loaded_on_a_machine_that_is_not_there(large: Bench) -> None:
    session = large.session
    here = session.state.plan
    session.set_limit("cpu", 8 * GIB)
    session.plan_for(read_machine_file("desktop-rtx3090-24gb"))
    assert session.limits == ()
    session.set_limit("cuda:0", 4 * GIB)
    session.load()
    assert large.engine.of_kind(LoadRequest) == []
    assert "another machine" in session.notice
    session.plan_for(None)
    assert dict(session.limits) == {"cpu": 8 * GIB}
    assert session.state.plan is not None
    assert here is not None
    assert session.state.plan.machine == here.machine
    session.load()
    assert len(large.engine.of_kind(LoadRequest)) == 1


def test_what_is_in_memory_stays_true_while_another_machine_is_planned(loaded: Bench) -> None:
    session = loaded.session
    before = session.lanes()
    session.plan_for(read_machine_file("mac-m1-8gb"))
    assert session.lanes() == before
    assert [lane.place for lane in session.lanes(prefer_next=True)] == ["mps", "disk"]
    assert not session.plan_is_loaded
