"""What a KV cache in 8 bit changes in the starter model's answers: the figure that its fix tells as its price."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from layerlight.core.fixes import SAME_TOKENS
from layerlight.engine.cache_choice import quantized_cache

pytestmark = [pytest.mark.engine, pytest.mark.starter]

COUNT = 48
PROMPTS = (
    "What is the capital of France?",
    "Write a short story about a lighthouse keeper.",
    "Explain why the sky is blue.",
    "Give me a recipe for pancakes.",
    "Name three planets and say one thing about each.",
)


@torch.inference_mode()
def test_the_price_that_is_told_is_what_was_measured(starter_folder: Path) -> None:
    """Each greedy token of five answers is asked for again behind rounded keys and values of all before it."""
    tokenizer = AutoTokenizer.from_pretrained(starter_folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(starter_folder, dtype=torch.float32)
    prompts = [asked(tokenizer, words) for words in PROMPTS]
    together = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
    greedy = {"max_new_tokens": COUNT, "do_sample": False, "eos_token_id": None, "pad_token_id": tokenizer.pad_token_id}
    answers = model.generate(**together, **greedy)[:, together["input_ids"].shape[1] :]
    same = worse = 0.0
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"]
        usual, packed = (
            guesses(model, ids, answer, cache)
            for cache in (DynamicCache(config=model.config), quantized_cache(model.config))
        )
        same += float((packed.argmax(-1) == answer).sum())
        worse += float((usual - packed).gather(1, answer[:, None]).mean())
    share, perplexity = same / answers.numel(), math.exp(worse / len(prompts)) - 1
    assert 100 * share == pytest.approx(SAME_TOKENS, abs=2), (share, perplexity)
    assert perplexity < 0.03, (share, perplexity)


def asked(tokenizer: Any, words: str) -> str:
    said: str = tokenizer.apply_chat_template(
        [{"role": "user", "content": words}], add_generation_prompt=True, tokenize=False
    )
    return said


def guesses(model: Any, prompt: torch.Tensor, answer: torch.Tensor, cache: Any) -> torch.Tensor:
    """Logarithms of the probabilities of each next token, given those of the answer before it."""
    first = model(input_ids=prompt, cache=cache, use_cache=True).logits[0, -1:]
    rest = model(input_ids=answer[None, :-1], cache=cache, use_cache=True).logits[0]
    return torch.cat([first, rest]).log_softmax(-1)
