"""The KV cache that a request asks for, where it is not the library's usual one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from layerlight.core.errors import BadRequest
from layerlight.core.planning.kv_choice import KV_CACHES
from layerlight.engine.kept_cache import BegunCache

if TYPE_CHECKING:
    from layerlight.engine.loading import LoadedModel


def cache_for(begun: BegunCache, loaded: LoadedModel) -> Any:
    """The cache that a run begins with: a quantised one where it is asked for and none was kept; None where the library
    makes its own. Where a cache of this model can be cut back, the new one takes its place and is kept as well."""
    if not loaded.request.kv or begun.reused:
        return begun.cache
    cache = quantized_cache(loaded.config)
    if begun.cache is not None:
        begun.cache = cache
    return cache


def require_cache(kv: str, config: Any) -> None:
    """Raises BadRequest where this model's keys and values can't be kept in `kv`."""
    if kv and kv not in KV_CACHES:
        raise BadRequest(f"“{kv}” is no KV cache.", hint=f"Use {' or '.join(KV_CACHES)}, or leave it out.")
    if kv:
        quantized_cache(config)


def quantized_cache(config: Any) -> Any:
    """An empty cache in fp8. Raises BadRequest for models that transformers has none for."""
    from transformers.cache_utils import Cache, QuantizedCache

    from layerlight.engine.fp8_layer import Fp8Layer

    try:
        usual = QuantizedCache("fp8", config)
    except ValueError as error:
        raise BadRequest(
            "This model's KV cache can't be kept in 8 bit: some of its layers do not attend to every token.",
            hint="Leave the KV cache as it is.",
        ) from error
    return Cache(layers=[Fp8Layer() for _ in usual.layers])
