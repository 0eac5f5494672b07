"""What rests in RAM or on disk is computed there by the CPU, beside accelerators: same tokens, and no weights cross."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from layerlight.core.device import Budget
from layerlight.core.inspection import inspect_folder
from layerlight.core.load_request import load_request
from layerlight.core.messages import LayerRan, LoadRequest, ModelChecked, ModelLoaded
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
from layerlight.engine.engine import TorchEngine
from tests.engine.events import Events, ask, text_request
from tests.engine.tiny_models import machine, plain_tokens, request_for, write_model

Folder = Callable[[str], Path]

WAYS: dict[str, Callable[[float], str]] = {
    "the middle on disk": lambda share: "disk" if 1 / 3 <= share < 2 / 3 else "sim:0",
    "RAM, disk and two devices": lambda share: ("cpu", "disk", "sim:0", "sim:1")[int(4 * share)],
}
"""Where a layer rests that comes after this share of them."""


def in_place(folder: Path, layout: Callable[[float], str], dtype: str = "float32") -> LoadRequest:
    """What rests in RAM or on disk is run there by the CPU; experts rest and run where their layer does."""
    request = request_for(folder, dtype=dtype, context=32, on=machine("sim:0", "sim:1"))
    whole = [each.layer for each in request.placements if not each.layer.endswith(".experts")]
    places = {layer: layout(index / len(whole)) for index, layer in enumerate(whole)}
    if not request.placements[-1].size:  # a head that is tied to its table
        places["lm_head"] = places["model.embed_tokens"]
    placements = []
    for each in request.placements:
        rests = places[each.layer.removesuffix(".mlp.experts")]
        placements.append(replace(each, rests_on=rests, runs_on=rests if rests.startswith("sim") else "cpu"))
    return replace(request, placements=tuple(placements))


@pytest.mark.simulated
@pytest.mark.parametrize(("kind", "dtype"), [("llama", "bfloat16"), ("tied", "float32"), ("qwen3_moe", "float32")])
@pytest.mark.parametrize("way", WAYS)
def test_layers_are_computed_where_they_rest(
    kind: str, dtype: str, way: str, engine: TorchEngine, model_folder: Folder, simulated: Callable[..., object]
) -> None:
    """Shows 2: places are measured, and of what the CPU computes beside the devices only disk is read."""
    simulated([64 << 20, 64 << 20])
    folder = model_folder(kind)
    request = in_place(folder, WAYS[way], dtype)
    events = Events()
    engine.load(request, events.job())
    wanted = {each.layer: (each.rests_on, each.runs_on, each.size) for each in request.placements if each.size}
    found = {each.layer: (each.rests_on, each.runs_on, each.size) for each in events.last(ModelLoaded).placed}
    assert {layer: found[layer] for layer in wanted} == wanted
    assert dict(events.last(ModelChecked).layers) == {layer: size for layer, (_, _, size) in found.items()}
    running = Events()
    engine.generate(text_request(), running.job())
    assert list(ask(engine).tokens) == plain_tokens(folder, "hello there, world", dtype, 8)
    assert engine.loaded is not None
    for each in running.last(LayerRan).activity:
        rests, _, size = wanted.get(each.layer, ("", "", 0))
        assert each.bytes_moved <= (size * each.passes if rests == "disk" else 0)
        assert bool(each.bytes_moved) is (rests == "disk")


@pytest.mark.simulated
@pytest.mark.parametrize("rests", ["cpu", "disk"])
def test_only_activations_cross(
    rests: str, engine: TorchEngine, model_folder: Folder, simulated: Callable[..., object]
) -> None:
    """Shows 6: however many layers the CPU computes, of weights no byte crosses, and hidden states do once each way."""
    from tests.simulated_accelerator import backend

    simulated([64 << 20])
    crossed = []
    for last in (5, 11):
        request = in_place(model_folder("llama"), lambda index, last=last: rests if 3 <= 15 * index < last else "sim:0")
        engine.load(request, Events().job())
        ask(engine)
        backend.reset_transfers(0)
        ask(engine, "another one")
        crossed.append(backend.transfers(0))
    layer = next(each.size for each in request.placements if each.runs_on == "cpu")
    assert all(each.to_device + each.from_device < layer for each in crossed), "less in eight passes than one layer"
    assert crossed[1].to_device_count <= crossed[0].to_device_count
    assert crossed[1].from_device_count <= crossed[0].from_device_count, "cosines and masks once a pass"


@pytest.mark.simulated
def test_a_plan_that_computes_in_place_keeps_the_devices_room(
    engine: TorchEngine, tmp_path: Path, simulated: Callable[..., object]
) -> None:
    """The planner's own choice beside a small device: what it predicts there holds, to the peak."""
    from tests.simulated_accelerator import backend

    folder = write_model(tmp_path / "model", "llama", hidden_size=128, intermediate_size=512)
    model = inspect_folder(folder)
    wishes = Wishes(dtype="float32")
    context = Budget(context=32)
    rates = (("cpu", 20e9), ("matrix:cpu:float32", 1e12), ("bus", 1e8))
    whole = make_plan(model, machine("sim:0"), context, wishes).prediction.use("sim:0")
    limited = Budget.of([("sim:0", whole.working + (whole.used - whole.working) * 6 // 10)], context=32)
    plan = make_plan(model, replace(machine("sim:0"), bandwidths=rates), limited, wishes)
    assert {each.runs_on for each in plan.placements} == {"sim:0", "cpu"}
    simulated([64 << 20])
    engine.load(load_request(plan), Events().job())
    assert list(ask(engine).tokens) == plain_tokens(folder, "hello there, world", "float32", 8)
    assert backend.max_memory_allocated(0) <= plan.prediction.use("sim:0").used
