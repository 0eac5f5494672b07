"""Earlier runs correct the next prediction: the same one wholly, others of its kind by their median."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from layerlight.core.advice import lookup_words
from layerlight.core.device import Budget
from layerlight.core.messages import Drafts, ModelLoaded, PlaceMemory, RunResult
from layerlight.core.pacing.correction import (
    FEW_TOKENS,
    LEAST,
    MOST,
    RECENT,
    Pace,
    Peak,
    Run,
    corrected,
    kind_of,
    model_identity,
    plan_identity,
    run_of,
    uncorrected,
)
from layerlight.core.placing import make_plan
from layerlight.core.plan import UNCORRECTED, Plan, Wishes
from tests.core.models import dense, disk, machine, ram

HERE = machine(ram(), disk())


def plan(layers: int = 4, context: int = 128, wishes: Wishes | None = None) -> Plan:
    model = replace(dense(layers), folder=f"/models/{layers}")
    return make_plan(model, HERE, Budget(context=context), wishes)


def answered(tokens: int = 20, pace: float | None = 4.0, prompt: int = 30, first: float | None = 0.6) -> RunResult:
    memory = (PlaceMemory("cpu", None, None, 10, peak=20, before=8),)
    return RunResult("x", tuple(range(tokens)), prompt, 0, "length", 9.0, first, pace, memory=memory)


def ran(of: Plan, times: float, when: float = 0.0) -> Run:
    """A run that took so many times what was predicted."""
    run = run_of(of, ModelLoaded("", 1.0, (), ()), answered(), when)
    return replace(
        run,
        measured=Pace(
            times * (run.predicted.load or 0),
            times * (run.predicted.per_token or 0),
            times * (run.predicted.per_prompt_token or 0),
        ),
    )


def seconds(of: Plan) -> tuple[float, float, float, float]:
    found = of.prediction
    return found.seconds_per_token, found.prefill_seconds, found.load_seconds, found.workload_seconds


def test_the_same_model_in_the_same_placement_takes_what_it_took_last_time() -> None:
    runs = [ran(plan(), 3.0), ran(plan(), 0.5)]
    found = corrected(plan(), runs)
    assert seconds(found) == pytest.approx([3 * each for each in seconds(plan())])
    assert found.prediction.correction.last_time == pytest.approx(3 * plan().prediction.seconds_per_token)
    assert found.prediction.correction.runs == 2
    layers = [3 * each for _, each in plan().prediction.seconds_per_layer]
    assert [each for _, each in found.prediction.seconds_per_layer] == pytest.approx(layers)


def test_another_model_is_corrected_by_the_median_of_recent_runs() -> None:
    runs = [ran(plan(5), 3.0), ran(plan(6), 1.5), ran(plan(5), 2.0), *(ran(plan(5), 0.3) for _ in range(RECENT - 3))]
    found = corrected(plan(), runs[:3])
    assert seconds(found) == pytest.approx([2 * each for each in seconds(plan())])
    assert found.prediction.correction.last_time is None
    older = corrected(plan(), [*([ran(plan(5), 1.0)] * RECENT), *([ran(plan(5), 4.0)] * 50)])
    assert seconds(older) == pytest.approx(seconds(plan())), "what was long ago counts no more"


@pytest.mark.parametrize(("times", "by"), [(1000.0, MOST), (1e-6, LEAST)])
def test_runs_of_other_models_move_a_prediction_only_so_far(times: float, by: float) -> None:
    assert seconds(corrected(plan(), [ran(plan(5), times)])) == pytest.approx([by * each for each in seconds(plan())])


def test_runs_between_other_places_or_on_other_machines_say_nothing() -> None:
    names = [layer.name for layer in plan().model.layers]
    on_disk = plan(wishes=Wishes(map=tuple((name, "cpu" if "layers" not in name else "disk") for name in names)))
    assert kind_of(on_disk) != kind_of(plan())
    elsewhere = replace(ran(plan(), 2.0), machine="another")
    assert corrected(plan(), [ran(on_disk, 2.0), elsewhere]) == plan()
    assert corrected(plan(), []) == plan()


def test_a_correction_is_never_corrected_again() -> None:
    once = corrected(plan(), [ran(plan(), 3.0)])
    twice = corrected(once, [ran(once, 3.0)])
    assert seconds(twice) == pytest.approx(seconds(once))
    assert seconds(uncorrected(once)) == pytest.approx(seconds(plan()))
    assert uncorrected(once).prediction.correction == UNCORRECTED
    assert run_of(once, None, answered(), 0.0).predicted.per_token == pytest.approx(plan().prediction.seconds_per_token)


def test_a_run_keeps_what_was_seen_and_nothing_else() -> None:
    run = run_of(plan(), ModelLoaded("", 1.5, (), ()), answered(), 7.0)
    assert run.measured == Pace(1.5, 0.25, pytest.approx(0.02))
    assert (run.prompt_tokens, run.answer_tokens, run.when) == (30, 20, 7.0)
    assert Peak("cpu", plan().prediction.use("cpu").used, 12) in run.peaks
    again = run_of(plan(), None, answered(), 8.0)
    assert again.measured.load is None
    short = run_of(plan(), None, answered(FEW_TOKENS, prompt=FEW_TOKENS), 9.0)
    assert short.measured == Pace(None, None, None)
    assert run_of(plan(), None, answered(20, None, 30, None), 9.0).measured == Pace(None, None, None)


def test_tokens_that_were_kept_took_no_time() -> None:
    """The seconds go to what was computed; with next to nothing computed they say nothing."""
    kept = replace(answered(prompt=130), reused=100)
    assert run_of(plan(), None, kept, 0.0).measured.per_prompt_token == pytest.approx(0.02)
    assert run_of(plan(), None, replace(kept, reused=130 - FEW_TOKENS), 0.0).measured.per_prompt_token is None


def test_a_run_whose_memory_ran_out_is_no_measure() -> None:
    assert run_of(plan(), None, replace(answered(), recomputed=40), 0.0).measured == Pace(None, None, None)


def test_what_prompt_lookup_gave_is_told_of_the_same_model_and_corrects_no_seconds() -> None:
    """A token is no pass there: such runs say nothing of a pace, and what they gave hangs on no placement."""
    drafted = run_of(plan(), None, replace(answered(), drafts=Drafts(10, 40, 8)), 0.0)
    assert (drafted.measured.per_token, drafted.tokens_a_pass) == (None, 1.8)
    few = run_of(plan(), None, replace(answered(), drafts=Drafts(FEW_TOKENS - 1, 40, 8)), 0.0)
    assert few.tokens_a_pass is None
    elsewhere = replace(drafted, plan="another", kind="disk>cpu")
    for before in (drafted, elsewhere):
        found = corrected(plan(), [few, before])
        assert found.prediction.correction.tokens_a_pass == 1.8
        assert found.prediction.seconds_per_token == pytest.approx(plan().prediction.seconds_per_token)
        assert lookup_words(found) == "With prompt lookup a pass gave 1.8 tokens last time."
        assert uncorrected(found).prediction.correction == UNCORRECTED
    assert corrected(plan(), [replace(drafted, model="another")]).prediction.correction.tokens_a_pass is None
    assert lookup_words(plan()) == ""


def test_a_run_without_a_pace_leaves_the_one_before_it() -> None:
    silent = replace(ran(plan(), 9.0), measured=Pace(load=1.0))
    found = corrected(plan(), [silent, ran(plan(), 2.0)])
    assert found.prediction.correction.last_time == pytest.approx(2 * plan().prediction.seconds_per_token)


def test_identities_tell_what_bears_on_speed_apart(tmp_path: Path) -> None:
    plans = [
        plan(),
        plan(5),
        plan(context=64),
        plan(wishes=Wishes(dtype="float32")),
        plan(wishes=Wishes(attention="eager")),
        plan(wishes=Wishes(quantization="nf4")),
    ]
    assert len({(model_identity(each.model), plan_identity(each)) for each in plans}) == len(plans)
    (tmp_path / "a.safetensors").write_bytes(b"1")
    model = replace(dense(), folder=str(tmp_path), files=("a.safetensors",))
    before = model_identity(model)
    (tmp_path / "a.safetensors").write_bytes(b"12")
    assert model_identity(model) != before, "other weights in the same folder"
    assert model_identity(replace(model, folder=f"{tmp_path}/\udce9")) != before
