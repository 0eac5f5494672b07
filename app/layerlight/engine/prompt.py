"""TextRequest → token ids: a chat where the model has a template, plain completion where not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from layerlight.core.characters import mended
from layerlight.core.errors import BadRequest, PromptTooLong, RunFailed
from layerlight.core.messages import ChatMessage, TextRequest

LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ids ready to run, and what the context leaves for the answer in tokens."""

    ids: tuple[int, ...]
    context: int
    max_new_tokens: int
    cut_by_context: bool
    """True when the context, not the request, limits the answer."""


def require_sensible(request: TextRequest) -> None:
    """Raises BadRequest for settings that no run can honour. Temperature 0 is greedy, top_k 0 is off."""
    settings = (
        ("The temperature", request.temperature, 0 <= request.temperature <= 100, "between 0 and 100"),
        ("top_p", request.top_p, 0 < request.top_p <= 1, "above 0 and at most 1"),
        ("top_k", request.top_k, request.top_k >= 0, "0 (off) or more"),
        ("The repetition penalty", request.repetition_penalty, 0 < request.repetition_penalty <= 100, "above 0"),
        ("The number of new tokens", request.max_new_tokens, request.max_new_tokens >= 1, "at least 1"),
        ("The seed", request.seed, 0 <= request.seed <= LARGEST_SEED, f"between 0 and {LARGEST_SEED}"),
    )
    for name, value, sensible, allowed in settings:
        if math.isnan(value) or not sensible:
            raise BadRequest(f"{name} can't be {value}.", hint=f"It must be {allowed}.")
    if not any(message.content.strip() for message in request.messages if message.role != "system"):
        raise BadRequest("The prompt is empty.", hint="Write something first.")


def prepare(request: TextRequest, tokenizer: Any, context: int, vocabulary: int) -> Prompt:
    """Counts the prompt against the context before anything runs.

    Raises BadRequest for what can't be run at all, PromptTooLong with the counts when no room for an answer is left.
    """
    require_sensible(request)
    ids = encode(request.messages, tokenizer)
    if not ids:
        raise BadRequest("The prompt holds nothing that this model's tokenizer knows.", hint="Write something else.")
    if max(ids) >= vocabulary:
        raise RunFailed(
            f"The tokenizer knows more words ({max(ids) + 1}) than the model ({vocabulary}).",
            hint="The tokenizer files belong to another model; download the model again.",
        )
    room = context - len(ids)
    if room < 1:
        raise PromptTooLong(
            f"It has {len(ids)} tokens; the context holds {context}, answer included.",
            hint="Shorten the prompt, start a new chat, or load the model with a longer context.",
        )
    return Prompt(tuple(ids), context, min(request.max_new_tokens, room), room < request.max_new_tokens)


def encode(messages: Sequence[ChatMessage], tokenizer: Any) -> list[int]:
    """Ids of the prompt, with exactly one token at its beginning that begins texts, where this model has one."""
    if getattr(tokenizer, "chat_template", None):
        text = _from_template(messages, tokenizer)
        ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    else:
        text = "\n\n".join(clean(message.content) for message in messages if message.content)
        ids = list(tokenizer(text, add_special_tokens=True)["input_ids"])
        ids = _without_end(ids, tokenizer)
    return _with_one_beginning(ids, tokenizer)


def clean(text: str) -> str:
    """Text that every tokenizer takes: lone halves of surrogate pairs and NUL become �."""
    return mended(text).replace("\0", "�")


def end_tokens(tokenizer: Any, *configs: Any) -> tuple[int, ...]:
    """Every id that ends an answer: the union of what tokenizer, config and generation config say, sorted."""
    found: set[int] = set()
    for holder in (tokenizer, *configs):
        ids = getattr(holder, "eos_token_id", None)
        found.update(each for each in (ids if isinstance(ids, (list, tuple)) else [ids]) if isinstance(each, int))
    for marker in ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|end_of_turn|>", "<|return|>"):
        if marker in (getattr(tokenizer, "chat_template", None) or ""):
            index = tokenizer.convert_tokens_to_ids(marker)
            if isinstance(index, int) and index != getattr(tokenizer, "unk_token_id", None):
                found.add(index)
    return tuple(sorted(found))


def _from_template(messages: Sequence[ChatMessage], tokenizer: Any) -> str:
    import jinja2

    turns = [{"role": message.role, "content": clean(message.content)} for message in messages]
    try:
        return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
    except (jinja2.TemplateError, TypeError, ValueError, KeyError) as error:
        words = str(error).strip().splitlines()
        raise BadRequest(
            f"The model's chat template refuses this conversation: {words[0] if words else type(error).__name__}",
            hint="Some models take no system message, and most want user and assistant in turn.",
        ) from None


def _with_one_beginning(ids: list[int], tokenizer: Any) -> list[int]:
    """Templates often write the beginning themselves, and some tokenizers add one: neither twice nor never."""
    begin = getattr(tokenizer, "bos_token_id", None)
    if begin is None:
        return ids
    rest = ids
    while rest[:1] == [begin]:
        rest = rest[1:]
    wants = len(rest) < len(ids) or list(tokenizer("a")["input_ids"])[:1] == [begin]
    return [begin, *rest] if wants else rest


def _without_end(ids: list[int], tokenizer: Any) -> list[int]:
    """A few tokenizers end every text; a text to be gone on with has no end yet."""
    end = getattr(tokenizer, "eos_token_id", None)
    begin = getattr(tokenizer, "bos_token_id", None)
    return ids[:-1] if len(ids) > 1 and end is not None and ids[-1] == end and end != begin else ids
