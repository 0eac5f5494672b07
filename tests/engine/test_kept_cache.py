"""The cache that stays between turns: fewer tokens run, the same ones come out, and it goes when it must."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from layerlight.core.errors import NotFinite, OutOfMemory
from layerlight.core.messages import LayerRan, PromptCounted, RunFinished, RunResult, TextProduced
from layerlight.engine.engine import TorchEngine
from layerlight.engine.kept_cache import LEAST, KeptCache, new_cache
from layerlight.engine.returning import give_back
from tests.engine.events import Events, ask, text_request
from tests.engine.model_kinds import KINDS
from tests.engine.tiny_models import CONFIGS, byte_tokenizer, machine, plain_tokens, request_for, write_model

FIRST = "Tell me about layers, and about the places where they may rest, in RAM, on a disk or on a card here."
ROOM = {"gpt2": {"n_positions": 256}, "wide window": {"sliding_window": 200}}
ALIAS = {"wide window": "sliding", "experts": "qwen3_moe"}
Folder = Callable[[str], Path]


def readable(model: Any) -> None:
    """Makes the model answer in printable ASCII, so that an answer comes back as the very tokens it was."""
    head = model.get_output_embeddings().weight.data
    tokenizer = byte_tokenizer()
    letters = {tokenizer.convert_tokens_to_ids(chr(code)) for code in range(33, 127)}
    others = [index for index in range(len(head)) if index not in letters]
    head[others] = head[min(letters)] / 2


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Folders of models that answer in letters."""
    root = tmp_path_factory.mktemp("talkers")
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = root / kind.replace(" ", "-")
            if kind in KINDS:
                write_kind(made[kind], kind)
            else:
                write_model(made[kind], ALIAS.get(kind, kind), change=readable, **ROOM.get(kind, {}))
        return made[kind]

    return folder


def write_kind(folder: Path, kind: str) -> None:
    """A hybrid of `model_kinds`, with the vocabulary of our tokenizer."""
    torch.manual_seed(7)
    model_type, sizes = KINDS[kind]
    special = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "initializer_range": 0.25}
    config = AutoConfig.for_model(model_type, **{**sizes, "vocab_size": 258, **special})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    readable(model)
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


def kept(engine: TorchEngine) -> int:
    return len(engine.kept)


@pytest.mark.parametrize("chunk", [512, 7])
@pytest.mark.parametrize("kind", ["tied", "gpt2", "experts", "wide window"])
def test_the_next_turn_runs_only_what_is_new(kind: str, chunk: int, engine: TorchEngine, talker: Folder) -> None:
    """Prompt, answer and a new question: all but the answer's last token is there already; the tokens are the same."""
    engine.load(replace(request_for(talker(kind), context=256), prefill_chunk=chunk), Events().job())
    first = ask(engine, FIRST, 20)
    assert (first.reused, kept(engine)) == (0, len(FIRST) + len(first.tokens) - 1)
    second = FIRST + first.text + " And what then?"
    events = Events()
    engine.generate(text_request(second, 20), events.job())
    result = events.last(RunFinished).result
    assert result.reused == events.last(PromptCounted).reused == len(FIRST) + len(first.tokens) - 1
    assert list(result.tokens) == plain_tokens(talker(kind), second, "float32", 20)
    assert result.prompt_tokens == len(second)


@pytest.mark.parametrize("kind", ["tied", "gpt2"])
def test_a_question_asked_otherwise_keeps_what_came_before_it(kind: str, engine: TorchEngine, talker: Folder) -> None:
    """The cache is cut back to where the two part."""
    engine.load(request_for(talker(kind), context=256), Events().job())
    ask(engine, FIRST + "One question?", 20)
    other = FIRST + "Another question, somewhat longer?"
    result = ask(engine, other, 20)
    assert result.reused == len(FIRST)
    assert list(result.tokens) == plain_tokens(talker(kind), other, "float32", 20)
    shorter = FIRST[:90]
    assert ask(engine, shorter, 5).reused == 89
    assert kept(engine) == 94


@pytest.mark.parametrize("kind", ["sliding", "granite hybrid", "both at once", "convolutions", "delta"])
def test_a_cache_that_cannot_be_cut_begins_anew(kind: str, engine: TorchEngine, talker: Folder) -> None:
    """Windows that slid, recurrent states, convolutions: asked of the cache's classes, not of the model's name."""
    engine.load(request_for(talker(kind), context=256), Events().job())
    first = ask(engine, FIRST, 20)
    second = FIRST + first.text + " And what then?"
    result = ask(engine, second, 20)
    assert (first.reused, result.reused, kept(engine)) == (0, 0, 0)
    assert list(result.tokens) == plain_tokens(talker(kind), second, "float32", 20)


def test_a_beginning_of_a_few_tokens_is_not_worth_it(engine: TorchEngine, talker: Folder) -> None:
    engine.load(request_for(talker("tied"), context=256), Events().job())
    ask(engine, FIRST, 4)
    assert ask(engine, FIRST[: LEAST - 1] + "!" * 30, 4).reused == 0
    ask(engine, FIRST, 4)
    assert ask(engine, FIRST[:LEAST] + "!" * 30, 4).reused == LEAST


@pytest.mark.parametrize("chunk", [512, 20])
def test_a_repeated_request_runs_its_last_pass_again(chunk: int, engine: TorchEngine, talker: Folder) -> None:
    """F11: the same seed gives the same text, also where one pass of many tokens and many of one differ in bf16."""
    load = request_for(talker("tied"), context=256, dtype="bfloat16")
    engine.load(replace(load, prefill_chunk=chunk), Events().job())
    turn = FIRST + ask(engine, FIRST, 20).text + " And what then? Tell me all of it."

    def sampled() -> RunResult:
        return ask(engine, turn, 40, seed=5, temperature=1.0)

    first = sampled()
    assert first.reused == len(FIRST) + 19
    rest = len(turn) - first.reused
    for _ in range(2):
        again = sampled()
        assert again.tokens == first.tokens
        assert again.reused == len(turn) - (rest if chunk > rest else (rest - 1) % chunk + 1)


@pytest.mark.parametrize("after", [1, 5])
def test_a_stop_between_tokens_keeps_them(after: int, engine: TorchEngine, talker: Folder) -> None:
    engine.load(request_for(talker("tied"), context=256), Events().job())
    events = Events()

    def stop(_: TextProduced) -> None:
        if len(events.of(TextProduced)) == after:
            events.stop.set()

    engine.generate(text_request(FIRST, 50), events.when(TextProduced, stop).job())
    told = events.last(RunFinished).result
    assert (told.ended, len(told.tokens)) == ("stopped", after)
    result = ask(engine, FIRST + told.text + " Go on.", 20)
    assert result.reused == len(FIRST) + after - 1
    assert list(result.tokens) == plain_tokens(talker("tied"), FIRST + told.text + " Go on.", "float32", 20)


@pytest.mark.parametrize(("running_pass", "expected"), [(1, 0), (2, 0), (3, 80), (6, 100)])
def test_a_stop_inside_a_pass_keeps_only_what_every_layer_has(
    running_pass: int, expected: int, engine: TorchEngine, talker: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the third layer's Nth pass: the first two are one pass ahead, and are cut back."""
    monkeypatch.setattr("layerlight.engine.watching.SNAPSHOT_INTERVAL", 0.0)
    engine.load(replace(request_for(talker("tied"), context=256), prefill_chunk=40), Events().job())
    events = Events()

    def stop(ran: LayerRan) -> None:
        passes = {each.layer: each.passes for each in ran.activity}
        if ran.running == "model.layers.2" and passes["model.layers.1"] == running_pass:
            events.stop.set()

    engine.generate(text_request(FIRST, 50), events.when(LayerRan, stop).job())
    told = events.last(RunFinished).result
    assert told.ended == "stopped"
    assert kept(engine) == expected + max(0, len(told.tokens) - 1)
    longer = FIRST + told.text + " Go on."
    assert list(ask(engine, longer, 20).tokens) == plain_tokens(talker("tied"), longer, "float32", 20)


def test_a_failure_leaves_nothing_to_reuse(engine: TorchEngine, talker: Folder) -> None:
    engine.load(request_for(talker("llama"), context=256), Events().job())
    expected = ask(engine, FIRST, 8)
    assert engine.loaded is not None
    norm = engine.loaded.model.model.norm.weight
    before = norm.data.clone()
    norm.data[3] = float("nan")
    with pytest.raises(NotFinite):
        ask(engine, FIRST + " More.", 8)
    norm.data.copy_(before)
    assert kept(engine) == 0
    again = ask(engine, FIRST, 8)
    assert (again.tokens, again.reused) == (expected.tokens, 0)


def test_no_cache_outlives_its_model_or_its_places(engine: TorchEngine, talker: Folder) -> None:
    """Unloaded, loaded again, moved: what was computed elsewhere is not gone on with."""
    load = request_for(talker("tied"), context=256)
    for change in (engine.unload, lambda job: None):
        engine.load(load, Events().job())
        assert ask(engine, FIRST, 4).reused == 0
        assert kept(engine) > 0
        change(Events().job())
    engine.load(load, Events().job())
    assert kept(engine) == 0
    ask(engine, FIRST, 4)
    assert engine.loaded is not None
    engine.loaded.placed = tuple(replace(each, runs_on="elsewhere") for each in engine.loaded.placed)
    assert ask(engine, FIRST + " More.", 4).reused == 0


@pytest.mark.parametrize("way", ["dynamic", "longrope"])
@pytest.mark.parametrize(("context", "kept_there"), [(64, True), (65, False)])
def test_keys_that_are_turned_by_the_texts_length_are_not_kept(way: str, context: int, kept_there: bool) -> None:
    """Beyond the length a model was first made for, an earlier pass left other keys than a new one computes."""
    config = CONFIGS["tied"]()
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "factor": 4.0}
    config.rope_parameters = {
        "rope_type": way, "rope_theta": 10000.0, "original_max_position_embeddings": 64, **factors
    }  # fmt: skip
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(CONFIGS["tied"]())
    model.config.rope_parameters = config.rope_parameters
    assert (new_cache(model, context) is not None) is kept_there


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.simulated
def test_the_cache_lies_within_the_plan_and_comes_back(
    engine: TorchEngine, talker: Folder, simulated: Callable[..., ModuleType]
) -> None:
    """Ten turns hold no more than the last one's tokens weigh; unloading gives all of it back."""
    sim = simulated([64 << 20])
    engine.load(request_for(talker("tied"), lambda i, n: "sim:0", on=machine("sim:0"), context=256), Events().job())
    weights = sim.memory_allocated(0)
    per_token = 4 * 2 * 2 * 8 * 4  # layers, keys and values, heads, width, float32
    text = FIRST
    for _ in range(10):
        result = ask(engine, text, 4)
        text += result.text + " more"
        assert sim.memory_allocated(0) - weights == kept(engine) * per_token
        assert kept(engine) == result.prompt_tokens + 3
    assert ask(engine, "Something else", 4).reused == 0
    assert (sim.memory_allocated(0), kept(engine)) == (weights, 0)
    engine.unload(Events().job())
    assert sim.memory_allocated(0) == 0


def overflowing(sim: ModuleType, engine: TorchEngine, room: int) -> None:
    """Leaves this many bytes beside what is held now."""
    engine.kept.drop()
    gc.collect()
    sim.set_total(0, sim.memory_allocated(0) + room)


@pytest.mark.simulated
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rest", ["sim:0", "cpu"])
def test_a_prompt_that_overflows_runs_in_smaller_passes(
    rest: str, temperature: float, engine: TorchEngine, talker: Folder, simulated: Callable[..., ModuleType]
) -> None:
    """The work of one pass of 200 tokens is too much, that of 50 is not: the same tokens, and it is said."""
    sim = simulated([64 << 20])
    load = request_for(
        talker("tied"), lambda index, count: rest if index == 2 else "sim:0", on=machine("sim:0"), context=256
    )
    engine.load(load, Events().job())
    prompt = (FIRST * 4)[:200]
    expected = ask(engine, prompt, 30, temperature=temperature, seed=3)
    overflowing(sim, engine, 260 << 10)
    result = ask(engine, prompt, 30, temperature=temperature, seed=3)
    assert sim.overflows(0) > 0
    assert (result.tokens, result.text, result.ended) == (expected.tokens, expected.text, expected.ended)
    assert (result.recomputed, result.prompt_tokens, expected.recomputed) == (200, 200, 0)
    assert kept(engine) == 0, "what was short of memory keeps none"


@pytest.mark.simulated
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_memory_that_another_takes_for_a_moment_costs_only_time(
    temperature: float, engine: TorchEngine, talker: Folder, simulated: Callable[..., ModuleType],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Midway through an answer nothing is left: caches go, and the answer goes on with the token that was next."""
    sim = simulated([64 << 20])
    engine.load(request_for(talker("tied"), lambda i, n: "sim:0", on=machine("sim:0"), context=256), Events().job())
    expected = ask(engine, FIRST, 30, temperature=temperature, seed=3)
    engine.kept.drop()
    events = Events()
    written: list[int] = []
    lost: list[int] = []

    def taken(produced: TextProduced) -> None:
        written.extend(produced.tokens)
        if len(events.of(TextProduced)) == 10:
            sim.set_total(0, sim.memory_allocated(0))

    def given_back(places: tuple[str, ...]) -> None:
        lost.append(len(written))
        sim.set_total(0, 64 << 20)
        give_back(places)

    monkeypatch.setattr("layerlight.engine.text.give_back", given_back)
    request = text_request(FIRST, 30, temperature=temperature, seed=3)
    engine.generate(request, events.when(TextProduced, taken).job())
    result = events.last(RunFinished).result
    assert (result.tokens, result.text) == (expected.tokens, expected.text)
    assert tuple(token for each in events.of(TextProduced) for token in each.tokens) == expected.tokens
    assert lost[0] >= 10
    assert result.recomputed == len(FIRST) + lost[0]
    assert len(events.of(PromptCounted)) == 1


@pytest.mark.simulated
def test_memory_that_stays_taken_ends_the_answer_with_what_was_written(
    engine: TorchEngine, talker: Folder, simulated: Callable[..., ModuleType]
) -> None:
    """Smaller passes don't help: one clear error, the text so far told, everything given back, the model usable."""
    sim = simulated([64 << 20])
    engine.load(request_for(talker("tied"), lambda i, n: "sim:0", on=machine("sim:0"), context=256), Events().job())
    weights = sim.memory_allocated(0)
    expected = ask(engine, FIRST, 30)
    events = Events()

    def taken(_: TextProduced) -> None:
        if len(events.of(TextProduced)) == 10:
            sim.set_total(0, weights + 2048)

    with pytest.raises(OutOfMemory, match="again in smaller passes") as caught:
        engine.generate(text_request(FIRST, 30), events.when(TextProduced, taken).job())
    assert "What was written stays" in caught.value.hint
    assert expected.text.startswith("".join(each.text for each in events.of(TextProduced)))
    assert len(events.of(TextProduced)) == 10
    assert sim.memory_allocated(0) == weights
    sim.set_total(0, 64 << 20)
    assert ask(engine, FIRST, 30).tokens == expected.tokens


def test_nothing_kept_is_an_empty_cache() -> None:
    cache = KeptCache()
    assert len(cache) == 0
