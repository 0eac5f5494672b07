"""The model on the meta device: every module, no memory."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError

from layerlight.core.errors import BadRequest, BrokenModel, LayerlightError, NotAModel
from layerlight.core.inspecting import config_file
from layerlight.core.inspecting.config_values import HINT, implausible
from layerlight.core.inspecting.generation_file import generation_problems
from layerlight.core.messages import LoadRequest
from layerlight.engine.auto_class import auto_class
from layerlight.engine.failures import LIBRARY_FAILURES, loading_failure

log = logging.getLogger(__name__)

_ABOUT_ENTRIES = frozenset({
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, StrictDataclassError, TypeError,
})  # fmt: skip
"""What libraries raise for entries of a config; a ValueError tells in words what they do not know."""


def torch_dtype(name: str) -> torch.dtype:
    """torch's dtype of this name. Raises BadRequest when there is none."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise BadRequest(f"“{name}” is not a dtype that torch knows.", hint="Use bfloat16, float16 or float32.")
    return dtype


def read_config(request: LoadRequest) -> Any:
    """transformers' configuration of the folder; nothing in the folder is run. Raises what `config_of` raises."""
    config = config_of(Path(request.folder))
    config._attn_implementation = request.attention
    return config


def config_of(folder: Path) -> Any:
    """What transformers makes of config.json. Raises NotAModel where there is none, and LayerlightError by the entry's
    name for one that it can't use.
    """
    from transformers import AutoConfig

    if not folder.is_dir():
        raise NotAModel(f"{folder} is not a folder.", hint="Choose the folder that holds config.json.")
    if not (folder / "config.json").is_file():
        raise NotAModel(f"{folder.name} has no config.json.", hint="Choose the folder that holds config.json.")
    if (folder / "config.json").read_bytes().startswith(b"\xef\xbb\xbf"):
        raise BrokenModel(
            f"config.json of {folder.name} begins with a byte-order mark, which makes it invalid JSON.",
            hint="Save the file again as UTF-8 without a byte-order mark.",
        )
    _require_plausible(folder)
    try:
        return AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except LIBRARY_FAILURES as error:
        log.exception("no config in %s", folder)
        failure = _config_failure(error, folder)
    raise failure


def _require_plausible(folder: Path) -> None:
    """Raises BrokenModel for entries that no model can have, and for settings that are none."""
    problems = [(each, HINT) for each in implausible(config_file.read_config(folder / "config.json"))]
    for problem, hint in (*problems, *generation_problems(folder)):
        raise BrokenModel(problem, hint=hint)


def _config_failure(error: Exception, folder: Path) -> LayerlightError:
    """Why no model can be made of a config: by the name of the entry, where the library names one."""
    found = loading_failure(error, folder.name)
    if isinstance(error, LayerlightError) or not _ABOUT_ENTRIES.intersection(type(error).__mro__):
        return found
    content = config_file.read_config(folder / "config.json").content
    told = str(error).replace(" ", "_")
    named = [entry for entry in sorted(content) if re.search(rf"(?<![^\W_]){re.escape(entry)}(?![^\W_])", told)]
    which = f": look at {' and '.join(named[:3])}" if named else ""
    return BrokenModel(f"config.json of {folder.name} does not describe a model that can be built{which}.", hint=HINT)


def empty_model(config: Any, request: LoadRequest) -> Any:
    """The model on the meta device: every module, no memory."""
    try:
        with torch.device("meta"):
            model = auto_class(config).from_config(
                config, dtype=torch_dtype(request.dtype), trust_remote_code=False, attn_implementation=request.attention
            )
    except LIBRARY_FAILURES as error:
        log.exception("no empty model of %s", request.folder)
        failure = _config_failure(error, Path(request.folder))
    else:
        model.eval()
        return model
    raise failure
