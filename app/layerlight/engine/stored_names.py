"""What the weight files hold, by their headers, against the parameters of the empty model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from layerlight.core.errors import BrokenModel
from layerlight.core.inspecting.safetensors_header import read_safetensors_header
from layerlight.core.inspecting.weight_files import find_weight_files
from layerlight.core.model import Tensor
from layerlight.engine.misfits import require_fitting


def stored_tensors(folder: Path, config: Any) -> tuple[Tensor, ...]:
    """The tensors that a load would open; none for pickles, which have no header.

    Raises BrokenModel when a file is missing or cut short, before any memory is taken.
    """
    named = {"transformers_weights": getattr(config, "transformers_weights", None)}
    weights = find_weight_files(folder, frozenset(os.listdir(folder)), named)
    for problem, hint in weights.problems:
        raise BrokenModel(problem, hint=hint)
    if weights.pickled:
        return ()
    return tuple(tensor for file in weights.files for tensor in read_safetensors_header(folder / file, file))


def absent_parameters(model: Any, tensors: Iterable[Tensor]) -> frozenset[str]:
    """Parameters that no file holds under their own name, prefixed by the base model or not.

    They are made while loading: merged, cut, or read from a pickle.
    """
    held = {tensor.name for tensor in tensors}
    prefix = f"{model.base_model_prefix}."
    known = held | {prefix + name for name in held} | {name.removeprefix(prefix) for name in held}
    tied = set(getattr(model, "all_tied_weights_keys", None) or {})
    return frozenset({name for name, _ in model.named_parameters()} - known - tied)


def require_shapes(model: Any, tensors: Iterable[Tensor], name: str) -> None:
    """Raises BrokenModel, naming them, where tensors in the files are not shaped as the config says.

    Names are matched as transformers does it; tensors that it merges, cuts or turns are left to the load itself.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    wanted: Mapping[str, Any] = model.state_dict()
    mapping = get_model_conversion_mapping(model)
    renamings = [each for each in mapping if isinstance(each, WeightRenaming)]
    converters = [each for each in mapping if isinstance(each, WeightConverter)]
    misshapen = []
    for tensor in tensors:
        target, converter = rename_source_key(tensor.name, renamings, converters, model.base_model_prefix, wanted)
        if target not in wanted and tensor.name in wanted:
            target, converter = tensor.name, None
        if converter is None and target in wanted and tuple(wanted[target].shape) != tensor.shape:
            misshapen.append((target, tensor.shape, tuple(wanted[target].shape)))
    require_fitting(name, misshapen=misshapen)
