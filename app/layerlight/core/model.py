"""What a model folder holds: components, layers and exact bytes, known without reading a weight."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from layerlight.core.sizing.told_bytes import ToldBytes


class ModelKind(StrEnum):
    CHAT = "chat"
    BASE = "base text"
    ENCODER = "encoder"
    IMAGE = "image pipeline"
    ADAPTER = "adapter only"
    GGUF = "GGUF"
    UNKNOWN = "unknown"

    @property
    def generates_text(self) -> bool:
        return self in (ModelKind.CHAT, ModelKind.BASE)


class LayerKind(StrEnum):
    EMBEDDING = "embedding"
    DECODER = "decoder layer"
    EXPERTS = "experts"
    """Those of one decoder layer, beside what else it holds."""
    NORM = "norm"
    HEAD = "head"
    TOWER = "tower"
    OTHER = "other"


DTYPE_SIZES = {
    "float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2,
    "complex64": 8, "uint64": 8, "uint32": 4, "uint16": 2, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1, "uint8": 1, "bool": 1, "float4_e2m1fn_x2": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""Bytes per element by torch's dtype names."""

FLOAT_DTYPES = frozenset({"float64", "float32", "float16", "bfloat16"})


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in a file: `size` in bytes as stored, `dtype` by torch's name."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    file: str

    @property
    def elements(self) -> int:
        count = 1
        for length in self.shape:
            count *= length
        return count


@dataclass(frozen=True, slots=True)
class Layer:
    """A unit the plan moves whole. `name` is the module's name in the loaded model, `size` bytes as stored."""

    name: str
    component: str
    kind: LayerKind
    parameters: int
    size: int
    index: int | None = None
    """The number of a decoder layer, also of the one whose experts these are; else None."""
    tensors: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Component:
    """A part loaded by itself: `model` for a language model, `unet`, `vae`, … in a pipeline."""

    name: str
    class_name: str
    size: int


@dataclass(frozen=True, slots=True)
class LinearShape:
    """A layer that keeps a constant state in place of a KV cache; lengths in elements."""

    kind: str
    """`mamba`, `mamba2`, `delta` (gated delta rule) or `convolution`."""
    width: int
    """Elements of a token inside the layer."""
    heads: int
    chunk: int
    """Tokens that its slow path works on at once; 0 where it has none."""
    convolution: int
    """Elements of the state that is kept in the model's dtype."""
    recurrence: int
    """Elements of the state that is kept in float32."""
    channels: int
    """Elements of a token that pass its convolution."""


@dataclass(frozen=True, slots=True)
class TextShape:
    """Numbers of config.json that decide KV cache and working memory; lengths in elements, context in tokens."""

    model_type: str
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    key_value_heads: int
    head_dim: int
    vocabulary: int
    context_length: int | None = None
    layer_types: tuple[str, ...] = ()
    """`full_attention`, `sliding_attention`, `chunked_attention`, … per layer; empty when all are full."""
    sliding_window: int | None = None
    latent_rank: int | None = None
    """`kv_lora_rank` of multi-head latent attention."""
    latent_rope_dim: int | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    linear: LinearShape | None = None
    """Of the layers whose type is `linear_attention` or `hybrid`."""
    query_dim: int | None = None
    """Elements of a query head in latent attention."""
    value_dim: int | None = None
    """Elements of a value head in latent attention."""
    index_dim: int | None = None
    """Elements a token that an index of latent attention keeps (`index_head_dim`)."""
    full_head_dim: int | None = None
    """Of full attention, where it differs from `head_dim`."""
    full_key_value_heads: int | None = None
    expert_size: int | None = None
    """Elements inside one expert."""
    shared_expert_size: int = 0
    """Elements inside the experts that every token passes."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model folder, inspected. `size` counts tied weights once."""

    folder: str
    kind: ModelKind
    architecture: str
    components: tuple[Component, ...]
    layers: tuple[Layer, ...]
    dtype: str | None
    """The dtype of most bytes in the files; None when there are no weights."""
    name: str = ""
    shape: TextShape | None = None
    files: tuple[str, ...] = ()
    """Weight files the loader opens, relative to the folder."""
    tied: tuple[tuple[str, ...], ...] = ()
    """Groups of layer names that share weights: they rest together."""
    quantization: str | None = None
    """`quant_method` already in the files (gptq, awq, bitsandbytes, fp8, …)."""
    chat_template: bool = False
    tokenizer: bool = False
    problems: tuple[str, ...] = ()
    """Why it can't be run, in words; empty when it can."""
    notes: tuple[str, ...] = ()
    hint: str = ""
    """What to do about the first problem."""
    pickled: bool = False
    """True when the weights are pickles, which only the safe reader may open."""
    tokenizer_problem: str = ""
    """The one of `problems` that is about the tokenizer: it keeps the model from answering, not from being planned."""
    config_dtype: str | None = None
    """The dtype that config.json names for computing: what weights become that are stored in fp8 or packed."""
    told: tuple[ToldBytes, ...] = ()
    """What the empty model has said, the newest first."""

    @property
    def size(self) -> int:
        return sum(layer.size for layer in self.layers)

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def context_length(self) -> int | None:
        return self.shape.context_length if self.shape else None

    def layer(self, name: str) -> Layer:
        return next(layer for layer in self.layers if layer.name == name)
