"""What a quantised cache holds and takes, against transformers' own classes, run."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache, QuantizedCache, QuantizedLayer

from layerlight.core.model import TextShape
from layerlight.core.sizing.kv_cache import kv_bytes, turned_back_bytes
from layerlight.engine.cache_choice import quantized_cache
from tests.core.models import dense

pytestmark = pytest.mark.engine

LAYERS = 3
SHAPES = {"multi-head": (4, 4), "grouped": (4, 2), "multi-query": (4, 1)}

MAKERS: dict[str, Callable[[LlamaConfig], Any]] = {
    "usual": lambda config: DynamicCache(),
    "the library's fp8": lambda config: QuantizedCache("fp8", config),
    "our fp8": quantized_cache,
}


def shape_of(heads: int, key_value_heads: int) -> TextShape:
    found = dense(LAYERS, heads=heads, key_value_heads=key_value_heads).shape
    assert found is not None
    return replace(found, layers=LAYERS)


def config_of(shape: TextShape) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_dim=shape.head_dim,
    )


def states(shape: TextShape, tokens: int, dtype: torch.dtype, batch: int, device: str = "cpu") -> torch.Tensor:
    return torch.ones((batch, shape.key_value_heads, tokens, shape.head_dim), dtype=dtype, device=device)


def held(value: Any) -> int:
    """Bytes of the tensors in a layer of a cache."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(held(each) for each in value.values())
    return sum(held(each) for each in value) if isinstance(value, tuple | list) else 0


@pytest.mark.parametrize("heads", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("maker", ["usual", "the library's fp8", "our fp8"])
def test_the_bytes_of_a_cache_are_what_the_formula_says(
    heads: tuple[int, int], dtype: str, batch: int, maker: str
) -> None:
    shape, backend = shape_of(*heads), "fp8" if "fp8" in maker else None
    cache = MAKERS[maker](config_of(shape))
    for tokens in (64, 64, 1, 1):
        new = states(shape, tokens, getattr(torch, dtype), batch)
        for index in range(LAYERS):
            cache.update(new, new, index)
    real = sum(held(vars(layer)) for layer in cache.layers)
    said = sum(kv_bytes(shape, index, 130, dtype, batch, backend) for index in range(LAYERS))
    assert said == pytest.approx(real, abs=8 * LAYERS * batch)
    if backend:
        whole = sum(kv_bytes(shape, index, 130, dtype, batch) for index in range(LAYERS))
        assert real < 0.51 * whole


def test_fp8_takes_none_of_the_integers_settings_and_only_full_attention() -> None:
    """Why no plan of a model with windows or a constant state may ask for it."""
    config = config_of(shape_of(4, 2))
    with pytest.raises(ValueError, match="does not support"):
        QuantizedCache("fp8", config, nbits=4)
    config.layer_types = ["sliding_attention"] * LAYERS
    config.sliding_window = 16
    with pytest.raises(ValueError, match="full attention"):
        QuantizedCache("fp8", config)


class Packing(QuantizedLayer):
    """transformers' layer of integers with a packing of its own, so that its other arithmetic runs without hqq."""

    def _quantize(self, tensor: torch.Tensor, axis: int) -> torch.Tensor:
        return tensor

    def _dequantize(self, q_tensor: torch.Tensor) -> torch.Tensor:
        return q_tensor


@pytest.mark.parametrize("prompt", [1, 100, 128, 500])
def test_integers_keep_at_most_127_tokens_as_they_are(prompt: int) -> None:
    shape = shape_of(4, 2)
    layer = Packing()
    layer.update(*2 * (states(shape, prompt, torch.bfloat16, 1),))
    fresh = []
    for _ in range(300):
        layer.update(*2 * (states(shape, 1, torch.bfloat16, 1),))
        fresh.append(layer.keys.shape[-2] if layer.keys.dim() == 4 else 0)
    assert max(fresh) == 127


@pytest.mark.parametrize("heads", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_turning_back_takes_what_the_formula_says(heads: tuple[int, int], dtype: str) -> None:
    shape = shape_of(*heads)
    cache = quantized_cache(config_of(shape))
    first, new = (states(shape, tokens, getattr(torch, dtype), 1, "meta") for tokens in (999, 1))
    cache.update(first, first, 0)
    before = held((cache.layers[0]._quantized_keys, cache.layers[0]._quantized_values))
    with Alive() as alive:
        cache.update(new, new, 0)
    now = kv_bytes(shape, 0, 1000, dtype, cache="fp8")
    said = turned_back_bytes(shape, 0, 1000, dtype)
    assert said == pytest.approx(before + alive.peak - now, rel=0.01)


class Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the memory that operators return, until it is let go."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = self.peak = 0
        self._known: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self._count(result.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes()
        self.alive += size
        self.peak = max(self.peak, self.alive)
        self._known[key] = weakref.finalize(storage, self._let_go, key, size)

    def _let_go(self, key: int, size: int) -> None:
        self.alive -= size
        del self._known[key]
