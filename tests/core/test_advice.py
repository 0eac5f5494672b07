"""The verdict in words, over plans of each kind."""

from __future__ import annotations

import pytest

from layerlight.core.advice import Verdict, advise, format_pace
from layerlight.core.device import Budget
from layerlight.core.placing import make_plan
from tests.core.models import MIB, accelerator, dense, disk, machine, ram

MODEL = dense(layers=8, hidden=256, intermediate=512)
CONTEXT = Budget(context=256)


def test_a_model_on_one_device_fits() -> None:
    advice = advise(make_plan(MODEL, machine(accelerator(), ram()), CONTEXT))
    assert advice.verdict is Verdict.FITS
    assert "8 layers" in advice.words
    assert "CUDA:0" in advice.words


def test_a_model_in_ram_is_said_to_run_on_the_cpu() -> None:
    advice = advise(make_plan(MODEL, machine(), CONTEXT))
    assert "CPU" in advice.words
    assert advice.wishes is None, "4-bit on a CPU is no speed-up"


def test_layers_read_from_disk_are_counted_and_priced() -> None:
    used = make_plan(MODEL, machine(), CONTEXT).prediction.use("cpu").used
    advice = advise(make_plan(MODEL, machine(), Budget.of([("cpu", used - 4 * MIB)], 256)))
    assert advice.verdict is Verdict.SLOW
    assert "of 8 layers are read from disk for every token" in advice.words


def test_quantising_is_offered_where_it_makes_everything_fit() -> None:
    big = dense(layers=8, hidden=1024, intermediate=4096)
    plan = make_plan(big, machine(accelerator(free=140 * MIB), ram(), disk()), CONTEXT)
    advice = advise(plan)
    assert advice.verdict is Verdict.SLOW
    assert "carried from RAM" in advice.words
    assert advice.wishes is not None
    better = make_plan(big, plan.machine, plan.budget, advice.wishes)
    assert better.fits
    assert better.prediction.seconds_per_token < plan.prediction.seconds_per_token


def test_what_does_not_fit_says_what_would() -> None:
    advice = advise(make_plan(MODEL, machine(), Budget.of([("cpu", MIB), ("disk", 0)], 256)))
    assert advice.verdict is Verdict.FAILED
    assert "MiB" in advice.words
    assert advice.hint


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(40.2, "about 40 s a token"), (0.63, "about 0.6 s a token"), (0.05, "about 20 tokens a second"), (0, "at once")],
)
def test_paces(seconds: float, words: str) -> None:
    assert format_pace(seconds) == words
