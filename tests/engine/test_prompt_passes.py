"""A prompt in pieces is the same prompt: for every kind of model, or it isn't cut."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from layerlight.engine.prompt_passes import SMALLEST, can_be_split, pieces_add_up, smaller_passes, tokens_a_pass
from tests.engine.model_kinds import KINDS

SPLIT = ("grouped", "five of six slide", "both at once", "delta", "convolutions")
"""Kinds whose passes add up, one of each kind of state."""
SINGLE = ("jamba",)
"""Kinds whose passes add up only when they are of one token."""
WHOLE = ("mamba", "falcon mamba", "mamba 2")
"""Kinds that transformers can't split: they have no attention."""


def made(kind: str) -> Any:
    torch.manual_seed(7)
    model_type, sizes = KINDS[kind]
    config = AutoConfig.for_model(model_type, **{**sizes, "initializer_range": 0.25})
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def logits(model: Any, ids: torch.Tensor, passes: int | None) -> torch.Tensor:
    """What the model makes of the whole prompt: tokens could be the same by chance."""
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, do_sample=False, pad_token_id=0,
        prefill_chunk_size=passes, return_dict_in_generate=True, output_logits=True,
    )  # fmt: skip
    found: torch.Tensor = out.logits[0]
    return found


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=1e-3)


@pytest.mark.parametrize("kind", SPLIT)
def test_pieces_give_the_same_numbers(kind: str) -> None:
    """As planned, and smaller after memory ran out."""
    model = made(kind)
    ids = torch.randint(2, 131, (1, 70))
    expected = logits(model, ids, None)
    assert (tokens_a_pass(model, 30, 70), smaller_passes(model, 30, 70)) == (30, SMALLEST)
    for passes in (30, SMALLEST):
        assert same(logits(model, ids, passes), expected)


@pytest.mark.parametrize("kind", SINGLE)
def test_a_prompt_whose_pieces_would_not_add_up_runs_whole_or_token_by_token(kind: str) -> None:
    """transformers would split it without a word, and answer another prompt."""
    model = made(kind)
    ids = torch.randint(2, 131, (1, 30))
    assert (can_be_split(model), pieces_add_up(model)) == (True, False)
    assert (tokens_a_pass(model, 7, 30), smaller_passes(model, 7, 30)) == (30, 1)
    expected = logits(model, ids, None)
    assert same(logits(model, ids, 1), expected)
    assert not same(logits(model, ids, 7), expected), "the library has been mended: it may be split again"


@pytest.mark.parametrize("kind", WHOLE)
def test_a_prompt_that_the_library_cannot_split_runs_whole(kind: str) -> None:
    with torch.device("meta"):
        model = made(kind)
    assert (tokens_a_pass(model, 7, 30), smaller_passes(model, 7, 30)) == (30, 30)


def test_after_memory_ran_out_passes_are_smaller() -> None:
    """A quarter of what ran before, down to a few tokens."""
    with torch.device("meta"):
        model = made("grouped")
    assert [smaller_passes(model, 512, tokens) for tokens in (4096, 512, 200, 30)] == [128, 128, 50, SMALLEST]
