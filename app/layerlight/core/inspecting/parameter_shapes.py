"""config.json → the parameters of a language model and their shapes, as transformers would build them.

Experts of a layer are one parameter each way, as they are held in memory. Buffers are left out. Only architectures
whose parameters were compared with the library are here: a shape that is guessed would make a plan that is wrong.
"""

from __future__ import annotations

from layerlight.core.errors import BadRequest
from layerlight.core.inspecting.config_file import ConfigFile
from layerlight.core.inspecting.decoder_shapes import COMPLETE, DECODER_TYPES, Numbers, Shapes, decoder_layer
from layerlight.core.inspecting.text_shape import tied_embeddings
from layerlight.core.inspecting.vision_shapes import VISION_TYPES, vision_shapes
from layerlight.core.model import TextShape

COMPUTED_TYPES = DECODER_TYPES | {"gpt2"}
"""Model types whose parameters are known from the config alone."""

MOST_LAYERS = 2000
"""More than any model has: a config that promises more is broken."""

_ONLY_EXPERTS = frozenset({"mixtral", "gpt_oss", "glm4_moe", "deepseek_v3"})
"""Types whose configs can't leave the number of experts out."""


def parameter_shapes(config: ConfigFile, shape: TextShape) -> Shapes:
    """Shape by parameter name, in the model's order. Raises BadRequest for an architecture that is not known here, and
    for a config without a number that its shapes depend on.
    """
    if config.model_type not in COMPUTED_TYPES:
        raise BadRequest(
            f"The weights of the model type “{config.model_type}” can't be computed from its config alone.",
            hint="Download the weight files too: their headers tell the rest.",
        )
    if shape.layers > MOST_LAYERS:
        raise BadRequest(f"config.json promises {shape.layers} layers.", hint="Use the model's own config.json.")
    if config.model_type == "gpt2":
        return _gpt2(config, shape)
    numbers = Numbers(config.text)
    if config.model_type in _ONLY_EXPERTS and not shape.experts:
        raise BadRequest("config.json does not say how many experts there are.", hint=COMPLETE)
    nested = config.model_type in VISION_TYPES
    prefix = "model.language_model." if nested else "model."
    found = vision_shapes(config, shape.hidden_size) if nested else {}
    found[prefix + "embed_tokens.weight"] = (shape.vocabulary, shape.hidden_size)
    for index in range(shape.layers):
        layer = decoder_layer(config.model_type, numbers, shape, index)
        found.update({f"{prefix}layers.{index}.{name}": lengths for name, lengths in layer.items()})
    found[prefix + "norm.weight"] = (shape.hidden_size,)
    if not tied_embeddings(config):
        found["lm_head.weight"] = (shape.vocabulary, shape.hidden_size)
    return found


# -- GPT-2 -------------------------------------------------------------------------------------------------------------


def _gpt2(config: ConfigFile, shape: TextShape) -> Shapes:
    """Its matrices lie the other way round: input by output."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    positions = shape.context_length or 1024
    found: Shapes = {
        "transformer.wte.weight": (shape.vocabulary, hidden),
        "transformer.wpe.weight": (positions, hidden),
    }
    for index in range(shape.layers):
        layer = f"transformer.h.{index}."
        found |= _norm(layer + "ln_1", hidden) | _turned(layer + "attn.c_attn", hidden, 3 * hidden)
        found |= _turned(layer + "attn.c_proj", hidden, hidden) | _norm(layer + "ln_2", hidden)
        found |= _turned(layer + "mlp.c_fc", hidden, inner) | _turned(layer + "mlp.c_proj", inner, hidden)
    found |= _norm("transformer.ln_f", hidden)
    if not tied_embeddings(config):
        found["lm_head.weight"] = (shape.vocabulary, hidden)
    return found


def _turned(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (inputs, outputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}
