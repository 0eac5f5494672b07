"""A folder that holds a config and no weights yet: it can be planned, not run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from layerlight.core.device import format_size
from layerlight.core.inspecting.config_file import read_config
from layerlight.core.inspecting.config_model import model_from_config
from layerlight.core.inspecting.plain_file import read_json
from layerlight.core.inspecting.weight_files import INDEX
from layerlight.core.inspection import require_runnable
from layerlight.core.model import Model

_ALIKE = 0.02
"""The computed size and the index's may differ by this part: files hold odds and ends beside the weights."""


def is_config_alone(model: Model) -> bool:
    """Whether an inspected folder describes a language model of which no weight file is there."""
    return model.kind.generates_text and model.shape is not None and not model.files


def require_plannable(model: Model, tokenizer: bool = True) -> Model:
    """What can be planned for an inspected folder: the same model, or one from its config where no weights are.

    Raises what `require_runnable` and `model_from_config` raise.
    """
    if not is_config_alone(model):
        return require_runnable(model, tokenizer)
    folder = Path(model.folder)
    config = read_config(folder / "config.json")
    if config.problem:
        return require_runnable(model, tokenizer)
    found = model_from_config(config.content, model.name, model.folder)
    return replace(found, notes=(*found.notes, *_told_by_index(folder, found)))


def _told_by_index(folder: Path, model: Model) -> tuple[str, ...]:
    """A word where the index of the weights, which may be there without them, tells another size."""
    try:
        content = read_json(folder / INDEX)
    except (OSError, ValueError):
        return ()
    metadata = content.get("metadata") if isinstance(content, dict) else None
    told = metadata.get("total_size") if isinstance(metadata, dict) else None
    if not isinstance(told, int) or told <= 0 or abs(told - model.size) <= _ALIKE * told:
        return ()
    return (f"{INDEX} tells of {format_size(told)}, the config of {format_size(model.size)}.",)
