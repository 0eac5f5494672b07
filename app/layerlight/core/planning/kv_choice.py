"""The KV caches that a plan may choose, and why a model or a machine can't have one."""

from __future__ import annotations

from collections.abc import Sequence

from layerlight.core.device import Machine, format_size
from layerlight.core.inspecting.layer_types import CHUNKED, FULL, HYBRID, LINEAR, SLIDING
from layerlight.core.model import TextShape
from layerlight.core.plan import PlaceUse
from layerlight.core.sizing.kv_cache import FP8

KV_CACHES = (FP8,)
"""What keys and values can be kept in besides the dtype they are computed in."""


def why_not(shape: TextShape, machine: Machine) -> str:
    """Why keys and values can't be kept in 8 bit, in a sentence; empty where they can.

    transformers quantises the cache of models whose layers all attend to every token. A device that was never asked
    whether it can is no reason to refuse.
    """
    return _unfit_shape(shape) or next(
        (
            f"{device.name} ({device.id}) can't keep keys and values in {FP8}: a small test of it failed."
            for device in machine.devices
            if device.caches is not None and FP8 not in device.caches
        ),
        "",
    )


def saved_words(kv: str, usual: Sequence[PlaceUse], packed: Sequence[PlaceUse]) -> str:
    """What a quantised cache leaves free at the peak, beside the same plan with the usual one, in a sentence."""
    saved = sum(use.used for use in usual) - sum(use.used for use in packed)
    if saved <= 0:
        return f"The KV cache in {kv} saves nothing here: turning it back takes as much as it leaves free."
    return f"The KV cache in {kv} takes {format_size(saved)} less at the peak; every pass turns it back."


def _unfit_shape(shape: TextShape) -> str:
    kinds = set(shape.layer_types or (FULL,))
    if shape.latent_rank is not None:
        return "Its layers keep latents in place of keys and values: those are small as they are."
    if kinds & {LINEAR, HYBRID}:
        return "Some of its layers keep a constant state in place of keys and values."
    if kinds & {SLIDING, CHUNKED}:
        return "Some of its layers keep a window of tokens, which can't be quantised."
    if kinds != {FULL}:
        return "Some of its layers keep nothing of their own, and use another layer's keys and values."
    return "" if shape.key_value_heads else "It has no keys and values to keep."
