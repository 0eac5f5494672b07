"""Which of a model's parameters lie in its files under their own name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from layerlight.core.errors import BrokenModel
from layerlight.core.safetensors_header import read_safetensors_header
from layerlight.core.weight_files import find_weight_files


def absent_parameters(model: Any, folder: Path, config: Any) -> frozenset[str]:
    """Parameters that no safetensors file holds under their own name, prefixed by the base model or not.

    They are made while loading: merged, cut, or read from a pickle. Raises BrokenModel when a file is missing or cut
    short, before any memory is taken.
    """
    held = _names_in_files(folder, config)
    prefix = f"{model.base_model_prefix}."
    known = held | {prefix + name for name in held} | {name.removeprefix(prefix) for name in held}
    tied = set(getattr(model, "all_tied_weights_keys", None) or {})
    return frozenset({name for name, _ in model.named_parameters()} - known - tied)


def _names_in_files(folder: Path, config: Any) -> set[str]:
    """Names of the tensors that a load would open, whole files checked; empty for pickles, which have no header."""
    named = {"transformers_weights": getattr(config, "transformers_weights", None)}
    weights = find_weight_files(folder, frozenset(os.listdir(folder)), named)
    for problem, hint in weights.problems:
        raise BrokenModel(problem, hint=hint)
    if weights.pickled:
        return set()
    return {tensor.name for file in weights.files for tensor in read_safetensors_header(folder / file, file)}
