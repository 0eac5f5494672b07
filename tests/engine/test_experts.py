"""Experts rest and run apart from their layer: from RAM and from disk, beside one accelerator and two, same tokens."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from layerlight.core.errors import MapMismatch
from layerlight.core.inspection import inspect_folder
from layerlight.core.messages import LayerRan, LoadRequest, ModelChecked, ModelLoaded
from layerlight.core.model import LayerKind
from layerlight.engine.device_map import experts_staying
from layerlight.engine.engine import TorchEngine
from layerlight.engine.file_pages import FileViews
from layerlight.engine.places import place_name
from tests.engine.events import Events, ask, text_request
from tests.engine.tiny_models import FUSED, machine, plain_tokens, request_for

Folder = Callable[[str], Path]

WAYS: dict[str, tuple[str, str, str]] = {
    "stay in RAM": ("sim:0", "cpu", "cpu"),
    "stay on disk": ("sim:0", "disk", "cpu"),
    "carried from RAM": ("sim:0", "cpu", "sim:0"),
    "carried from disk": ("sim:0", "disk", "sim:0"),
    "stay in RAM beside the second device": ("sim:1", "cpu", "cpu"),
    "on the device that carries the rest": ("cpu", "sim:0", "sim:0"),
}
"""Where every second layer rests, where all experts rest, and where those run; other layers rest on sim:0."""


def apart(folder: Path, rests: str, experts: str, runs: str) -> LoadRequest:
    kinds = {layer.name: layer for layer in inspect_folder(folder).layers}
    names = list(kinds)

    def place(index: int, _count: int) -> str:
        layer = kinds[names[index]]
        if layer.kind is LayerKind.EXPERTS:
            return experts
        return rests if (layer.index or 0) % 2 else "sim:0"

    request = request_for(folder, place, context=32, on=machine("sim:0", "sim:1"))
    return replace(
        request,
        placements=tuple(
            replace(each, runs_on=runs) if kinds[each.layer].kind is LayerKind.EXPERTS else each
            for each in request.placements
        ),
    )


@pytest.mark.simulated
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", FUSED)
def test_experts_rest_and_run_where_the_plan_says(
    kind: str, way: str, engine: TorchEngine, model_folder: Folder, simulated: Callable[..., object]
) -> None:
    """A12: places are read from storages, devices from what experts really compute with."""
    simulated([64 << 20, 64 << 20])
    folder = model_folder(kind)
    request = apart(folder, *WAYS[way])
    events = Events()
    engine.load(request, events.job())
    wanted = {each.layer: (each.rests_on, each.runs_on, each.size) for each in request.placements if each.size}
    found = {each.layer: (each.rests_on, each.runs_on, each.size) for each in events.last(ModelLoaded).placed}
    assert {layer: found[layer] for layer in wanted} == wanted
    assert dict(events.last(ModelChecked).layers) == {layer: size for layer, (_, _, size) in found.items()}
    assert engine.loaded is not None
    computed: set[str] = set()
    mapped: set[bool] = set()
    experts = [each.layer for each in request.placements if each.layer.endswith(".experts")]
    for layer in experts:
        watched = engine.loaded.model.get_submodule(layer)

        def seen(_module: object, inputs: tuple[torch.Tensor], experts: torch.nn.Module = watched) -> None:
            computed.add(place_name(inputs[0].device))
            mapped.add(FileViews().at(experts.down_proj.data_ptr()) is not None)

        watched.act_fn.register_forward_pre_hook(seen)
    running = Events()
    engine.generate(text_request(), running.job())
    assert list(ask(engine).tokens) == plain_tokens(folder, "hello there, world", "float32", 8)
    assert computed == {WAYS[way][2]}
    if sys.platform == "linux":  # elsewhere the system does not tell
        assert mapped == {WAYS[way][1:] == ("disk", "cpu")}, "of a file's own pages those of chosen experts are read"
    moved = {each.layer: each.bytes_moved / each.passes for each in running.last(LayerRan).activity if each.passes}
    for layer in experts:
        rests, runs, size = wanted[layer]
        if (rests, runs) == ("disk", "cpu") and sys.platform != "win32":
            assert 0 < moved[layer] <= size, "the chosen ones only"
        else:
            assert moved[layer] == (size if rests == "disk" or rests != runs else 0)


def test_experts_on_another_accelerator_are_refused(model_folder: Folder) -> None:
    request = apart(model_folder("mixtral"), *WAYS["stay in RAM"])
    assert len(experts_staying(request)) == 4
    elsewhere = replace(
        request,
        placements=tuple(
            replace(each, rests_on="sim:1", runs_on="sim:1") if each.layer.endswith(".experts") else each
            for each in request.placements
        ),
    )
    with pytest.raises(MapMismatch, match="its experts would run on sim:0 and sim:1"):
        experts_staying(elsewhere)
