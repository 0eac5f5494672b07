"""Shows 5: at ten limits, from one that holds nothing to one that holds all, plans run and leave no room unused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch

from layerlight.bench.random_model import random_llama
from layerlight.core.device import Budget, Device, Machine
from layerlight.core.inspection import inspect_folder
from layerlight.core.job import Job
from layerlight.core.load_request import load_request
from layerlight.core.messages import ChatMessage, Event, ModelLoaded, RunFinished, TextRequest
from layerlight.core.model import Model
from layerlight.core.placing import make_plan, require_fit
from layerlight.core.plan import PREFILL_CHUNK, Plan, Wishes
from layerlight.core.unused_room import fuller_plans
from layerlight.engine.checking import check
from layerlight.engine.engine import TorchEngine

pytestmark = [pytest.mark.engine, pytest.mark.simulated]

CONTEXT = PREFILL_CHUNK + 2
"""A prompt of one whole chunk, and two tokens of an answer."""
LIMITS = 10
SLOW_CPU = (("cpu", 1e7), ("bus", 1e11))
"""So slow that what has no room on the device is carried there, rather than computed in RAM."""
GIB = 2**30
DEVICE = "sim:0"
Simulator = Callable[..., ModuleType]


@dataclass(frozen=True)
class Swept:
    """What a whole context took on a device of this size."""

    total: int
    plan: Plan
    peak: int
    tokens: int

    @property
    def in_place(self) -> bool:
        """Whether the CPU computes what has no room on the device."""
        return any(each.runs_on == "cpu" for each in self.plan.placements)

    @property
    def left_out(self) -> list[int]:
        """Bytes that each unit which rests elsewhere would bring to the device."""
        return [each.size for each in self.plan.placements if each.size and each.rests_on != DEVICE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    making = tmp_path_factory.mktemp("models") / "llama"
    return random_llama(making, hidden=256, intermediate=704, layers=6, heads=8, key_value_heads=4, context=CONTEXT)


@pytest.fixture(scope="module")
def warm() -> TorchEngine:
    return TorchEngine()


@pytest.fixture
def engine(warm: TorchEngine, simulated: Simulator) -> Iterator[TorchEngine]:
    """It lets go of the devices' memory before the simulator takes them away."""
    yield warm
    warm.unload(Job(lambda event: None))


def planned(model: Model, total: int, attention: str, **wishes: object) -> Plan:
    machine = Machine(
        (
            Device(DEVICE, "sim", "Simulated", total, total),
            Device("cpu", "cpu", "RAM", 8 * GIB, 8 * GIB),
            Device("disk", "disk", "Disk", 99 * GIB, 99 * GIB),
        ),
        SLOW_CPU,
    )
    asked = Wishes(attention=attention, **wishes)  # type: ignore[arg-type]
    return make_plan(model, machine, Budget(context=CONTEXT), asked)


@cache
def told(folder: Path, attention: str) -> Model:
    """The model with what the libraries say of it, as it is once an engine has looked."""
    model = inspect_folder(folder)
    answer = check(load_request(planned(model, GIB, attention))).checked.told
    assert answer is not None
    return replace(model, told=(answer,))


def totals(model: Model, attention: str) -> list[int]:
    """Sizes of devices: a little less than a norm needs there, all else carried, and evenly on to what all needs."""
    alone = planned(model, GIB, attention, pins=(("model.*", "cpu"), ("lm_head", "cpu"), ("model.norm", DEVICE)))
    all_there = planned(model, GIB, attention)
    first, last = (-(-plan.prediction.use(DEVICE).used * 20 // 19) + 1 for plan in (alone, all_there))
    return [first - 4096 + (last - first + 4096) * step // (LIMITS - 1) for step in range(LIMITS)]


def whole_context(engine: TorchEngine, plan: Plan, total: int) -> Swept:
    events: list[Event] = []
    torch.sim.reset_peak_memory_stats(0)  # type: ignore[attr-defined]
    engine.load(load_request(plan), Job(events.append))
    prompt = ChatMessage("user", "x" * PREFILL_CHUNK)
    engine.generate(TextRequest((prompt,), seed=1, max_new_tokens=999, temperature=0), Job(events.append))
    result = next(event.result for event in events if isinstance(event, RunFinished))
    placed = {each.layer: each.rests_on for event in events if isinstance(event, ModelLoaded) for each in event.placed}
    assert {name: placed[name] for name, _ in plan.device_map().items() if name in placed} == plan.device_map()
    peak = torch.sim.max_memory_allocated(0)  # type: ignore[attr-defined]
    return Swept(total, plan, peak, result.prompt_tokens + len(result.tokens))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("step", range(LIMITS))
def test_at_each_limit_the_whole_context_runs_and_no_room_is_wasted(
    folder: Path, engine: TorchEngine, simulated: Simulator, attention: str, step: int
) -> None:
    model = told(folder, attention)
    total = totals(model, attention)[step]
    simulated([total])
    plan = require_fit(planned(model, total, attention))
    swept = whole_context(engine, plan, total)
    assert swept.tokens == CONTEXT
    assert swept.peak <= total
    use = plan.prediction.use(DEVICE)
    if swept.in_place:  # the room for the head's numbers is kept, which lies in RAM then
        assert swept.peak <= use.used
    else:
        assert abs(use.used - swept.peak) <= 0.005 * swept.peak
    assert swept.in_place is (step == 0), "the device has no room for the buffers of what is carried"
    assert (not swept.left_out) is (step == LIMITS - 1)
    if not swept.in_place and swept.left_out:
        assert total - swept.peak <= use.margin + min(swept.left_out)
    fuller = list(fuller_plans(plan, DEVICE))
    assert bool(fuller) is bool(swept.left_out)
    assert all(each.is_refuted for each in fuller)
