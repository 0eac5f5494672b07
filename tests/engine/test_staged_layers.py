"""Layers that an accelerator runs away from where they rest: each byte crosses once a pass, with the same answers."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from layerlight.core.errors import OutOfMemory, RunFailed, Stopped
from layerlight.core.messages import LayerRan, LoadRequest, ModelLoaded, RunFinished, TextProduced
from layerlight.core.planning.runtime import STAGING_BUFFERS
from layerlight.engine.engine import TorchEngine
from layerlight.engine.places import offloaded
from layerlight.engine.staged_layers import StagedLayers
from layerlight.engine.staging.lanes import OneQueue, Streams, lanes_of
from layerlight.engine.staging.pinned_buffer import PinnedBuffer
from tests.engine.events import Events, ask, text_request, wait_for_copies
from tests.engine.tiny_models import machine, plain_tokens, request_for, write_model

pytestmark = [pytest.mark.engine, pytest.mark.simulated]

Folder = Callable[[str], Path]
Simulator = Callable[..., ModuleType]
DEVICE = "sim:0"


def away(folder: Path, *rests: str, dtype: str = "float32") -> LoadRequest:
    """Layers rest in these places, as many in each, and sim:0 runs them all."""
    request = request_for(
        folder, lambda index, count: rests[len(rests) * index // count], dtype=dtype, context=32, on=machine(DEVICE)
    )
    return replace(request, placements=tuple(replace(each, runs_on=DEVICE) for each in request.placements))


def staged(engine: TorchEngine) -> StagedLayers:
    assert engine.loaded is not None
    assert engine.loaded.staged is not None
    return engine.loaded.staged


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("llama", "bfloat16"), ("gpt2", "float32"), ("tied", "float32"), ("sliding", "float32"), ("mixtral", "float32")],
)
def test_each_byte_crosses_once_a_pass(
    kind: str, dtype: str, engine: TorchEngine, model_folder: Folder, simulated: Simulator
) -> None:
    """Shows 2 and 6: a third on the device, in RAM and on disk each; what rests on the device never crosses."""
    sim = simulated([64 << 20])
    folder = model_folder(kind)
    request = away(folder, DEVICE, "cpu", "disk", dtype=dtype)
    events = Events()
    engine.load(request, events.job())
    placed = {each.layer: (each.rests_on, each.runs_on, each.size) for each in events.last(ModelLoaded).placed}
    wanted = {each.layer: (each.rests_on, each.runs_on, each.size) for each in request.placements if each.size}
    assert {layer: placed[layer] for layer in wanted} == wanted
    assert not any(
        offloaded(getattr(module, "_hf_hook", None))
        for module in engine.loaded.model.modules()  # type: ignore[union-attr]
    ), "none of accelerate's hooks carries anything"
    wait_for_copies(engine)
    sim.reset_transfers(0)
    running = Events()
    engine.generate(text_request(), running.job())
    wait_for_copies(engine)
    passes = len(running.last(RunFinished).result.tokens)
    carried = {layer: size for layer, (rests, _, size) in wanted.items() if rests != DEVICE}
    moved = {each.layer: each.bytes_moved for each in running.last(LayerRan).activity if each.bytes_moved}
    assert moved == {layer: passes * size for layer, size in carried.items()}
    crossed = sim.transfers(0).to_device - passes * sum(carried.values())
    assert 0 <= crossed <= passes * 2048, "beside weights only ids, positions and masks"
    assert list(ask(engine).tokens) == plain_tokens(folder, "hello there, world", dtype, 8)


@pytest.mark.parametrize("rests", ["cpu", "disk"])
def test_tied_weights_come_for_both_who_need_them(
    rests: str, engine: TorchEngine, model_folder: Folder, simulated: Simulator
) -> None:
    """In RAM they are locked once."""
    sim = simulated([64 << 20])
    folder = model_folder("tied")
    request = away(folder, rests, rests, DEVICE)
    engine.load(request, Events().job())
    table, head = (
        next(each for each in request.placements if each.layer.endswith(name)) for name in ("tokens", "head")
    )
    assert (table.rests_on, table.runs_on, head.rests_on) == (rests, DEVICE, rests)
    if rests == "cpu":
        held = staged(engine).held
        assert held["lm_head.weight"] is held["model.embed_tokens.weight"]
        size = sum(each.size for each in request.placements if each.rests_on == "cpu")
        assert size <= sim.pinned_bytes() <= size + 4096 * 2 * len(request.placements)
    assert list(ask(engine).tokens) == plain_tokens(folder, "hello there, world", "float32", 8)


def test_the_device_holds_two_of_the_largest(engine: TorchEngine, model_folder: Folder, simulated: Simulator) -> None:
    sim = simulated([64 << 20])
    request = away(model_folder("llama"), DEVICE, "cpu")
    engine.load(request, Events().job())
    largest = max(each.size for each in request.placements if each.rests_on == "cpu")
    held = sim.memory_allocated(0) - sum(each.size for each in request.placements if each.rests_on == DEVICE)
    assert STAGING_BUFFERS * largest <= held <= STAGING_BUFFERS * largest + 8192, "and little tables of positions"
    buffers = [buffer.tensor.data_ptr() for buffer in staged(engine).ring.buffers]
    ask(engine)
    assert [buffer.tensor.data_ptr() for buffer in staged(engine).ring.buffers] == buffers


@pytest.mark.parametrize("rests", ["cpu", "disk"])
def test_unloading_gives_the_device_the_threads_and_the_locked_memory_back(
    rests: str, engine: TorchEngine, model_folder: Folder, simulated: Simulator
) -> None:
    sim = simulated([64 << 20])
    gc.collect()  # what other tests have left
    threads, locked = threading.active_count(), sim.pinned_bytes()
    engine.load(away(model_folder("llama"), DEVICE, rests), Events().job())
    assert threading.active_count() > threads
    assert sim.pinned_bytes() > locked
    ask(engine)
    engine.unload(Events().job())
    assert (threading.active_count(), sim.pinned_bytes(), sim.memory_allocated(0)) == (threads, locked, 0)


@pytest.mark.parametrize("room", ["the layers", "their buffers"])
def test_a_device_without_room_ends_the_load_and_holds_nothing(
    room: str, engine: TorchEngine, model_folder: Folder, simulated: Simulator
) -> None:
    request = away(model_folder("llama"), DEVICE, "cpu")
    there = sum(each.size for each in request.placements if each.rests_on == DEVICE)
    sim = simulated([there // 2 if room == "the layers" else there + 8192])
    gc.collect()
    threads, locked = threading.active_count(), sim.pinned_bytes()
    with pytest.raises(OutOfMemory, match="to load"):
        engine.load(request, Events().job())
    assert (threading.active_count(), sim.pinned_bytes(), sim.memory_allocated(0)) == (threads, locked, 0)


@pytest.mark.parametrize("layer", ["model.layers.1", "model.layers.5.mlp.up_proj", "model.layers.9"])
def test_a_pass_that_breaks_off_leaves_all_at_rest(
    layer: str, engine: TorchEngine, model_folder: Folder, simulated: Simulator
) -> None:
    """Stopped, failed, or out of memory in the middle of a pass: the next answer is right."""
    simulated([64 << 20])
    engine.load(away(model_folder("llama"), "cpu", "disk"), Events().job())
    expected = ask(engine).tokens
    model: Any = engine.loaded.model  # type: ignore[union-attr]
    for error in (Stopped(), RuntimeError("broken")):

        def breaks(*_unused: object, error: Exception = error) -> None:
            raise error

        handle = model.get_submodule(layer).register_forward_pre_hook(breaks)
        if isinstance(error, Stopped):
            ask(engine)
        else:
            with pytest.raises(RunFailed, match="broken"):
                ask(engine)
        handle.remove()
        assert all(parameter.device.type == "meta" for parameter in model.parameters())
        assert ask(engine).tokens == expected


def test_a_file_that_is_cut_short_ends_the_answer_within_a_token(
    engine: TorchEngine, tmp_path: Path, simulated: Simulator
) -> None:
    simulated([64 << 20])
    folder = write_model(tmp_path / "model", "llama")
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    engine.load(away(folder, DEVICE, "disk"), Events().job())
    expected = ask(engine, count=40).tokens
    events = Events()

    def spoil(_told: TextProduced) -> None:
        if len(events.of(TextProduced)) == 2:
            path.write_bytes(whole[: len(whole) // 2])

    with pytest.raises(RunFailed, match=r"model\.safetensors"):
        engine.generate(text_request(count=40), events.when(TextProduced, spoil).job())
    told = [token for each in events.of(TextProduced) for token in each.tokens]
    assert tuple(told) == expected[: len(told)]
    path.write_bytes(whole)
    engine.load(away(folder, DEVICE, "disk"), Events().job())
    assert ask(engine, count=40).tokens == expected


@pytest.mark.parametrize("without", ["locked memory", "streams"])
def test_without_locked_memory_or_streams_the_answer_is_the_same(
    without: str,
    engine: TorchEngine,
    model_folder: Folder,
    simulated: Simulator,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What a system refuses is told in the log; the same layers come through ordinary memory, or one after another."""
    sim = simulated([64 << 20])
    if without == "streams":
        monkeypatch.setattr("layerlight.engine.staged_layers.lanes_of", lambda _device: OneQueue())
    else:
        plain = torch.empty

        def refuses(*shape: Any, pin_memory: bool = False, **also: Any) -> torch.Tensor:
            if pin_memory:
                raise RuntimeError("cannot pin")
            return plain(*shape, **also)

        monkeypatch.setattr(torch, "empty", refuses)
    folder = model_folder("llama")
    with caplog.at_level("INFO"):
        engine.load(away(folder, "cpu", "disk"), Events().job())
    assert list(ask(engine).tokens) == plain_tokens(folder, "hello there, world", "float32", 8)
    assert (sim.pinned_bytes() == 0) is (without == "locked memory")
    assert ("can't be page-locked: cannot pin" in caplog.text) is (without == "locked memory")
    assert ("copied from ordinary memory, which is slower" in caplog.text) is (without == "locked memory")


def test_a_little_locked_memory_carries_what_is_not(
    engine: TorchEngine, model_folder: Folder, simulated: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system needs its RAM: no more than a part is locked, the rest passes through a reader's own."""
    sim = simulated([64 << 20])
    monkeypatch.setattr("layerlight.engine.staged_layers.lockable", lambda _total, _free: 100_000)
    folder = model_folder("llama")
    request = away(folder, DEVICE, "cpu", "cpu", "cpu")
    engine.load(request, Events().job())
    locked = sum(each.size for each in staged(engine).held.values() if each.pinned)
    assert 0 < locked <= 100_000 < sum(each.size for each in request.placements if each.rests_on == "cpu")
    assert 0 < sum(each.size for each in staged(engine).landing.passages) <= sim.pinned_bytes()
    assert list(ask(engine).tokens) == plain_tokens(folder, "hello there, world", "float32", 8)


def test_a_device_is_asked_for_its_streams(simulated: Simulator) -> None:
    simulated([1 << 20])
    assert isinstance(lanes_of(torch.device(DEVICE)), Streams)
    assert isinstance(lanes_of(torch.device("cpu")), OneQueue)


def test_what_can_not_be_locked_is_ordinary_memory() -> None:
    """Without an accelerator torch has nobody to ask."""
    buffer = PinnedBuffer(5000, torch.device("cpu"))
    buffer.bytes[:4] = b"abcd"
    assert bytes(buffer.tensor[:4].tolist()) == b"abcd"
    assert buffer.size % 4096 == 0
    assert buffer.tensor.data_ptr() % 4096 == 0
    buffer.close()
