"""A plan's promise: what it says fits really runs, to the last token of the context, within the device's limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from layerlight.bench.random_model import random_llama
from layerlight.core.device import Budget, Device, Machine
from layerlight.core.inspection import inspect_folder
from layerlight.core.job import Job
from layerlight.core.load_request import load_request
from layerlight.core.messages import ChatMessage, Event, RunFinished, RunResult, TextRequest
from layerlight.core.placing import make_plan, require_fit
from layerlight.core.plan import Plan, Wishes
from layerlight.engine.engine import TorchEngine

pytestmark = [pytest.mark.engine, pytest.mark.simulated]

CONTEXT = 512
GIB = 2**30
ATTENTION = ("eager", "sdpa")
Simulator = Callable[..., ModuleType]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    making = tmp_path_factory.mktemp("models") / "llama"
    return random_llama(making, hidden=256, intermediate=704, layers=6, heads=8, key_value_heads=4, context=CONTEXT)


@pytest.fixture
def engine(simulated: Simulator) -> Iterator[TorchEngine]:
    """It lets go of the devices' memory before the simulator takes them away."""
    engine = TorchEngine()
    yield engine
    engine.unload(Job(lambda event: None))


def machine(sim_total: int) -> Machine:
    return Machine(
        (
            Device("sim:0", "sim", "Simulated", sim_total, sim_total),
            Device("cpu", "cpu", "RAM", 8 * GIB, 8 * GIB),
            Device("disk", "disk", "Disk", 99 * GIB, 99 * GIB),
        )
    )


def planned(folder: Path, sim_total: int, attention: str) -> Plan:
    model = inspect_folder(folder)
    return require_fit(make_plan(model, machine(sim_total), Budget(context=CONTEXT), Wishes(attention=attention)))


def whole_context(engine: TorchEngine, plan: Plan) -> RunResult:
    """A prompt that fills the context but for a few tokens, and an answer that reaches its end."""
    events: list[Event] = []
    engine.load(load_request(plan), Job(events.append))
    prompt = ChatMessage("user", "x" * (CONTEXT - 20))
    engine.generate(TextRequest((prompt,), seed=1, max_new_tokens=999, temperature=0), Job(events.append))
    return next(event.result for event in events if isinstance(event, RunFinished))


def least_total(folder: Path, attention: str) -> int:
    """The smallest device on which the plan keeps everything: weights, KV cache and working memory, and its margin."""
    needed = planned(folder, GIB, attention).prediction.use("sim:0").used
    return -(-needed * 20 // 19) + 1


@pytest.mark.parametrize("attention", ATTENTION)
def test_a_device_with_just_the_predicted_room_holds_the_whole_context(
    folder: Path, engine: TorchEngine, simulated: Simulator, attention: str
) -> None:
    total = least_total(folder, attention)
    simulated([total])
    plan = planned(folder, total, attention)
    assert plan.places == ("sim:0",)
    result = whole_context(engine, plan)
    assert result.prompt_tokens + len(result.tokens) == CONTEXT
    assert torch.sim.max_memory_allocated(0) <= total  # type: ignore[attr-defined]


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("share", [0.85, 0.7, 0.5])
def test_with_less_room_layers_move_and_the_whole_context_still_runs(
    folder: Path, engine: TorchEngine, simulated: Simulator, attention: str, share: float
) -> None:
    total = int(least_total(folder, attention) * share)
    simulated([total])
    plan = planned(folder, total, attention)
    assert {placement.rests_on for placement in plan.placements if placement.size} != {"sim:0"}
    result = whole_context(engine, plan)
    assert result.prompt_tokens + len(result.tokens) == CONTEXT


@pytest.mark.parametrize("attention", ATTENTION)
def test_accelerates_own_map_overflows_there(folder: Path, simulated: Simulator, attention: str) -> None:
    """It counts weights only: it fills the device with layers and leaves no room for the cache or the work."""
    from accelerate import infer_auto_device_map
    from transformers import AutoConfig, AutoModelForCausalLM

    total = int(least_total(folder, attention) * 0.7)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
    keys = infer_auto_device_map(
        empty, max_memory={0: total, "cpu": 8 * GIB}, no_split_module_classes=list(empty._no_split_modules)
    )
    simulated([total])
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.bfloat16,
        attn_implementation=attention,
        device_map={name: "sim:0" if place == 0 else place for name, place in keys.items()},
    )
    prompt = torch.full((1, CONTEXT - 20), 65).to("sim:0")
    with pytest.raises(torch.OutOfMemoryError):
        model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False)
