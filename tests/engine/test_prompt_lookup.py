"""Prompt lookup: several tokens a pass, the very same ones, and refused in words where they would be others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from layerlight.core.errors import BadRequest, NotFinite
from layerlight.core.messages import LayerRan, RunFinished, TextProduced
from layerlight.engine.engine import TorchEngine
from layerlight.engine.prompt_lookup import require_lookup, room_for_drafts
from tests.engine.events import Events, ask, text_request
from tests.engine.model_kinds import KINDS
from tests.engine.test_kept_cache import readable, write_kind
from tests.engine.tiny_models import request_for, write_model

TEXT = "the cat sat on the mat and the dog sat on the log, then the cat sat on the mat again and the dog sat"
DRAFTED = 5
TAKEN_BACK = ("tied", "gpt2", "sliding", "qwen3_moe", "latent", "every layer slides", "alibi")
CARRIED_ALONG = {
    "granite hybrid", "bamba", "jamba", "both at once", "nemotron", "delta and experts", "delta", "delta olmo",
    "convolutions", "mamba", "falcon mamba", "mamba 2",
}  # fmt: skip
LAYOUTS: dict[str, Callable[[int, int], str]] = {
    "in RAM": lambda index, count: "cpu",
    "half on disk": lambda index, count: "disk" if index % 2 else "cpu",
    "on disk": lambda index, count: "disk",
}
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    root = tmp_path_factory.mktemp("lookup")

    def folder(kind: str) -> Path:
        path = root / kind.replace(" ", "-")
        if not path.exists() and kind in KINDS:
            write_kind(path, kind)
        elif not path.exists():
            write_model(path, kind, change=readable, **({"n_positions": 256} if kind == "gpt2" else {}))
        return path

    return folder


@pytest.fixture(scope="module")
def repeating(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says the same few words over and over: nearly every draft is right."""

    def change(model: Any) -> None:
        readable(model)
        for layer in model.model.layers:
            layer.mlp.down_proj.weight.data.zero_()
            layer.self_attn.o_proj.weight.data.zero_()

    return write_model(tmp_path_factory.mktemp("repeating") / "model", "tied", change=change)


@pytest.mark.parametrize(("dtype", "layouts"), [("float32", ("in RAM", "on disk")), ("bfloat16", ("half on disk",))])
@pytest.mark.parametrize("kind", TAKEN_BACK)
def test_the_tokens_are_the_same_wherever_layers_rest(
    kind: str, dtype: str, layouts: tuple[str, ...], engine: TorchEngine, folder_of: Folder
) -> None:
    """bf16 with eager attention, fp32 with sdpa; windows slide and experts are chosen in passes of several tokens."""
    expected = None
    for layout in layouts:
        engine.load(request_for(folder_of(kind), LAYOUTS[layout], context=256, dtype=dtype), Events().job())
        if expected is None:
            expected = ask(engine, TEXT, 30)
            engine.kept.drop()
        found = ask(engine, TEXT, 30, prompt_lookup=DRAFTED)
        assert found.tokens == expected.tokens
        assert found.drafts is not None
        assert 0 <= found.drafts.accepted <= found.drafts.drafted <= DRAFTED * found.drafts.passes
        assert len(found.tokens) == 1 + found.drafts.passes + found.drafts.accepted
    assert expected is not None
    assert expected.drafts is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_cannot_be_taken_back_is_refused(kind: str) -> None:
    """Asked of the model's class and its cache's, so before anything runs."""
    model_type, sizes = KINDS[kind]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **sizes))
    if kind not in CARRIED_ALONG:
        require_lookup(model, 256)
        return
    with pytest.raises(BadRequest, match="state") as refused:
        require_lookup(model, 256)
    assert "off" in refused.value.hint


def test_a_refusal_leaves_the_model_as_it_was(engine: TorchEngine, folder_of: Folder) -> None:
    engine.load(request_for(folder_of("convolutions"), context=256), Events().job())
    events = Events()
    with pytest.raises(BadRequest, match="state"):
        engine.generate(text_request(TEXT, 8, prompt_lookup=DRAFTED), events.job())
    assert not events.all
    assert len(ask(engine, TEXT, 4).tokens) == 4


def test_positions_that_turn_by_length_are_refused(engine: TorchEngine, folder_of: Folder) -> None:
    """A draft that reaches beyond the length would turn them for the tokens before it too."""
    engine.load(request_for(folder_of("tied"), context=128), Events().job())
    assert engine.loaded is not None
    model = engine.loaded.model
    model.config.rope_parameters = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    require_lookup(model, 256)
    with pytest.raises(BadRequest, match="positions"):
        require_lookup(model, 257)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["tied", "gpt2", "alibi mpt"])
def test_an_8_bit_cache_takes_drafts_back(kind: str, dtype: str, engine: TorchEngine, folder_of: Folder) -> None:
    """Each token is packed by itself, so that it does not matter how many came with it."""
    load = replace(request_for(folder_of(kind), context=256, dtype=dtype), kv="fp8")
    engine.load(load, Events().job())
    plain = ask(engine, TEXT, 40)
    engine.kept.drop()
    found = ask(engine, TEXT, 40, prompt_lookup=DRAFTED)
    assert found.tokens == plain.tokens
    assert found.drafts is not None
    assert found.drafts.drafted > found.drafts.accepted


def test_a_pass_that_gives_several_tokens_streams_them_and_is_counted_once(
    engine: TorchEngine, repeating: Path
) -> None:
    """Layers are timed by the pass, the answer is told token by token, the result says what was drafted and right."""
    engine.load(request_for(repeating, LAYOUTS["half on disk"], context=256), Events().job())
    plain = ask(engine, TEXT, 60)
    engine.kept.drop()
    events = Events()
    engine.generate(text_request(TEXT, 60, prompt_lookup=20), events.job())
    result = events.last(RunFinished).result
    assert result.tokens == plain.tokens
    assert tuple(token for each in events.of(TextProduced) for token in each.tokens) == result.tokens
    assert "".join(each.text for each in events.of(TextProduced)) == result.text
    drafts = result.drafts
    assert drafts is not None
    assert drafts.tokens_a_pass is not None
    assert drafts.tokens_a_pass > 3
    assert "tokens a pass" in result.notes[-1]
    activity = {each.layer: each for each in events.last(LayerRan).activity}
    assert {activity[f"model.layers.{index}"].passes for index in range(4)} == {1 + drafts.passes}
    seconds = dict(result.seconds_per_layer)
    assert result.time_to_first_token is not None
    assert 0 < sum(seconds.values()) * drafts.passes < result.seconds - result.time_to_first_token


@pytest.mark.parametrize("settings", [{"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.8, "top_k": 20}])
def test_the_same_seed_gives_the_same_text(settings: dict[str, float], engine: TorchEngine, folder_of: Folder) -> None:
    """F11: each token is drawn from what the model computed for it; a draft only says which are computed together."""
    engine.load(request_for(folder_of("tied"), context=256), Events().job())

    def sampled(seed: int) -> tuple[int, ...]:
        engine.kept.drop()
        return ask(engine, TEXT, 40, seed=seed, prompt_lookup=DRAFTED, **settings).tokens

    first = sampled(5)
    assert sampled(6) != first
    assert sampled(5) == first


def test_a_draft_never_decides_what_is_drawn(engine: TorchEngine, repeating: Path) -> None:
    """A model with one likely token: drawn at a temperature, nearly all drafts hold, and the odd one does not."""
    engine.load(request_for(repeating, context=256), Events().job())
    for seed in range(3):
        found = ask(engine, TEXT, 60, seed=seed, temperature=1.0, prompt_lookup=DRAFTED)
        assert found.drafts is not None
        assert len(found.tokens) == 1 + found.drafts.passes + found.drafts.accepted
        assert 0 < found.drafts.accepted < found.drafts.drafted


def test_a_repetition_penalty_holds_inside_a_pass(engine: TorchEngine, repeating: Path) -> None:
    engine.load(request_for(repeating, context=256), Events().job())
    plain = ask(engine, TEXT, 40, repetition_penalty=1.3)
    engine.kept.drop()
    assert ask(engine, TEXT, 40, repetition_penalty=1.3, prompt_lookup=DRAFTED).tokens == plain.tokens


@pytest.mark.parametrize("lookups", [(0, DRAFTED), (DRAFTED, 0), (DRAFTED, DRAFTED)])
@pytest.mark.parametrize("kind", ["tied", "gpt2"])
def test_a_kept_cache_is_gone_on_with(
    kind: str, lookups: tuple[int, int], engine: TorchEngine, folder_of: Folder
) -> None:
    """What drafts that were wrong had left behind is never kept; the prompt is computed in its pieces."""
    engine.load(replace(request_for(folder_of(kind), context=256), prefill_chunk=40), Events().job())
    first = ask(engine, TEXT, 20, prompt_lookup=lookups[0])
    turn = TEXT + first.text + " And the dog?"
    found = ask(engine, turn, 30, prompt_lookup=lookups[1])
    assert found.reused == len(TEXT) + len(first.tokens) - 1
    engine.kept.drop()
    assert found.tokens == ask(engine, turn, 30).tokens


@pytest.mark.parametrize("after", [1, 2, 9])
def test_a_stop_keeps_only_what_was_written(after: int, engine: TorchEngine, repeating: Path) -> None:
    """Stopped after a pass whose drafts were partly wrong: the cache still holds those, and is cut back."""
    engine.load(request_for(repeating, context=256), Events().job())
    events = Events()

    def stop(_: TextProduced) -> None:
        if sum(len(each.tokens) for each in events.of(TextProduced)) >= after:
            events.stop.set()

    job = events.when(TextProduced, stop).job()
    engine.generate(text_request(TEXT, 100, seed=3, temperature=1.0, prompt_lookup=DRAFTED), job)
    told = events.last(RunFinished).result
    assert told.ended == "stopped"
    assert after <= len(told.tokens) <= after + DRAFTED
    turn = TEXT + told.text + " Go on."
    found = ask(engine, turn, 20, prompt_lookup=DRAFTED)
    assert found.reused == len(TEXT) + len(told.tokens) - 1
    engine.kept.drop()
    assert found.tokens == ask(engine, turn, 20).tokens


@pytest.mark.parametrize("drafted", [1, DRAFTED, 32])
@pytest.mark.parametrize("kind", ["gpt2", "tied"])
def test_no_draft_reaches_beyond_the_context(kind: str, drafted: int, engine: TorchEngine, tmp_path: Path) -> None:
    """Absolute positions end there: the library's own drafts would ask for one beyond them."""
    positions: dict[str, Any] = {"n_positions": 64} if kind == "gpt2" else {"max_position_embeddings": 64}
    folder = write_model(tmp_path / "model", kind, change=readable, **positions)
    engine.load(request_for(folder, context=64), Events().job())
    plain = ask(engine, "abcabcabcabcabc", 99)
    assert (plain.ended, len(plain.tokens)) == ("context", 49)
    engine.kept.drop()
    found = ask(engine, "abcabcabcabcabc", 99, prompt_lookup=drafted)
    assert (found.tokens, found.ended) == (plain.tokens, "context")


def test_room_for_drafts_ends_before_the_context_does() -> None:
    assert room_for_drafts(10, 64, 5) == 51
    assert room_for_drafts(62, 64, 5) == 0


def test_an_end_token_inside_a_draft_ends_the_answer(engine: TorchEngine, tmp_path: Path, folder_of: Folder) -> None:
    engine.load(request_for(folder_of("tied"), context=256), Events().job())
    tokens = ask(engine, TEXT, 50).tokens
    end = tokens[9]
    folder = write_model(tmp_path / "model", "tied", change=readable)
    config = (folder / "config.json").read_text().replace('"eos_token_id": 1', f'"eos_token_id": {end}')
    (folder / "config.json").write_text(config)
    engine.load(request_for(folder, context=256), Events().job())
    found = ask(engine, TEXT, 50, prompt_lookup=DRAFTED)
    assert (found.tokens, found.ended) == (tokens[: tokens.index(end) + 1], "end token")


def test_numbers_that_broke_end_the_run(engine: TorchEngine, repeating: Path) -> None:
    """Also those that break in a pass of several tokens; afterwards the model is as it was."""
    engine.load(request_for(repeating, context=256), Events().job())
    expected = ask(engine, TEXT, 30).tokens
    engine.kept.drop()
    assert engine.loaded is not None
    model = engine.loaded.model
    kind, norm = type(model), model.model.norm.weight
    before = norm.data.clone()
    events = Events()

    def spoil(_: TextProduced) -> None:
        norm.data[3] = float("nan")

    with pytest.raises(NotFinite):
        engine.generate(text_request(TEXT, 30, prompt_lookup=DRAFTED), events.when(TextProduced, spoil).job())
    norm.data.copy_(before)
    assert type(model) is kind
    assert ask(engine, TEXT, 30, prompt_lookup=DRAFTED).tokens == expected
