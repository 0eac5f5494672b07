"""Layers come to rest where the plan wants them, and answer as plain transformers would."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layerlight.core.errors import LayerlightError, OutOfMemory, Stopped
from layerlight.core.messages import (
    LayerPlaced,
    LayerRan,
    LoadProgressed,
    LoadRequest,
    LoadStarted,
    ModelChecked,
    ModelLoaded,
    ModelUnloaded,
    RunFinished,
)
from layerlight.core.plan import Placement
from layerlight.engine.engine import TorchEngine
from tests.engine.events import Events, ask, text_request, wait_for_copies
from tests.engine.tiny_models import CONFIGS, FUSED, machine, plain_tokens, request_for, write_model

Folder = Callable[[str], Path]

LAYOUTS: dict[str, Callable[[int, int], str]] = {
    "all in RAM": lambda index, count: "cpu",
    "half on disk": lambda index, count: "disk" if index % 2 else "cpu",
    "all on disk": lambda index, count: "disk",
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_tokens_equal_plain_transformers_wherever_layers_rest(
    kind: str, dtype: str, engine: TorchEngine, model_folder: Folder
) -> None:
    """B06, A15: RAM, half and all on disk; places and bytes are read from storages and equal the plan's."""
    folder = model_folder(kind)
    expected = plain_tokens(folder, "hello there, world", dtype, 8)
    for name, layout in LAYOUTS.items():
        request = request_for(folder, layout, dtype=dtype, context=32)
        events = Events()
        engine.load(request, events.job())
        loaded = events.last(ModelLoaded)
        with_weights = {each.layer: each for each in request.placements if each.size}
        found = {each.layer: each for each in loaded.placed if each.layer in with_weights}
        assert {layer: (each.rests_on, each.runs_on) for layer, each in found.items()} == {
            layer: (each.rests_on, each.runs_on) for layer, each in with_weights.items()
        }, name
        assert {layer: each.size for layer, each in found.items()} == {
            layer: each.size for layer, each in with_weights.items()
        }, name
        assert dict(events.last(ModelChecked).layers) == {each.layer: each.size for each in loaded.placed}
        assert [each.placed for each in events.of(LayerPlaced)] == list(loaded.placed)
        running = Events()
        engine.generate(text_request(), running.job())
        assert list(running.last(RunFinished).result.tokens) == expected, name
        for activity in running.last(LayerRan).activity:
            on_disk = activity.layer in found and found[activity.layer].rests_on == "disk"
            carried = found[activity.layer].size * activity.passes if on_disk else 0
            tied_head = activity.layer == "lm_head" and activity.layer not in with_weights
            chosen = activity.layer in found and found[activity.layer].mapped and 0 < activity.bytes_moved <= carried
            assert activity.bytes_moved == carried or chosen or (tied_head and activity.bytes_moved >= carried)


def test_fused_experts_on_disk_use_the_offload_folder_and_leave_nothing(
    engine: TorchEngine, model_folder: Folder, tmp_path: Path
) -> None:
    """B01: nobody gave a folder; the engine's own one is used, and is empty again after unloading."""
    own = tmp_path / "home" / "cache" / "offload"
    for kind in FUSED:
        engine.load(request_for(model_folder(kind), LAYOUTS["all on disk"]), Events().job())
        assert [path.suffix for path in own.glob("*/*")].count(".safetensors") == 8, "two fused tensors a layer"
        engine.unload(Events().job())
        assert list(own.iterdir()) == []


@pytest.mark.simulated
@pytest.mark.parametrize(("main", "order"), [("sim:0", "devices first"), ("sim:1", "devices last")])
@pytest.mark.parametrize("kind", ["llama", "tied", "gpt2", "sliding"])
def test_two_devices_ram_and_disk_run_where_the_plan_says(
    kind: str, order: str, main: str, engine: TorchEngine, model_folder: Folder, simulated: Callable[..., object]
) -> None:
    """Layers in RAM and on disk run on the plan's device, whichever accelerate would have taken."""
    simulated([64 << 20, 64 << 20])
    folder = model_folder(kind)
    other = "sim:1" if main == "sim:0" else "sim:0"
    quarters = (main, other, "cpu", "disk") if order == "devices first" else ("cpu", "disk", other, main)
    request = request_for(
        folder,
        lambda index, count: quarters[4 * index // count],
        dtype="bfloat16",
        context=32,
        on=machine("sim:0", "sim:1"),
    )
    request = _run_on(request, main)
    events = Events()
    engine.load(request, events.job())
    placed = {each.layer: (each.rests_on, each.runs_on) for each in events.last(ModelLoaded).placed}
    wanted = {each.layer: (each.rests_on, each.runs_on) for each in request.placements if each.size}
    assert {layer: placed[layer] for layer in wanted} == wanted
    ran: dict[str, str] = {}
    assert engine.loaded is not None
    for layer in wanted:
        module = engine.loaded.model.get_submodule(layer)
        module.register_forward_hook(
            lambda _module, _inputs, output, layer=layer: ran.update(
                {layer: str((output[0] if isinstance(output, tuple) else output).device)}
            )
        )
    assert list(ask(engine).tokens) == plain_tokens(folder, "hello there, world", "bfloat16", 8)
    assert {layer: ran[layer] for layer in wanted} == {layer: runs_on for layer, (_, runs_on) in wanted.items()}


@pytest.mark.simulated
def test_what_is_carried_is_what_the_device_counts(
    engine: TorchEngine, model_folder: Folder, simulated: Callable[..., object]
) -> None:
    """Bytes moved per layer against the simulated bus: weights, and beside them only hidden states and ids."""
    from tests.simulated_accelerator import backend

    simulated([64 << 20])
    request = request_for(
        model_folder("llama"), lambda index, count: "sim:0" if index < 6 else "cpu", on=machine("sim:0")
    )
    engine.load(request, Events().job())
    wait_for_copies(engine)
    backend.reset_transfers(0)
    running = Events()
    engine.generate(text_request(count=4), running.job())
    wait_for_copies(engine)
    moved = sum(activity.bytes_moved for activity in running.last(LayerRan).activity)
    carried = sum(each.size for each in request.placements if each.rests_on == "cpu")
    assert moved == carried * 4
    assert moved <= backend.transfers(0).to_device <= moved * 1.05


@pytest.mark.simulated
def test_a_device_too_small_ends_the_load_and_holds_nothing(
    engine: TorchEngine, model_folder: Folder, simulated: Callable[..., Any]
) -> None:
    """H16: the load overflows for real; what was there goes back, and a plan that fits loads next."""
    sim = simulated([256 << 10])
    everything = request_for(model_folder("llama"), lambda index, count: "sim:0", on=machine("sim:0"))
    with pytest.raises(OutOfMemory, match="to load"):
        engine.load(everything, Events().job())
    assert sim.memory_allocated(0) == 0
    assert engine.loaded is None
    few = request_for(model_folder("llama"), lambda index, count: "sim:0" if index < 3 else "cpu", on=machine("sim:0"))
    engine.load(few, Events().job())
    engine.unload(Events().job())
    assert sim.memory_allocated(0) == 0


def test_layer_one_on_disk_leaves_layer_ten_alone(engine: TorchEngine, model_folder: Folder) -> None:
    """transformers matches names of a map as prefixes: `layers.1` must not catch `layers.10` and `layers.11`."""
    request = request_for(model_folder("llama"), lambda index, count: "cpu", dtype="float32")
    request = _rest_on(request, {"model.layers.1": "disk"})
    events = Events()
    engine.load(request, events.job())
    assert [each.layer for each in events.last(ModelLoaded).placed if each.rests_on == "disk"] == ["model.layers.1"]
    assert list(ask(engine).tokens) == plain_tokens(model_folder("llama"), "hello there, world", "float32", 8)


@pytest.mark.parametrize("shards", [1, 6])
def test_progress_only_rises_and_ends_at_the_whole(shards: int, engine: TorchEngine, tmp_path: Path) -> None:
    """H06: bytes and layers over six shards, from the first to the last."""
    folder = write_model(tmp_path / "model", "llama", shard="40KB" if shards == 6 else "5GB")
    assert (len(list(folder.glob("*.safetensors"))) > 1) == (shards > 1)
    events = Events()
    engine.load(request_for(folder), events.job())
    told = events.of(LoadProgressed)
    started = events.last(LoadStarted)
    for before, after in itertools.pairwise(told):
        assert after.bytes_done >= before.bytes_done
        assert after.layers_done >= before.layers_done
    assert (told[-1].bytes_done, told[-1].layers_done) == (started.bytes_total, started.layers_total)
    assert all(each.bytes_done <= each.bytes_total for each in told)


def test_an_error_in_the_last_shard_ends_the_load(engine: TorchEngine, tmp_path: Path) -> None:
    """H06, E02: the fifth shard is cut short; progress does not go on after that, and nothing stays loaded."""
    folder = write_model(tmp_path / "model", "llama", shard="40KB")
    request = request_for(folder)
    shard = sorted(folder.glob("*.safetensors"))[-1]
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(LayerlightError, match=shard.name):
        engine.load(request, Events().job())
    assert engine.loaded is None


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_cancelled_at_half_then_loaded_again(
    layout: str, engine: TorchEngine, model_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F13: cancel at 50 %, load again, unload twice."""
    monkeypatch.setattr("layerlight.engine.progress.TELLING_INTERVAL", 0.0)
    request = request_for(model_folder("llama"), LAYOUTS[layout])
    events = Events()

    def at_half(progress: LoadProgressed) -> None:
        if progress.stage == "Loading weights" and progress.bytes_done >= progress.bytes_total // 2:
            events.stop.set()

    events.when(LoadProgressed, at_half)
    with pytest.raises(Stopped):
        engine.load(request, events.job())
    assert events.last(LoadProgressed).layers_done < events.last(LoadProgressed).layers_total
    assert engine.loaded is None
    engine.load(request, Events().job())
    assert list(ask(engine).tokens) == plain_tokens(model_folder("llama"), "hello there, world", "float32", 8)
    for _ in range(2):
        unloading = Events()
        engine.unload(unloading.job())
        assert unloading.of(ModelUnloaded)
    assert engine.loaded is None


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_unloading_frees_the_model_at_once(layout: str, engine: TorchEngine, model_folder: Folder) -> None:
    """B10: hooks make cycles; nothing may wait for a later collection."""
    engine.load(request_for(model_folder("llama"), LAYOUTS[layout]), Events().job())
    ask(engine)
    assert engine.loaded is not None
    model = weakref.ref(engine.loaded.model)
    weight = weakref.ref(next(engine.loaded.model.parameters()))
    engine.unload(Events().job())
    assert model() is None
    assert weight() is None


def test_another_dtype_is_a_clean_reload(engine: TorchEngine, model_folder: Folder) -> None:
    """B03: an offloaded model is never moved or cast in place."""
    for dtype in ("float32", "bfloat16", "float16"):
        events = Events()
        engine.load(request_for(model_folder("tied"), LAYOUTS["half on disk"], dtype=dtype), events.job())
        assert {each.dtype for each in events.last(ModelLoaded).placed if each.size} == {dtype}
        assert len(ask(engine).tokens) == 8


def test_odd_paths_and_read_only_folders(engine: TorchEngine, tmp_path: Path) -> None:
    """E10, E11: odd characters in model and offload folder; nothing is written beside the model."""
    folder = write_model(tmp_path / "模型 é 📦 100%#?", "mixtral")
    before = sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir())
    offload = tmp_path / "ausgelagert ü 📦 %23"
    engine.load(request_for(folder, LAYOUTS["all on disk"], offload_folder=offload), Events().job())
    assert len(ask(engine).tokens) == 8
    assert list(offload.iterdir())
    engine.unload(Events().job())
    assert list(offload.iterdir()) == []
    assert sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()) == before


def _rest_on(request: LoadRequest, places: dict[str, str]) -> LoadRequest:
    return _placed(request, lambda each: replace(each, rests_on=places.get(each.layer, each.rests_on)))


def _run_on(request: LoadRequest, main: str) -> LoadRequest:
    """The same request with layers in RAM and on disk running on `main`."""
    return _placed(
        request, lambda each: replace(each, runs_on=main if each.rests_on in ("cpu", "disk") else each.runs_on)
    )


def _placed(request: LoadRequest, change: Callable[[Placement], Placement]) -> LoadRequest:
    return replace(request, placements=tuple(change(each) for each in request.placements))


def test_the_peak_is_told_over_what_the_engine_holds_itself(engine: TorchEngine, tmp_path: Path) -> None:
    """What a plan predicts for a place: the rise over the warmed engine, whichever load it is."""
    folder = write_model(tmp_path / "model", "tied", hidden_size=512, intermediate_size=2048, num_hidden_layers=4)
    for _ in range(2):
        events = Events()
        engine.load(request_for(folder), events.job())
        loaded = events.last(ModelLoaded)
        (ram,) = [place for place in loaded.memory if place.place == "cpu"]
        assert ram.peak is not None
        assert ram.before is not None
        assert ram.process is not None
        assert 0 < ram.before < ram.process
        assert ram.rise == ram.peak - ram.before
        if sys.platform == "linux":
            assert ram.rise > 0.9 * ram.model
            assert ram.rise < ram.peak / 2
        assert all(place.rise in (None, 0) for place in loaded.memory if place.place != "cpu")
