"""Prompt lookup: the next tokens are drafted from the text so far, and one pass checks several of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from layerlight.core.errors import BadRequest
from layerlight.core.messages import Drafts
from layerlight.engine.kept_cache import turns_by_length
from layerlight.engine.prompt_passes import pieces_add_up


@dataclass(slots=True)
class DraftCount:
    """What was drafted, and what of it the model would have written itself."""

    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    _in_pass: int = 0

    def expect(self, drafted: int) -> None:
        """A pass begins that checks so many drafted tokens."""
        self._in_pass = drafted

    def passed(self, tokens: int) -> None:
        """It gave so many: those that were right, and one of the model's own."""
        self.passes += 1
        self.drafted += self._in_pass
        self.accepted += tokens - 1

    def told(self) -> Drafts:
        return Drafts(self.passes, self.drafted, self.accepted)


def require_lookup(model: Any, context: int) -> None:
    """Raises BadRequest where checking several tokens in a pass would not give the tokens that single passes give.

    It does everywhere else, up to rounding: in half precision a pass of several tokens rounds otherwise than one of a
    single token, and where two tokens are as good as equally likely the other one may be taken.
    """
    why = _hindrance(model, context)
    if why:
        raise BadRequest(f"Prompt lookup can't be used here: {why}.", hint="Turn prompt lookup off.")


def _hindrance(model: Any, context: int) -> str:
    from transformers import DynamicCache, GenerationMixin
    from transformers.cache_utils import DummyLayer, DynamicIndexedLayer, DynamicLayer, DynamicSlidingWindowLayer

    takes_back = (DynamicLayer, DynamicIndexedLayer, DynamicSlidingWindowLayer, DummyLayer)
    config = model.config.get_text_config(decoder=True)
    ours = getattr(type(model), "_prepare_cache_for_generation", None) is GenerationMixin._prepare_cache_for_generation
    if not ours or model._is_stateful or not model._supports_default_dynamic_cache() or not pieces_add_up(model):
        return "this kind of model carries a state along that can't be taken back when a drafted token was wrong"
    if not all(type(layer) in takes_back for layer in DynamicCache(config=config).layers):
        return "some layers of this model keep a state that can't be taken back when a drafted token was wrong"
    if turns_by_length(config, context):
        return "this model counts positions another way in long texts, and a draft may reach beyond the text"
    return ""


def room_for_drafts(tokens: int, context: int, drafts: int) -> int:
    """Tokens that may be written with drafts after `tokens`: transformers lets a draft reach beyond the last token that
    is asked for, and it must not reach beyond the context."""
    return max(0, context - tokens + 2 - drafts)


@contextmanager
def going_on(model: Any, count: DraftCount, entrance: Any) -> Iterator[None]:
    """While it lasts, drafts are checked behind what a cache holds, and counted; `entrance` is where ids are brought.

    transformers' assisted decoding begins with the whole text in one pass, whatever its cache holds already, and brings
    ids to where the first weight lies, which is nowhere while that one is carried.
    """
    library = type(model)

    def prepare(self: Any, ids: Any, next_sequence_length: int | None = None, cache: Any = None, **others: Any) -> Any:
        tokens = ids.shape[1] - cache.get_seq_length() if next_sequence_length is None else next_sequence_length
        count.expect(tokens - 1)
        return library.prepare_inputs_for_generation(self, ids, next_sequence_length=tokens, cache=cache, **others)

    functools.update_wrapper(prepare, library.prepare_inputs_for_generation)  # its parameters are looked at
    changed = {"prepare_inputs_for_generation": prepare, "device": property(lambda _model: entrance)}
    model.__class__ = type(library.__name__, (library,), changed)
    try:
        yield
    finally:
        model.__class__ = library
