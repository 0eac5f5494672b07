"""The real starter model: plain transformers' tokens wherever layers rest, and quantised bytes as planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from layerlight.core.device import Budget
from layerlight.core.inspection import inspect_folder
from layerlight.core.load_request import load_request
from layerlight.core.messages import LayerRan, LoadRequest, ModelLoaded, PlacedLayer, RunFinished
from layerlight.core.placing import make_plan, require_fit
from layerlight.core.plan import Plan, Wishes
from layerlight.core.planning.runtime import STAGING_BUFFERS
from layerlight.engine.engine import TorchEngine
from layerlight.engine.survey import survey_machine
from tests.engine.events import Events, text_request
from tests.engine.plain_reference import reference

pytestmark = [pytest.mark.engine, pytest.mark.starter]

PROMPTS = (
    "What is the capital of France?",
    "What is 7 plus 5?",
    "Write one sentence about the sea.",
    "Name three colours.",
    "Who wrote Hamlet?",
)
COUNT = 6
MIB = 2**20


@pytest.fixture
def engine(
    simulated: Callable[..., ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TorchEngine]:
    """It lets go of the devices' memory before the simulator takes them away."""
    monkeypatch.setenv("LAYERLIGHT_HOME", str(tmp_path))
    made = TorchEngine()
    yield made
    made.unload(Events().job())


def planned(folder: Path, dtype: str, attention: str, places: Callable[[int], str] | None = None) -> Plan:
    """A plan for a context of 256; `places` gives each decoder layer's place by hand, the rest stays on the first."""
    model = inspect_folder(folder)
    wishes = Wishes(dtype=dtype, attention=attention)
    if places is not None:
        first = places(0)
        by_hand = tuple((each.name, first if each.index is None else places(each.index)) for each in model.layers)
        wishes = replace(wishes, map=by_hand)
    return require_fit(make_plan(model, survey_machine(), Budget(context=256), wishes))


def answers(engine: TorchEngine, request: LoadRequest) -> tuple[tuple[PlacedLayer, ...], list[list[int]], Events]:
    loading, running = Events(), Events()
    engine.load(request, loading.job())
    for prompt in PROMPTS:
        engine.generate(text_request(prompt, COUNT), running.job())
    tokens = [list(each.result.tokens) for each in running.of(RunFinished)]
    return loading.last(ModelLoaded).placed, tokens, running


@pytest.mark.simulated
@pytest.mark.parametrize(("dtype", "attention"), [("bfloat16", "eager"), ("float32", "sdpa")])
def test_the_same_tokens_wherever_the_layers_rest(
    dtype: str, attention: str, starter_folder: Path, engine: TorchEngine, simulated: Callable[..., ModuleType]
) -> None:
    expected = reference(starter_folder, dtype, attention, COUNT, PROMPTS)
    layouts: dict[str, Callable[[int], str]] = {
        "in RAM": lambda index: "cpu",
        "half on disk": lambda index: "cpu" if index < 15 else "disk",
        "two devices and RAM": lambda index: "sim:0" if index < 10 else "sim:1" if index < 20 else "cpu",
    }
    for name, layout in layouts.items():
        sim = simulated([700 * MIB, 400 * MIB] if "devices" in name else [])
        plan = planned(starter_folder, dtype, attention, layout)
        placed, tokens, running = answers(engine, load_request(plan))
        assert tokens == expected, name
        found = {each.layer: (each.rests_on, each.runs_on, each.size) for each in placed if each.size}
        wanted = {each.layer: (each.rests_on, each.runs_on, each.size) for each in plan.placements if each.size}
        assert found == wanted, name
        if "devices" in name:
            resting: Counter[str] = Counter()
            for each in placed:
                resting[each.rests_on] += each.size
            engine.kept.drop()  # the last answer's cache lies there too
            resting["sim:0"] += STAGING_BUFFERS * wanted["model.layers.20"][2]  # what lies in RAM comes there
            for index in range(2):
                held = sim.memory_allocated(index) - resting[f"sim:{index}"]
                assert 0 <= held < MIB, "the device's own counter agrees: weights, and small buffers beside them"
            last = running.last(LayerRan)
            carried = {each.layer: each.bytes_moved / each.passes for each in last.activity if each.bytes_moved}
            assert carried == {f"model.layers.{index}": wanted[f"model.layers.{index}"][2] for index in range(20, 30)}
        engine.unload(Events().job())


def test_it_answers_paris(starter_folder: Path, engine: TorchEngine) -> None:
    engine.load(load_request(planned(starter_folder, "bfloat16", "sdpa")), Events().job())
    running = Events()
    engine.generate(text_request(PROMPTS[0], 16), running.job())
    assert "Paris" in running.last(RunFinished).result.text


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_quantised_it_weighs_what_the_plan_says(quantization: str, starter_folder: Path, engine: TorchEngine) -> None:
    """Measured from storages, absmax included, within 1 % of the prediction."""
    model = inspect_folder(starter_folder)
    plan = make_plan(model, survey_machine(), Budget(context=256), Wishes(quantization=quantization))
    loading = Events()
    engine.load(load_request(plan), loading.job())
    measured = sum(each.size for each in loading.last(ModelLoaded).placed)
    assert abs(measured - plan.bytes_on("cpu")) <= 0.01 * measured
    assert measured < 0.62 * model.size
