"""config.json alone → Model: for planning before the weights are there, and for models that nobody has at hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from layerlight.core.errors import BadRequest, WrongKindOfModel
from layerlight.core.inspecting.architecture import judge
from layerlight.core.inspecting.config_file import ConfigFile
from layerlight.core.inspecting.layers import COMPONENT, layers_of, name_rules, tie
from layerlight.core.inspecting.parameter_shapes import parameter_shapes
from layerlight.core.inspecting.pipeline_folder import most_common_dtype
from layerlight.core.inspecting.text_shape import MOST_LAYERS, promised_layers, text_shape
from layerlight.core.model import DTYPE_SIZES, Component, Model, Tensor

_KEPT_WHOLE = ("norm", ".gate.", "router", "embed_tokens", "lm_head", "wte", "wpe", "visual", "vision")
"""Parts that files in fp8 leave in the model's dtype."""

_MXFP4_BLOCK = 32
"""Elements that share one scale in mxfp4, two elements in a byte."""


def model_from_config(config: Mapping[str, Any], name: str, folder: str = "") -> Model:
    """The model that this config.json describes, with every tensor's exact shape and stored size, and without files.

    `parameters` counts each weight once, however it is stored. A tensor's name is the loaded model's, and its file is
    empty. Raises WrongKindOfModel for what is no language model, and BadRequest for an architecture, a config or a
    quantisation that does not tell its shapes by itself.
    """
    read = ConfigFile(config)
    verdict = judge(read, chat_template=False)
    shape = text_shape(read) if verdict.kind.generates_text else None
    if shape is None:
        if verdict.kind.generates_text and (promised_layers(read) or 0) > MOST_LAYERS:
            raise BadRequest(
                f"config.json promises {promised_layers(read)} layers.", hint="Use the model's own config.json."
            )
        why = verdict.problems[0][0] if verdict.problems else "config.json does not describe a language model's layers."
        raise WrongKindOfModel(f"{name}: {why}", hint="Choose a chat or base text model.")
    dtype, notes = _dtype(read)
    shapes = parameter_shapes(read, shape)
    rules = name_rules(read, shape.layers)
    whole = [_tensor(each, dtype, lengths) for each, lengths in shapes.items()]
    counts = {layer.name: layer.parameters for layer in layers_of(whole, rules)[0]}
    stored = [part for tensor in whole for part in _as_stored(tensor, read)]
    layers, _ = layers_of(stored, rules)
    layers, tied, _ = tie(layers, rules, read, {})
    layers = tuple(replace(layer, parameters=counts.get(layer.name, 0)) for layer in layers)
    return Model(
        folder,
        verdict.kind,
        verdict.architecture,
        (Component(COMPONENT, verdict.architecture, sum(layer.size for layer in layers)),),
        layers,
        most_common_dtype(stored),
        name,
        shape,
        tied=tied,
        quantization=read.quantization,
        config_dtype=dtype,
        notes=("Its sizes are computed from config.json: no weight file was read.", *notes),
    )


def _dtype(config: ConfigFile) -> tuple[str, tuple[str, ...]]:
    """The dtype of the files, as far as the config says."""
    if config.dtype is not None:
        return config.dtype, ()
    assumed = "float32" if config.model_type == "gpt2" else "bfloat16"
    return assumed, (f"config.json names no dtype: {assumed} is assumed.",)


def _tensor(name: str, dtype: str, shape: tuple[int, ...]) -> Tensor:
    return Tensor(name, dtype, shape, math.prod(shape) * DTYPE_SIZES[dtype], "")


# -- weights that are quantised in their files -------------------------------------------------------------------------


def _as_stored(tensor: Tensor, config: ConfigFile) -> tuple[Tensor, ...]:
    """The tensors that hold this parameter in the files."""
    match config.quantization:
        case None:
            return (tensor,)
        case "fp8":
            return _fp8(tensor, config)
        case "mxfp4":
            return _mxfp4(tensor)
        case method:
            raise BadRequest(
                f"How weights quantised with {method} are packed can't be told from the config alone.",
                hint="Download the weight files too: their headers tell the rest.",
            )


def _fp8(tensor: Tensor, config: ConfigFile) -> tuple[Tensor, ...]:
    """One byte an element and one float32 scale a block, or a matrix where the config names no blocks."""
    found = config.content.get("quantization_config")
    settings = found if isinstance(found, dict) else {}
    skipped = settings.get("modules_to_not_convert")
    kept = [*_KEPT_WHOLE, *(str(each) for each in skipped)] if isinstance(skipped, list) else _KEPT_WHOLE
    if len(tensor.shape) < 2 or any(part in f"{tensor.name}." for part in kept):
        return (tensor,)
    *outer, rows, columns = tensor.shape
    block = settings.get("weight_block_size")
    if isinstance(block, list) and len(block) == 2 and all(isinstance(each, int) and each > 0 for each in block):
        scales = (*outer, -(-rows // block[0]), -(-columns // block[1]))
    else:
        scales = (*outer, 1)
    return (
        _tensor(tensor.name, "float8_e4m3fn", tensor.shape),
        _tensor(f"{tensor.name}_scale_inv", "float32", scales),
    )


def _mxfp4(tensor: Tensor) -> tuple[Tensor, ...]:
    """Only the experts' matrices: half a byte an element and one byte a block."""
    if len(tensor.shape) != 3 or ".experts." not in tensor.name:
        return (tensor,)
    experts, inputs, outputs = tensor.shape
    blocks = -(-inputs // _MXFP4_BLOCK)
    return (
        _tensor(f"{tensor.name}_blocks", "uint8", (experts, outputs, blocks, _MXFP4_BLOCK // 2)),
        _tensor(f"{tensor.name}_scales", "uint8", (experts, outputs, blocks)),
    )
