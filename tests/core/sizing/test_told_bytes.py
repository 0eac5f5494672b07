"""What the empty model said of a model: it goes before the formulas, for the very settings it was asked with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerlight.core.device import Budget
from layerlight.core.messages import ModelChecked, ModelInspected, decode_event, encode
from layerlight.core.placing import make_plan
from layerlight.core.plan import PREFILL_CHUNK, Plan, Wishes
from layerlight.core.sizing.told_bytes import ToldBytes, with_answer
from layerlight.core.sizing.work import Work
from layerlight.core.state import State, apply
from tests.core.models import GIB, accelerator, dense, machine, ram

CONTEXT = 1024
MODEL = dense(layers=4, context=2 * CONTEXT)
LAYERS = tuple((layer.name, layer.size + 100) for layer in MODEL.layers)
TOLD = ToldBytes(
    "bfloat16", None, "sdpa", CONTEXT, PREFILL_CHUNK, LAYERS, (7001, 7002, 7003, 7004), Work(900_001, 500_000)
)
HERE = machine(ram(8 * GIB))


def planned(context: int = CONTEXT, told: tuple[ToldBytes, ...] = (TOLD,), **wishes: str) -> Plan:
    return make_plan(replace(MODEL, told=told), HERE, Budget(context=context), Wishes(**wishes))  # type: ignore[arg-type]


def test_a_plan_takes_what_was_told_to_the_byte() -> None:
    use = planned().prediction.use("cpu")
    assert use.weights == sum(size for _, size in LAYERS)
    assert {each.layer: each.size for each in planned().placements} == dict(LAYERS)
    assert use.kv == 7001 + 7002 + 7003 + 7004
    assert use.working == 900_001
    assert planned().checked


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        ({"dtype": "float32"}, ""),
        ({"quantization": "int8"}, "kv working"),
        ({"attention": "eager"}, "weights kv"),
        ({"context": CONTEXT + 1}, "weights"),
    ],
)
def test_other_settings_keep_only_what_does_not_depend_on_them(asked: dict[str, object], same: str) -> None:
    """Each part of an answer is true for the settings it depends on: the rest is the formulas' again."""
    told, formula = planned(**asked), planned(**asked, told=())  # type: ignore[arg-type]
    assert not told.checked
    for part in ("weights", "kv"):
        used = [getattr(plan.prediction.use("cpu"), part) for plan in (told, formula)]
        assert (used[0] == used[1]) is (part not in same), part
    turned_back = 10 * 128 * 64 if asked.get("quantization") else 0
    working = told.prediction.use("cpu").working
    assert (working == max(900_001, 500_000 + turned_back)) is ("working" in same)


def test_weights_that_are_carried_have_buffers_beside_the_work() -> None:
    """Two of the whole layer, whatever a stage of the work leaves free: they stay through all of a pass."""
    machines = machine(accelerator("cuda:0", GIB), ram(8 * GIB))
    pins = (("model.layers.0", "cpu"),)
    use = {
        spare: make_plan(
            replace(MODEL, told=(replace(TOLD, work=Work(900_000, 900_000 - spare)),)),
            machines,
            Budget(context=CONTEXT),
            Wishes(pins=pins),
        ).prediction.use("cuda:0")
        for spare in (0, 1000, 800_000)
    }
    assert {each.working for each in use.values()} == {900_000 + 2 * dict(LAYERS)["model.layers.0"]}


def test_a_newer_answer_takes_the_place_of_the_same_question() -> None:
    newer, other = replace(TOLD, kv=(1,)), replace(TOLD, context=7)
    assert with_answer((TOLD, other), newer) == (newer, other)


def test_answers_are_kept_with_the_model_they_are_about() -> None:
    """Events folded: what is told of another folder changes nothing."""
    checked = ModelChecked(MODEL.folder, LAYERS, 28010, told=TOLD)
    state = apply(apply(State(), ModelInspected(MODEL)), decode_event(encode(checked)))
    assert state.model == replace(MODEL, told=(TOLD,))
    assert apply(state, replace(checked, folder="/elsewhere")).model is state.model
