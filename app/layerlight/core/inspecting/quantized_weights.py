"""Weights that are quantised in their files already: which package they need, and what becomes of them without it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from layerlight.core.model import FLOAT_DTYPES, Tensor

_PACKAGES = {
    "gptq": ("gptqmodel", "optimum"), "awq": ("gptqmodel",), "compressed-tensors": ("compressed_tensors",),
    "bitsandbytes": ("bitsandbytes",), "hqq": ("hqq",), "quanto": ("optimum.quanto",), "aqlm": ("aqlm",),
    "torchao": ("torchao",), "eetq": ("eetq",), "vptq": ("vptq",), "spqr": ("spqr_quant",), "quark": ("quark",),
    "auto-round": ("auto_round",), "fbgemm_fp8": ("fbgemm_gpu",), "fp_quant": ("fp_quant",), "higgs": ("flute",),
}  # fmt: skip
"""Packages that transformers needs for weights quantised by a method, by their import names."""

_DEQUANTIZED = {"fp8": "fp8", "mxfp4": "mxfp4"}
"""Methods that transformers turns into bfloat16 on devices without them."""


def quantized_weights(method: str) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """((problem, hint), …) and notes for weights quantised by this `quant_method`."""
    notes = [f"Its weights are quantised already ({method})."]
    if method in _DEQUANTIZED:
        notes.append(f"Where a device has no {method}, the weights are turned into bfloat16 and grow.")
    absent = [package for package in _PACKAGES.get(method, ()) if not _installed(package)]
    if not absent:
        return (), tuple(notes)
    named = [package.replace("_", "-").replace(".", "-") for package in absent]
    problem = f"Its weights are quantised with {method}, which needs the package {' and '.join(named)}."
    hint = f"Install it with “pip install {' '.join(named)}”, or choose the original model."
    return ((problem, hint),), tuple(notes)


_PACKED = frozenset({"bitsandbytes", "gptq", "awq", "fp8", "mxfp4", "hqq", "aqlm", "fbgemm_fp8"})
"""Methods whose weights are never stored as plain floats."""


def plain_weights(method: str, tensors: Iterable[Tensor]) -> list[tuple[str, str]]:
    """(problem, hint) where config.json names a method and the files hold nothing but plain floats."""
    dtypes = {tensor.dtype for tensor in tensors}
    if method not in _PACKED or not dtypes or not dtypes <= FLOAT_DTYPES:
        return []
    held = " and ".join(sorted(dtypes))
    problem = f"config.json says that its weights are quantised with {method}, but the files hold plain {held}."
    hint = "Remove quantization_config from config.json to load the files as they are, or download the quantised ones."
    return [(problem, hint)]


def _installed(package: str) -> bool:
    """Whether a package is there, found without importing it."""
    return importlib.util.find_spec(package.partition(".")[0]) is not None
