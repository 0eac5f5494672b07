"""Strategies in the window: ours and accelerate's beside each other, one of them followed, and maps by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog

from layerlight.core.export import plan_json
from layerlight.core.messages import (
    EngineStopped,
    Failed,
    Failure,
    LoadRequest,
    StrategiesMapped,
    StrategiesRequest,
)
from layerlight.core.model import Model
from layerlight.core.placing import ENGINE_STRATEGIES
from layerlight.core.plan import Plan
from layerlight.ui.strategy_panel import WARMING
from tests import fakes
from tests.ui.conftest import Bench, MakeBench


@pytest.fixture
def large(make_bench: MakeBench) -> Bench:
    """40 layers that do not fit the card."""
    bench = make_bench(fakes.laptop(), fakes.fourteen_billion())
    bench.open()
    return bench


def plan_of(bench: Bench) -> Plan:
    assert bench.session.state.plan is not None
    return bench.session.state.plan


def last_asked(bench: Bench, number: int = 1) -> StrategiesRequest:
    bench.qtbot.waitUntil(lambda: len(bench.engine.of_kind(StrategiesRequest)) >= number)
    request = bench.engine.of_kind(StrategiesRequest)[-1]
    assert isinstance(request, StrategiesRequest)
    return request


def all_on(model: Model, place: str, but: int = 0) -> tuple[tuple[str, str], ...]:
    """Every layer on a place, the first few on disk."""
    return tuple((layer.name, "disk" if i < but else place) for i, layer in enumerate(model.layers))


def answer(bench: Bench, request: StrategiesRequest, but: int = 0) -> None:
    """All on disk by each strategy, save `sequential`, which forgets how large the card is."""
    maps = dict.fromkeys(ENGINE_STRATEGIES, all_on(request.plan.model, "disk"))
    maps["sequential"] = all_on(request.plan.model, "cuda:0", but)
    bench.engine.tell(StrategiesMapped(request.number, tuple(maps.items())))
    panel = bench.desk.work.plan.strategies
    bench.qtbot.waitUntil(lambda: panel.pace("auto") != "…")


def choose(bench: Bench, name: str) -> None:
    bench.qtbot.mouseClick(bench.desk.work.plan.strategies.buttons[name], Qt.MouseButton.LeftButton)


# -- beside each other -----------------------------------------------------------------------------------------------


def test_all_are_shown_with_their_seconds_or_with_what_is_missing(large: Bench) -> None:
    panel = large.desk.work.plan.strategies
    request = last_asked(large)
    assert request.plan.wishes.strategy == "fastest"
    assert panel.pace("fastest")
    assert panel.pace("most-on-gpu")
    assert panel.pace("auto") == "…"
    answer(large, request)
    assert panel.pace("auto").endswith(("s", "ms"))
    assert panel.pace("sequential").startswith("does not fit, ")
    assert "are missing on" in panel._paces["sequential"].toolTip()
    assert panel.buttons["fastest"].isChecked()
    assert "token" in panel._paces["auto"].toolTip()


def test_accelerates_are_greyed_with_the_reason_until_the_engine_is_warm(large: Bench) -> None:
    panel = large.desk.work.plan.strategies
    last_asked(large)
    large.engine.tell(EngineStopped(True))
    for name in ENGINE_STRATEGIES:
        assert not panel.buttons[name].isEnabled()
        assert panel.buttons[name].toolTip() == WARMING
    assert panel.buttons["most-on-gpu"].isEnabled()
    large.engine.warm_up()
    assert panel.buttons["auto"].isEnabled()
    last_asked(large, 2)


@pytest.mark.parametrize("broken", [False, True])
def test_a_model_that_accelerate_does_not_know_greys_them_in_its_words(large: Bench, broken: bool) -> None:
    """Also where the engine fails over it: that is no error of the window's."""
    request, words = last_asked(large), "No class of transformers runs it."
    failed = Failed(Failure("Title", words, "", "Unexpected"), "StrategiesRequest")
    large.engine.tell(failed if broken else StrategiesMapped(request.number, trouble=words))
    panel = large.desk.work.plan.strategies
    large.qtbot.waitUntil(lambda: panel.buttons["auto"].toolTip() == words)
    assert not panel.buttons["auto"].isEnabled()
    assert large.session.state.error is None
    assert large.session.state.plan is not None


def test_an_answer_to_an_older_question_is_asked_again(large: Bench) -> None:
    request = last_asked(large)
    large.session.set_limit("cpu", 8 * 2**30)
    large.qtbot.waitUntil(lambda: dict(plan_of(large).budget.limits) == {"cpu": 8 * 2**30})
    maps = tuple(dict.fromkeys(ENGINE_STRATEGIES, all_on(request.plan.model, "disk")).items())
    large.engine.tell(StrategiesMapped(request.number, maps))
    newer = last_asked(large, 2)
    assert dict(newer.plan.budget.limits) == {"cpu": 8 * 2**30}


def test_the_engine_is_not_asked_while_it_works(large: Bench) -> None:
    large.start_load(0.4)
    large.qtbot.waitUntil(lambda: bool(large.session.strategies.rows))
    assert large.engine.of_kind(StrategiesRequest) == []
    request = large.engine.last_load
    assert request is not None
    large.engine.tell(fakes.load_done(request, large.engine.machine))
    last_asked(large)


def test_the_config_goes_along_where_there_is_no_folder(bench: Bench) -> None:
    bench.session.open_public("qwen3-8b")
    bench.qtbot.waitUntil(lambda: bench.session.state.plan is not None)
    request = last_asked(bench)
    assert json.loads(request.config or "")["model_type"] == "qwen3"


# -- followed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_one_of_accelerates_is_followed_and_left_again(large: Bench, by: str) -> None:
    answer(large, last_asked(large))
    panel = large.desk.work.plan
    if by == "mouse":
        choose(large, "auto")
    else:
        panel.strategies.buttons["most-on-gpu"].setFocus()
        panel.strategies.buttons["auto"].setFocus()
        large.qtbot.keyClick(panel.strategies.buttons["auto"], Qt.Key.Key_Space)
    large.qtbot.waitUntil(lambda: plan_of(large).wishes.strategy == "auto")
    assert plan_of(large).places == ("disk",)
    assert "accelerate" in panel._ties.text()
    large.session.load()
    request = large.engine.last_load
    assert isinstance(request, LoadRequest)
    assert {each.rests_on for each in request.placements} == {"disk"}
    large.engine.tell(*fakes.load_began(request), fakes.load_done(request, large.engine.machine))
    large.session.undo()
    large.qtbot.waitUntil(lambda: plan_of(large).wishes.strategy == "fastest")
    assert panel.strategies.buttons["fastest"].isChecked()
    assert large.session.settings.strategy == "fastest"


def test_moving_a_lever_asks_accelerate_again_and_a_load_waits_for_it(large: Bench) -> None:
    answer(large, last_asked(large), but=36)
    choose(large, "sequential")
    large.qtbot.waitUntil(lambda: plan_of(large).wishes.strategy == "sequential")
    large.session.set_limit("cuda:0", 6 * 2**30)
    request = last_asked(large, 2)
    assert dict(request.plan.budget.limits) == {"cuda:0": 6 * 2**30}
    large.session.load()
    assert large.engine.of_kind(LoadRequest) == []
    assert "still being asked" in large.session.notice
    answer(large, request, but=40)
    large.qtbot.waitUntil(lambda: plan_of(large).device_map() == dict(all_on(large.model, "cuda:0", 40)))
    large.session.load()
    assert large.engine.of_kind(LoadRequest), large.session.notice


def test_a_saved_choice_is_the_fastest_until_accelerate_has_answered(make_bench: MakeBench) -> None:
    bench = make_bench(fakes.laptop(), fakes.fourteen_billion(), strategy="balanced")
    bench.open()
    assert plan_of(bench).wishes.strategy == "fastest"
    assert bench.desk.work.plan.strategies.buttons["balanced"].isChecked()
    assert "until accelerate" in bench.desk.work.plan._ties.text()
    answer(bench, last_asked(bench))
    bench.qtbot.waitUntil(lambda: plan_of(bench).wishes.strategy == "balanced")


def test_a_choice_that_accelerate_can_not_make_goes_back_and_says_why(make_bench: MakeBench) -> None:
    bench = make_bench(fakes.laptop(), fakes.fourteen_billion(), strategy="balanced")
    bench.open()
    bench.engine.tell(StrategiesMapped(last_asked(bench).number, trouble="No class runs it."))
    assert bench.session.settings.strategy == "fastest"
    assert "No class runs it." in bench.session.notice


def test_fixes_of_accelerates_plan_leave_the_places_to_ours(large: Bench) -> None:
    answer(large, last_asked(large))
    choose(large, "auto")
    large.qtbot.waitUntil(lambda: plan_of(large).wishes.strategy == "auto")
    rows = large.desk.work.plan.fixes.rows
    large.qtbot.waitUntil(lambda: any("choose every place" in each.words for each in large.desk.work.plan.fixes.rows))
    rows = large.desk.work.plan.fixes.rows
    fix = next(each for each in rows if "choose every place" in each.words)
    large.qtbot.mouseClick(fix.button, Qt.MouseButton.LeftButton)
    large.qtbot.waitUntil(lambda: plan_of(large).wishes.strategy == "fastest")
    assert large.session.settings.strategy == "fastest"


# -- by hand ---------------------------------------------------------------------------------------------------------


def test_by_hand_keeps_every_place_for_a_person_to_change(large: Bench) -> None:
    large.qtbot.waitUntil(lambda: bool(large.session.strategies.rows))
    before = plan_of(large).device_map()
    choose(large, "by-hand")
    assert large.session.strategy == "by-hand"
    assert plan_of(large).device_map() == before
    assert {each.reason for each in plan_of(large).placements} == {"Placed by hand."}
    first = next(name for name, place in before.items() if place == "cuda:0" and ".layers." in name)
    large.session.pin([first], "disk")
    assert plan_of(large).device_map() == {**before, first: "disk"}
    large.session.pin([first], None)
    assert "has its place" in large.session.notice
    large.session.undo()
    assert plan_of(large).device_map() == before
    large.session.reset_plan()
    assert large.session.strategy == "fastest"


def test_a_layer_moved_on_accelerates_map_makes_it_a_map_by_hand(large: Bench) -> None:
    answer(large, last_asked(large))
    choose(large, "auto")
    large.qtbot.waitUntil(lambda: plan_of(large).wishes.strategy == "auto")
    large.session.pin(["model.layers.0"], "cuda:0")
    assert large.session.strategy == "by-hand"
    assert plan_of(large).device_map() == {**dict(all_on(large.model, "disk")), "model.layers.0": "cuda:0"}


def test_a_map_that_does_not_fit_is_refused_with_the_bytes_that_are_missing(large: Bench) -> None:
    before = plan_of(large)
    large.session.take_map(all_on(large.model, "cuda:0"))
    assert plan_of(large) is before
    assert "That map can’t be used" in large.session.notice
    assert "GiB are missing on" in large.session.notice


def test_a_map_is_read_from_a_file(large: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps(dict(all_on(large.model, "disk"))))
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: (str(path), ""))
    large.qtbot.mouseClick(large.desk.work.plan.strategies.open_map, Qt.MouseButton.LeftButton)
    assert plan_of(large).places == ("disk",)
    assert large.session.strategy == "by-hand"


@pytest.mark.parametrize("kind", ["no JSON", "another model", "no file"])
def test_what_is_no_map_of_this_model_is_refused_in_words(large: Bench, tmp_path: Path, kind: str) -> None:
    path, before = tmp_path / "map.json", plan_of(large)
    if kind == "no JSON":
        path.write_text("{")
    elif kind == "another model":
        saved = json.loads(plan_json(plan_of(large)))
        path.write_text(json.dumps({**saved, "parameters": 7}))
    large.session.open_map(str(path))
    assert plan_of(large) is before
    assert large.session.notice


def test_another_model_and_another_machine_begin_without_the_map(large: Bench) -> None:
    choose(large, "by-hand")
    large.desk.shelf.fill()
    large.qtbot.waitUntil(lambda: bool(large.desk.shelf.machines))
    large.session.plan_for(large.desk.shelf.machines[0])
    assert large.session.strategy == "fastest"
    large.session.plan_for(None)
    choose(large, "by-hand")
    large.session._inspector._inspect_model = lambda folder: replace(fakes.starter(), folder=folder)
    large.session.open_folder("/models/other")
    large.qtbot.waitUntil(
        lambda: large.session.state.model is not None and large.session.state.model.folder[-5:] == "other"
    )
    assert large.session.planning.map == ()


def test_arrow_keys_move_through_what_can_be_chosen(large: Bench) -> None:
    """accelerate's are passed over while they are greyed."""
    buttons = large.desk.work.plan.strategies.buttons
    large.engine.tell(EngineStopped(True))
    buttons["fastest"].setFocus()
    large.qtbot.keyClick(buttons["fastest"], Qt.Key.Key_Down)
    assert large.session.settings.strategy == "most-on-gpu"
    assert buttons["most-on-gpu"].hasFocus()
    large.qtbot.keyClick(buttons["most-on-gpu"], Qt.Key.Key_Down)
    assert large.session.strategy == "by-hand"
    assert buttons["by-hand"].isChecked()
