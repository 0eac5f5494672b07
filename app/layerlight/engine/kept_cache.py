"""The KV cache of the last answer, kept so that a prompt which begins the same runs only what is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

LEAST = 64
"""Tokens that are worth keeping. What a chat template begins every conversation with is shorter: in half precision,
passes of other lengths round otherwise, and a first question's answer should not hang on what was asked before it."""

Layout = tuple[tuple[str, str], ...]
"""(layer, where it runs): a layer's part of the cache lies there too."""


@dataclass(slots=True)
class BegunCache:
    """The cache that a prompt begins with, holding its first `reused` tokens.

    None where the library must make it: families whose cache can't be cut back, or is of a kind of its own.
    """

    cache: Any
    reused: int = 0

    def drop(self) -> None:
        self.cache, self.reused = None, 0


class KeptCache:
    """Holds at most one cache, with the ids that it holds. It belongs to one loaded model, and goes with it."""

    def __init__(self) -> None:
        self.drop()

    def __len__(self) -> int:
        """Tokens that it holds."""
        return len(self._ids)

    def drop(self) -> None:
        """Lets go of it."""
        self._cache: Any = None
        self._ids: tuple[int, ...] = ()
        self._layout: Layout = ()
        self._prompt = 0
        self._last_pass = 0

    def take(self, model: Any, ids: Sequence[int], layout: Layout, context: int) -> BegunCache:
        """The cache for this prompt, cut back to what both begin with, or a new one. Nothing is kept any longer.

        A prompt that is repeated runs its last pass again as it ran then: the same seed gives the same text, to the
        last bit of what it was drawn from.
        """
        reused = self._alike(ids) if layout == self._layout else 0
        cache, held = self._cache, len(self._ids)
        self.drop()
        if reused < LEAST or not can_be_cut(cache):
            return BegunCache(new_cache(model, context))
        with torch.inference_mode():
            cache.crop(reused - held)
        return BegunCache(cache, reused)

    def keep(self, begun: BegunCache, prompt: Sequence[int], answer: Sequence[int], layout: Layout, chunk: int) -> None:
        """Keeps of a run's cache what is whole: a stop may have left some layers a pass ahead of the others.

        `chunk` is the number of tokens that a pass of the prompt had.
        """
        cache = begun.cache
        if cache is None or not can_be_cut(cache):
            return
        # the last token of an answer has not run, and behind it drafts may lie that were wrong
        whole = min(_whole(cache, passed=bool(answer)), len(prompt) + max(0, len(answer) - 1))
        if whole < LEAST:
            return
        with torch.inference_mode():
            for layer in _holding(cache):
                layer.crop(whole - layer.get_seq_length())
        self._cache, self._layout = cache, layout
        self._ids = (*prompt, *answer)[:whole]
        self._prompt = len(prompt)
        self._last_pass = begun.reused + (len(prompt) - begun.reused - 1) // chunk * chunk

    def _alike(self, ids: Sequence[int]) -> int:
        """How many first ids of a prompt need not run; its last one must, for what it says."""
        if self._cache is None:
            return 0
        same = 0
        for kept, wanted in zip(self._ids, ids[:-1], strict=False):
            if kept != wanted:
                break
            same += 1
        repeated = len(ids) == self._prompt and same == len(ids) - 1 and self._ids[same : same + 1] == (ids[-1],)
        return min(same, self._last_pass) if repeated else same


def new_cache(model: Any, context: int) -> Any:
    """The cache that transformers would make for this model, or None where one could not be cut back.

    Some models turn keys another way once the text is longer than they were first made for: what an earlier pass left
    would not be what a new one computes, unless no text within `context` gets there.
    """
    from transformers import DynamicCache, GenerationMixin

    ours = getattr(type(model), "_prepare_cache_for_generation", None) is GenerationMixin._prepare_cache_for_generation
    config = model.config.get_text_config(decoder=True)
    if not ours or not model._supports_default_dynamic_cache() or turns_by_length(config, context):
        return None
    cache = DynamicCache(config=config)
    return cache if can_be_cut(cache) else None


def can_be_cut(cache: Any) -> bool:
    """Whether tokens can be taken off its end so that nothing is left of them.

    A state that each token changes (Mamba, linear attention, convolutions) remembers them, and a window that has slid
    has lost what came before: its class says `is_croppable` all the same, and raises. Classes are asked one by one, as
    models bring layers of their own that inherit from these.
    """
    from transformers.cache_utils import DummyLayer, DynamicIndexedLayer, DynamicLayer, DynamicSlidingWindowLayer

    from layerlight.engine.fp8_layer import Fp8Layer  # a class of the library's: it needs all of it

    for layer in cache.layers:
        kind = type(layer)
        if kind is DynamicSlidingWindowLayer:
            if layer.record_past or layer.get_seq_length() >= layer.sliding_window:
                return False
        elif kind not in (DynamicLayer, DynamicIndexedLayer, DummyLayer, Fp8Layer):
            return False
    return True


def _holding(cache: Any) -> Iterator[Any]:
    """Layers of the cache that hold keys and values; others use those of a layer before them."""
    return (layer for layer in cache.layers if layer.is_initialized and layer.keys is not None)


def _whole(cache: Any, *, passed: bool) -> int:
    """Tokens that every layer holds. Unless a whole pass was done, a layer that holds nothing was not reached."""
    if not passed and not all(layer.is_initialized for layer in cache.layers):
        return 0
    return min((int(layer.get_seq_length()) for layer in _holding(cache)), default=0)


def turns_by_length(config: Any, context: int) -> bool:
    """Whether positions count another way once a text is long, and a text within `context` may get there."""
    told = getattr(config, "rope_parameters", None) or {}
    for each in (told, *told.values()):
        if isinstance(each, dict) and each.get("rope_type") in ("dynamic", "longrope"):
            first = each.get("original_max_position_embeddings") or getattr(config, "max_position_embeddings", None)
            if context > (first or 0):
                return True
    return False
