"""bitsandbytes while loading: its settings, whether it runs here, and which modules stay as they are."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch

from layerlight.core.errors import BadRequest, BrokenModel
from layerlight.core.inspecting.quantized_weights import plain_weights
from layerlight.core.memory import FOUR_BIT_BLOCK, quantized_size
from layerlight.core.model import Tensor
from layerlight.engine.failures import LIBRARY_FAILURES, first_line

FOUR_BIT = ("nf4", "fp4", "nf4-double", "fp4-double")
_PACKED_ROWS = 32


def bitsandbytes_config(quantization: str, dtype: torch.dtype) -> Any:
    """transformers' settings for `nf4`, `fp4` or `int8`, computing in `dtype`."""
    from transformers import BitsAndBytesConfig

    if quantization in FOUR_BIT:
        return BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type=quantization.removesuffix("-double"),
            bnb_4bit_compute_dtype=dtype,
            bnb_4bit_use_double_quant=quantization.endswith("-double"),
        )
    return BitsAndBytesConfig(load_in_8bit=True)


def stored_bitsandbytes(stored: Any) -> str | None:
    """The format of weights that bitsandbytes quantised before they were saved, by config.json's entry; else None."""
    entry = _entry(stored)
    if entry.get("load_in_4bit"):
        double = "-double" if entry.get("bnb_4bit_use_double_quant") else ""
        return str(entry.get("bnb_4bit_quant_type", "nf4")) + double
    return "int8" if entry.get("load_in_8bit") else None


def require_packed(stored: Any, tensors: Iterable[Tensor]) -> None:
    """Raises BrokenModel where config.json's entry names a format and the files hold plain weights."""
    for problem, hint in plain_weights(str(_entry(stored).get("quant_method", "")), tensors):
        raise BrokenModel(problem, hint=hint)


def _entry(stored: Any) -> dict[str, Any]:
    return stored if isinstance(stored, dict) else stored.to_dict() if hasattr(stored, "to_dict") else {}


def require_quantization(quantization: str, places: set[str]) -> None:
    """Raises BadRequest unless bitsandbytes really runs this format on every one of `places`.

    It never mixes RAM with accelerators and never leaves a layer on disk.
    """
    if "disk" in places or ("cpu" in places and len(places) > 1):
        raise BadRequest(
            f"{quantization} needs all layers in RAM, or all on accelerators; "
            f"this plan uses {', '.join(sorted(places))}.",
            hint="Load it without quantisation, or give one kind of place enough room.",
        )
    for place in sorted(places):
        trouble = _probe(quantization, place)
        if trouble:
            raise BadRequest(
                f"{quantization} does not run on {place} here: {trouble}", hint="Load the model without quantisation."
            )


@cache
def _probe(quantization: str, place: str) -> str:
    """Quantises and multiplies one small matrix there; empty when that works, else why not."""
    try:
        import bitsandbytes

        quiet_bitsandbytes()
        if quantization in FOUR_BIT:
            layer = bitsandbytes.nn.Linear4bit(
                64, 64, bias=False, compute_dtype=torch.float32, quant_type=quantization.removesuffix("-double")
            )
        else:
            layer = bitsandbytes.nn.Linear8bitLt(64, 64, bias=False, has_fp16_weights=False)
        layer = layer.to(place)
        with torch.inference_mode():
            result = layer(torch.ones(1, 64, device=place, dtype=torch.float32))
        return "" if bool(torch.isfinite(result).all()) else "its result is not a number."
    except LIBRARY_FAILURES as error:
        return first_line(error)


def quiet_bitsandbytes() -> None:
    """Stops `inputs will be cast from bfloat16 to float16`, which is logged for every call of every layer."""
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)


def avoid_failing_kernels(model: torch.nn.Module) -> None:
    """Keeps 4-bit weights on the general kernel where bitsandbytes' AVX-512 one would fail in the first pass.

    It repacks rows in groups of 32 and scales in whole blocks, and raises for a weight that has other lengths.
    """
    for module in model.modules():
        if type(module).__name__ != "Linear4bit":
            continue
        state = getattr(module.weight, "quant_state", None)
        blocks = getattr(state, "blocksize", FOUR_BIT_BLOCK)
        if int(module.out_features) % _PACKED_ROWS or int(module.in_features) % blocks:  # type: ignore[arg-type]
            module.support_avx512bf16_for_cpu = False  # type: ignore[assignment]


def quantize_empty(model: Any, quantization: str, dtype: torch.dtype) -> None:
    """Replaces modules of an empty model as a load would, without touching weights."""
    from transformers.quantizers import AutoHfQuantizer

    quantizer = AutoHfQuantizer.from_config(bitsandbytes_config(quantization, dtype), pre_quantized=False)
    with torch.device("meta"):
        quantizer.preprocess_model(model=model, dtype=dtype, device_map={"": "cpu"})


def is_quantized(module: torch.nn.Module) -> bool:
    return type(module).__name__ in ("Linear4bit", "Linear8bitLt")


def unquantized_modules(model: torch.nn.Module) -> tuple[str, ...]:
    """Names of modules that hold large weights which quantising leaves alone: head, embeddings, fused experts."""
    names = []
    for name, module in model.named_modules():
        own = [parameter for parameter in module.parameters(recurse=False) if parameter.dim() >= 2]
        if own and not is_quantized(module):
            names.append(name)
    return tuple(names)


def quantized_bytes(module: torch.nn.Module, rows: int, elements: int) -> int:
    """Bytes of a quantised weight of this module with its scales, and the tables a 4-bit weight carries."""
    if type(module).__name__ == "Linear8bitLt":
        return quantized_size(elements, rows, "int8")
    double = bool(getattr(module.weight, "compress_statistics", False))
    return quantized_size(elements, rows, "nf4-double" if double else "nf4")
