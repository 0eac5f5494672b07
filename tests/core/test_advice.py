"""The verdict in words, over plans of each kind."""

from __future__ import annotations

import pytest

from layerlight.core.advice import Verdict, advise, format_pace
from layerlight.core.device import Budget
from layerlight.core.inspecting.config_model import model_from_config
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
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


MIXTURE = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 500,
    "max_position_embeddings": 256, "num_local_experts": 8, "num_experts_per_tok": 2, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(
    ("pins", "verdict", "words"),
    [
        ((), Verdict.FITS, "All 8 layers fit on CUDA:0"),
        (
            (("*.experts", "cpu"),),
            Verdict.FITS,
            "All 8 layers run on CUDA:0, the experts of 8 of them in RAM on the CPU",
        ),
        ((("*.[0-2].*.experts", "disk"),), Verdict.SLOW, "The experts of 3 of 8 layers are read from disk"),
        ((("model.layers.[0-3]*", "disk"),), Verdict.SLOW, "4 of 8 layers and the experts of 4 are read from disk"),
    ],
)
def test_experts_are_told_apart_from_their_layers(
    pins: tuple[tuple[str, str], ...], verdict: Verdict, words: str
) -> None:
    here = machine(accelerator(), ram(), disk(), rates=(("bus", 1e6), ("handover", 1e-6)))
    plan = make_plan(model_from_config(MIXTURE, "mixtral"), here, CONTEXT, Wishes(pins=(("*", "cuda:0"), *pins)))
    advice = advise(plan)
    assert advice.verdict is verdict
    assert advice.words.startswith(words)
