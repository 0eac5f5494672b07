"""What the libraries say that a model takes, asked on the meta device; true for the settings it was asked with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layerlight.core.sizing.work import Work


@dataclass(frozen=True, slots=True)
class ToldBytes:
    """One answer of the empty model. Weights depend on dtype and quantisation, cache and work on all but the latter."""

    dtype: str
    quantization: str | None
    attention: str
    context: int
    chunk: int
    layers: tuple[tuple[str, int], ...] = ()
    """(layer, bytes once loaded); empty where the files' own format decides them."""
    kv: tuple[int, ...] = ()
    """What the cache of each decoder layer holds after a prompt as long as the context; empty where nobody can tell."""
    work: Work | None = None
    """Of one prompt's last whole chunk, computed as the CPU does, without quantisation."""


def told_weights(told: Sequence[ToldBytes], dtype: str, quantization: str | None) -> dict[str, int]:
    """Bytes by layer once loaded like this; empty when that was not asked."""
    for each in told:
        if (each.dtype, each.quantization) == (dtype, quantization) and each.layers:
            return dict(each.layers)
    return {}


def told_cache(told: Sequence[ToldBytes], dtype: str, context: int, chunk: int) -> tuple[int, ...]:
    """Bytes by decoder layer; empty when that was not asked."""
    for each in told:
        if (each.dtype, each.context, each.chunk) == (dtype, context, chunk) and each.kv:
            return each.kv
    return ()


def told_work(told: Sequence[ToldBytes], dtype: str, attention: str, context: int, chunk: int) -> Work | None:
    """None when that was not asked."""
    for each in told:
        if (each.dtype, each.attention, each.context, each.chunk) == (dtype, attention, context, chunk) and each.work:
            return each.work
    return None


def with_answer(told: Sequence[ToldBytes], answer: ToldBytes) -> tuple[ToldBytes, ...]:
    """The answers with a new one first, which takes the place of an older one to the same question."""
    asked = (answer.dtype, answer.quantization, answer.attention, answer.context, answer.chunk)
    others = (
        each for each in told if (each.dtype, each.quantization, each.attention, each.context, each.chunk) != asked
    )
    return (answer, *others)
