"""How many tokens of a prompt run in one pass."""

from __future__ import annotations

from typing import Any

SMALLER = 4
"""By how much passes shrink after memory ran out."""
SMALLEST = 16
"""Tokens a pass is not made smaller than: its tensors are few beside what is taken anyway."""

_LOSES_STATE = ("x_proj", "x_proj_weight", "conv1d_state")
"""What modules hold whose passes of several tokens begin from nothing, read in transformers: Mamba in its first form
(Mamba, FalconMamba, Jamba, Zamba) hands its scan no state, RecurrentGemma pads its convolution anew."""


def tokens_a_pass(model: Any, planned: int, tokens: int) -> int:
    """As planned, or the whole prompt where its pieces would not add up to it."""
    return planned if can_be_split(model) and pieces_add_up(model) else max(planned, tokens)


def smaller_passes(model: Any, planned: int, tokens: int) -> int:
    """Tokens a pass after memory ran out. Where the library splits prompts at all, single tokens always add up."""
    if not can_be_split(model):
        return max(planned, tokens)
    return max(SMALLEST, min(planned, tokens) // SMALLER) if pieces_add_up(model) else 1


def pieces_add_up(model: Any) -> bool:
    """Whether a pass of several tokens goes on from the state that the pass before it left.

    Without that a prompt in pieces would silently be another one: only its last piece would count.
    """
    return not any(hasattr(module, name) for module in model.modules() for name in _LOSES_STATE)


def can_be_split(model: Any) -> bool:
    """Whether transformers can split prompts for it: it counts what ran by the length of an attention's cache."""
    from transformers import DynamicCache

    config = model.config.get_text_config(decoder=True)
    return bool(model._supports_default_dynamic_cache()) and not all(DynamicCache(config=config).is_linear)
