"""TextRequest → token ids: a chat where the model has a template, plain completion where not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerlight.core.characters import mended
from layerlight.core.errors import BadRequest, BrokenModel, PromptTooLong, RunFailed
from layerlight.core.messages import ChatMessage, TextRequest
from layerlight.core.sampling import require_sensible
from layerlight.engine.chat_template import as_parts, render, wants_parts
from layerlight.engine.failures import LIBRARY_FAILURES

log = logging.getLogger(__name__)

LONGEST_TOKEN = 1000
"""Characters a token of a prompt stands for on average at the most: no tokenizer comes near it."""
PIECE = 2**18
"""Characters of a long prompt that are counted at once, between two looks for a stop."""
SEAM = 16
"""Tokens that counting in pieces may count too many at each cut."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ids ready to run, and what the context leaves for the answer in tokens."""

    ids: tuple[int, ...]
    context: int
    max_new_tokens: int
    cut_by_context: bool
    """True when the context, not the request, limits the answer."""


def prepare(
    request: TextRequest,
    tokenizer: Any,
    context: int,
    vocabulary: int,
    check: Callable[[], None] = lambda: None,
) -> Prompt:
    """Counts the prompt against the context before anything runs; `check` is called often, and may raise.

    Raises BadRequest for what can't be run at all, PromptTooLong with the counts when no room for an answer is left,
    BrokenModel for a chat template that can't be used.
    """
    require_sensible(request)
    characters = sum(len(message.content) for message in request.messages)
    if characters > LONGEST_TOKEN * context:
        raise _too_long(f"It has {characters:,} characters", context)
    ids = encode(request.messages, tokenizer, context, check)
    if not ids:
        raise BadRequest("The prompt holds nothing that this model's tokenizer knows.", hint="Write something else.")
    if max(ids) >= vocabulary:
        raise RunFailed(
            f"The tokenizer knows more words ({max(ids) + 1}) than the model ({vocabulary}).",
            hint="The tokenizer files belong to another model; download the model again.",
        )
    room = context - len(ids)
    if room < 1:
        raise _too_long(f"It has {len(ids)} tokens", context)
    return Prompt(tuple(ids), context, min(request.max_new_tokens, room), room < request.max_new_tokens)


def encode(
    messages: Sequence[ChatMessage],
    tokenizer: Any,
    context: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> list[int]:
    """Ids of the prompt, with exactly one token at its beginning that begins texts, where this model has one.

    Raises PromptTooLong as soon as it is known not to fit `context`.
    """
    template = getattr(tokenizer, "chat_template", None)
    if template:
        chosen = _one_of(template, tokenizer)
        said = as_parts if wants_parts(chosen) else str
        turns = [{"role": message.role, "content": said(clean(message.content))} for message in messages]
        text = render(chosen, turns, tokenizer.special_tokens_map, check, name_of(tokenizer))
    else:
        text = "\n\n".join(clean(message.content) for message in messages if message.content)
    if context is not None:
        _refuse_early(text, tokenizer, context, check)
    ids = _ids(text, tokenizer, special=not template)
    return _with_one_beginning(ids if template else _without_end(ids, tokenizer), tokenizer)


def name_of(tokenizer: Any) -> str:
    """The folder that a tokenizer came from, as people know it."""
    return Path(str(getattr(tokenizer, "name_or_path", "") or "this model")).name


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


def _one_of(template: Any, tokenizer: Any) -> str:
    """The default of several named templates."""
    if isinstance(template, dict):
        template = template.get("default")
    if not isinstance(template, str):
        raise BrokenModel(
            f"{name_of(tokenizer)} has several chat templates, and none of them is the default one.",
            hint="Download the model's tokenizer_config.json again.",
        )
    return template


def _refuse_early(text: str, tokenizer: Any, context: int, check: Callable[[], None]) -> None:
    """Raises PromptTooLong for a long text once its pieces hold more than fits; nothing stops a tokenizer midway."""
    count = 0
    for start in range(0, len(text) if len(text) > PIECE else 0, PIECE):
        check()
        count += max(0, len(_ids(text[start : start + PIECE], tokenizer, special=False)) - SEAM)
        if count >= context:
            raise _too_long(f"It has {len(text):,} characters, which are more than {count:,} tokens", context)
    check()


def _ids(text: str, tokenizer: Any, *, special: bool) -> list[int]:
    try:
        return list(tokenizer(text, add_special_tokens=special)["input_ids"])
    except LIBRARY_FAILURES:
        log.exception("the tokenizer broke")
    raise BrokenModel(
        f"The tokenizer of {name_of(tokenizer)} breaks on this prompt.",
        hint="Download the model's tokenizer files again.",
    )


def _too_long(found: str, context: int) -> PromptTooLong:
    return PromptTooLong(
        f"{found}; the context holds {context}, answer included.",
        hint="Shorten the prompt, start a new chat, or load the model with a longer context.",
    )


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
