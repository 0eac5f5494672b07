"""The model on the meta device: every module, no memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from layerlight.core.errors import BadRequest, BrokenModel, NotAModel
from layerlight.core.messages import LoadRequest
from layerlight.engine.failures import LIBRARY_FAILURES, loading_failure


def torch_dtype(name: str) -> torch.dtype:
    """torch's dtype of this name. Raises BadRequest when there is none."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise BadRequest(f"“{name}” is not a dtype that torch knows.", hint="Use bfloat16, float16 or float32.")
    return dtype


def read_config(request: LoadRequest) -> Any:
    """transformers' configuration of the folder; nothing in the folder is run."""
    from transformers import AutoConfig

    folder = Path(request.folder)
    if not folder.is_dir():
        raise NotAModel(f"{request.folder} is not a folder.", hint="Choose the folder that holds config.json.")
    if not (folder / "config.json").is_file():
        raise NotAModel(f"{folder.name} has no config.json.", hint="Choose the folder that holds config.json.")
    if (folder / "config.json").read_bytes().startswith(b"\xef\xbb\xbf"):
        raise BrokenModel(
            f"config.json of {folder.name} begins with a byte-order mark, which makes it invalid JSON.",
            hint="Save the file again as UTF-8 without a byte-order mark.",
        )
    try:
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except LIBRARY_FAILURES as error:
        failure = loading_failure(error, folder.name)
    else:
        config._attn_implementation = request.attention
        return config
    raise failure


def empty_model(config: Any, request: LoadRequest) -> Any:
    """The model on the meta device: every module, no memory."""
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                config, dtype=torch_dtype(request.dtype), trust_remote_code=False, attn_implementation=request.attention
            )
    except LIBRARY_FAILURES as error:
        failure = loading_failure(error, Path(request.folder).name)
    else:
        model.eval()
        return model
    raise failure
