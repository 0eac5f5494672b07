"""Answers: streamed, stopped, seeded, counted, and what they cost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from layerlight.core.errors import BrokenModel, NotFinite, OutOfMemory, PromptTooLong
from layerlight.core.messages import LayerRan, LoadRequest, PromptCounted, RunFinished, RunResult, TextProduced
from layerlight.engine.device_memory import process_memory
from layerlight.engine.engine import TorchEngine
from layerlight.engine.returning import give_back
from tests.engine.events import Events, ask, text_request
from tests.engine.tiny_models import byte_tokenizer, machine, plain_tokens, request_for, write_model

Folder = Callable[[str], Path]
HALF_ON_DISK = lambda index, count: "disk" if index % 2 else "cpu"  # noqa: E731


@pytest.fixture(scope="module")
def long_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that could go on for thousands of tokens and never ends by itself."""
    folder = tmp_path_factory.mktemp("long") / "model"

    def endless(model: Any) -> None:
        model.lm_head.weight.data[:2] = 0.0

    return write_model(folder, "llama", change=endless, max_position_embeddings=8192, num_hidden_layers=4)


@pytest.fixture
def long_engine(engine: TorchEngine, long_folder: Path) -> TorchEngine:
    engine.load(request_for(long_folder, context=8192), Events().job())
    return engine


def _prefill(request: LoadRequest, chunk: int) -> LoadRequest:
    return replace(request, prefill_chunk=chunk)


@pytest.mark.parametrize("chunk", [1, 7])
@pytest.mark.parametrize("kind", ["llama", "sliding", "gpt2"])
def test_a_prompt_computed_in_pieces_gives_the_same_tokens(
    chunk: int, kind: str, engine: TorchEngine, model_folder: Folder
) -> None:
    engine.load(_prefill(request_for(model_folder(kind), context=32), chunk), Events().job())
    assert list(ask(engine).tokens) == plain_tokens(model_folder(kind), "hello there, world", "float32", 8)


def test_an_answer_streams_and_adds_up(engine: TorchEngine, model_folder: Folder) -> None:
    """What was streamed is the result's text and tokens; the prompt is counted first, layers are timed."""
    engine.load(request_for(model_folder("tied")), Events().job())
    events = Events()
    engine.generate(text_request("hello there, world", 12), events.job())
    result = events.last(RunFinished).result
    assert isinstance(events.all[0], PromptCounted)
    assert events.all[0] == PromptCounted(18, 64, 46)
    produced = events.of(TextProduced)
    assert "".join(each.text for each in produced) == result.text
    assert tuple(token for each in produced for token in each.tokens) == result.tokens
    assert len(result.tokens) == 12
    assert result.ended == "length"
    assert result.prompt_tokens == 18
    assert result.time_to_first_token is not None
    assert result.tokens_per_second is not None
    assert engine.loaded is not None
    assert [layer for layer, _ in result.seconds_per_layer] == [each.layer for each in engine.loaded.placed]
    decoding = result.seconds - result.time_to_first_token
    assert 0 < sum(seconds for _, seconds in result.seconds_per_layer) * 11 < decoding
    activity = {each.layer: each for each in events.last(LayerRan).activity}
    assert {activity[f"model.layers.{index}"].passes for index in range(4)} == {12}
    assert {each.place for each in result.memory} >= {"cpu", "disk"}


@pytest.mark.parametrize("layout", [None, HALF_ON_DISK])
def test_stopped_at_once_out_of_five_thousand(
    layout: Callable[[int, int], str] | None, engine: TorchEngine, long_folder: Path
) -> None:
    """F01: the engine is free within a second, the partial text stays, the next answer is right."""
    request = request_for(long_folder, layout, context=8192) if layout else request_for(long_folder, context=8192)
    engine.load(request, Events().job())
    expected = ask(engine, count=4).tokens
    events = Events()
    stopped_at: list[float] = []

    def stop(produced: TextProduced) -> None:
        if not stopped_at:
            stopped_at.append(time.monotonic())
            events.stop.set()

    engine.generate(text_request(count=5000), events.when(TextProduced, stop).job())
    assert time.monotonic() - stopped_at[0] < 1.0
    result = events.last(RunFinished).result
    assert result.ended == "stopped"
    assert 1 <= len(result.tokens) <= 8
    assert result.text == "".join(each.text for each in events.of(TextProduced))
    assert ask(engine, count=4).tokens == expected


@pytest.mark.parametrize("layout", [None, HALF_ON_DISK])
def test_stopped_inside_the_first_pass(
    layout: Callable[[int, int], str] | None, engine: TorchEngine, long_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long prompt is stopped in the middle of a layer stack: nothing written, nothing left half carried."""
    monkeypatch.setattr("layerlight.engine.watching.SNAPSHOT_INTERVAL", 0.0)
    request = request_for(long_folder, layout, context=8192) if layout else request_for(long_folder, context=8192)
    engine.load(request, Events().job())
    expected = ask(engine, count=4).tokens
    events = Events()

    def stop(ran: LayerRan) -> None:
        if ran.running == "model.layers.2":
            events.stop.set()

    engine.generate(text_request("x" * 3000, 5), events.when(LayerRan, stop).job())
    result = events.last(RunFinished).result
    assert (result.ended, result.tokens, result.text, result.time_to_first_token) == ("stopped", (), "", None)
    passes = {each.layer: each.passes for each in events.last(LayerRan).activity}
    assert (passes["model.layers.1"], passes["model.layers.2"], passes["model.layers.3"]) == (1, 0, 0)
    assert ask(engine, count=4).tokens == expected


def test_fifty_starts_and_stops_leave_nothing(long_engine: TorchEngine) -> None:
    """F14: no memory, no thread and no hook is left by runs that were stopped."""

    def once() -> None:
        events = Events()
        long_engine.generate(text_request("y" * 20, 50), events.when(TextProduced, lambda _: events.stop.set()).job())
        assert events.last(RunFinished).result.ended == "stopped"

    for _ in range(5):
        once()
    give_back()
    memory, threads = process_memory().anonymous, threading.active_count()
    for _ in range(50):
        once()
    give_back()
    after = process_memory().anonymous
    assert threading.active_count() == threads
    assert long_engine.loaded is not None
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in long_engine.loaded.model.modules())
    if memory is not None and after is not None:
        assert after - memory < 4 * 2**20


def test_the_same_seed_gives_the_same_text(engine: TorchEngine, model_folder: Folder) -> None:
    """F11: twice in a session, whatever ran between; another seed differs; the seed used is the one in the result."""
    engine.load(request_for(model_folder("tied")), Events().job())

    def sampled(seed: int) -> RunResult:
        return ask(engine, count=16, seed=seed, temperature=1.0)

    first = sampled(11)
    torch.rand(3)
    other = sampled(12)
    again = sampled(11)
    assert first.seed == 11
    assert first.tokens == again.tokens
    assert first.tokens != other.tokens


def test_temperature_zero_is_greedy_whatever_else_is_asked(engine: TorchEngine, model_folder: Folder) -> None:
    """F06: 0 raises in transformers; here it is greedy, and neither seed nor top_k changes it."""
    engine.load(request_for(model_folder("tied")), Events().job())
    greedy = plain_tokens(model_folder("tied"), "hello there, world", "float32", 8)
    for settings in ({"seed": 1}, {"seed": 2, "top_k": 3, "top_p": 0.5}):
        assert list(ask(engine, **settings).tokens) == greedy
    assert list(ask(engine, temperature=1.0, top_k=1).tokens) == greedy


def test_the_models_own_sampling_settings_do_not_interfere(engine: TorchEngine, tmp_path: Path) -> None:
    """A request is complete: generation_config.json can't change what it means."""
    folder = write_model(tmp_path / "model", "tied")
    expected = plain_tokens(folder, "hello there, world", "float32", 8)
    settings = {"do_sample": True, "temperature": 2.0, "repetition_penalty": 5.0, "no_repeat_ngram_size": 2}
    (folder / "generation_config.json").write_text(json.dumps(settings | {"max_length": 19, "eos_token_id": 1}))
    engine.load(request_for(folder), Events().job())
    assert list(ask(engine).tokens) == expected


@pytest.mark.parametrize("where", ["config.json", "generation_config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("listed", [True, False])
def test_every_end_token_ends_the_answer(where: str, listed: bool, engine: TorchEngine, tmp_path: Path) -> None:
    """The union of all that tokenizer, config and generation config call an end."""
    folder = write_model(tmp_path / "model", "tied")
    tokens = plain_tokens(folder, "hello there, world", "float32", 8)
    end = next(token for token in tokens if token > 1)
    file = folder / where
    content = json.loads(file.read_text())
    if where == "tokenizer_config.json":
        content["eos_token"] = byte_tokenizer().convert_ids_to_tokens(end)
    else:
        content["eos_token_id"] = [1, end] if listed else end
    file.write_text(json.dumps(content))
    engine.load(request_for(folder), Events().job())
    result = ask(engine)
    assert result.ended == "end token"
    assert list(result.tokens) == tokens[: tokens.index(end) + 1]


@pytest.mark.parametrize(
    ("kind", "positions", "prompt", "new", "expected"),
    [("gpt2", 32, 40, 5, None), ("gpt2", 32, 30, 10, 2), ("llama", 64, 100, 5, None), ("llama", 64, 60, 10, 4)],
)
def test_the_context_is_never_crossed(
    kind: str, positions: int, prompt: int, new: int, expected: int | None, engine: TorchEngine, tmp_path: Path
) -> None:
    """F04: absolute positions (an IndexError in transformers) and rotary ones (silently on)."""
    sizes = {"n_positions": positions} if kind == "gpt2" else {"max_position_embeddings": positions}

    def endless(model: Any) -> None:
        model.get_output_embeddings().weight.data[1] = 0.0

    folder = write_model(tmp_path / "model", kind, change=endless, **sizes)
    engine.load(request_for(folder, context=positions), Events().job())
    if expected is None:
        with pytest.raises(PromptTooLong, match=f"{prompt} tokens; the context holds {positions}"):
            ask(engine, "x" * prompt, new)
    else:
        result = ask(engine, "x" * prompt, new)
        assert (len(result.tokens), result.ended) == (expected, "context")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_numbers_that_broke_end_the_run(value: float, temperature: float, engine: TorchEngine, tmp_path: Path) -> None:
    """NaN or infinite logits: a clear word in place of rubbish, and no token drawn from them."""

    def spoil(model: Any) -> None:
        model.model.norm.weight.data[3] = value

    engine.load(request_for(write_model(tmp_path / "model", "llama", change=spoil)), Events().job())
    events = Events()
    with pytest.raises(NotFinite):
        engine.generate(text_request(temperature=temperature), events.job())
    assert not events.of(TextProduced)
    assert not events.of(RunFinished)


@pytest.mark.simulated
@pytest.mark.parametrize("rest", ["sim:0", "cpu"])
def test_memory_that_runs_out_ends_the_run_not_the_model(
    rest: str, engine: TorchEngine, model_folder: Folder, simulated: Callable[..., ModuleType]
) -> None:
    """The cache outgrows the device: said as such, given back, and the next short answer works."""
    sim = simulated([64 << 20])
    request = request_for(
        model_folder("llama"), lambda index, count: rest if index % 2 else "sim:0", on=machine("sim:0"), context=256
    )
    engine.load(request, Events().job())
    expected = ask(engine, "hi", 4).tokens
    held = sim.memory_allocated(0)
    sim.set_total(0, held + (160 << 10))
    with pytest.raises(OutOfMemory, match="while answering"):
        ask(engine, "x" * 200, 40)
    assert sim.memory_allocated(0) == held
    assert ask(engine, "hi", 4).tokens == expected


def test_a_prompt_is_counted_before_the_weights_are_read(engine: TorchEngine, tmp_path: Path) -> None:
    """F04: from config and tokenizer alone; the model before stays, and what was read serves the load."""
    folder = write_model(tmp_path / "model", "tied")
    request = request_for(folder, context=16)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    with pytest.raises(PromptTooLong, match="17 tokens; the context holds 16"):
        engine.count(text_request("x" * 17), request, Events().job())
    engine.count(text_request("x" * 15), request, Events().job())
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "tokenizer.json").unlink()
    engine.load(request, Events().job())
    assert len(ask(engine, "x" * 8, count=4).tokens) == 4
    with pytest.raises(BrokenModel, match="tokenizer"):
        engine.load(request, Events().job())
