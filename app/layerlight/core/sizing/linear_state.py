"""Layers without a KV cache (Mamba, gated delta, short convolution): the state they keep, and their inner widths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layerlight.core.inspecting.figures import first_figure
from layerlight.core.model import LinearShape

_MAMBA_2 = frozenset(
    {"granitemoehybrid", "granitemoehybrid_text", "bamba", "falcon_h1", "mamba2", "nemotron_h", "zamba2"}
)
_MAMBA_1 = frozenset({"mamba", "falcon_mamba", "jamba", "zamba"})
_DELTA = frozenset({"qwen3_next", "olmo_hybrid"})
_CONVOLUTION = frozenset({"lfm2", "lfm2_moe"})
_GROUPS = ("mamba_n_groups", "mamba_ngroups", "n_groups")

DELTA_CHUNK = 64
"""Tokens that the gated delta rule works on at once."""


def linear_shape(text: Mapping[str, Any], model_type: str, hidden: int) -> LinearShape | None:
    """The shape of such a layer; None for a model type that has none, or none that is known."""
    kind = _kind(model_type)
    if not kind:
        return None
    read = _Reader(text, model_type, hidden)
    width, channels = read.width(kind), read.channels(kind)
    return LinearShape(
        kind,
        width,
        read.heads(kind),
        {"mamba2": read.chunk(), "delta": DELTA_CHUNK}.get(kind, 0),
        channels * read.kernel(kind),
        width * read.state(kind),
        channels,
    )


def _kind(model_type: str) -> str:
    if model_type in _MAMBA_2:
        return "mamba2"
    if model_type in _MAMBA_1:
        return "mamba"
    if model_type in _CONVOLUTION:
        return "convolution"
    return "delta" if model_type in _DELTA or model_type.startswith("qwen3_5") else ""


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads figures under the names that each type gives them, with the library's defaults."""

    text: Mapping[str, Any]
    model_type: str
    hidden: int

    def figure(self, default: int, *names: str) -> int:
        return first_figure(self.text, names, None) or default

    def width(self, kind: str) -> int:
        match self.model_type:
            case "falcon_h1":
                return self.figure(self._expanded(), "mamba_d_ssm")
            case "nemotron_h":
                return self.heads(kind) * self.figure(64, "mamba_head_dim")
            case "mamba" | "falcon_mamba":
                return self.figure(self._expanded(), "intermediate_size")
        match kind:
            case "convolution":
                return self.hidden
            case "delta":
                return self.heads(kind) * self._delta_dims()[1]
        return self._expanded()

    def channels(self, kind: str) -> int:
        match kind:
            case "mamba2":
                groups = self.figure(8 if self.model_type in ("mamba2", "nemotron_h") else 1, *_GROUPS)
                return self.width(kind) + 2 * groups * self.state(kind)
            case "delta":
                return 2 * self._key_heads() * self._delta_dims()[0] + self.width(kind)
        return self.width(kind)

    def state(self, kind: str) -> int:
        """Float32 elements of the state for each element of the width."""
        match kind:
            case "convolution":
                return 0
            case "delta":
                return self._delta_dims()[0]
            case "mamba":
                return self.figure(16, "mamba_d_state", "state_size")
        usual = {"mamba2": 128, "nemotron_h": 128, "zamba2": 64}.get(self.model_type, 256)
        return self.figure(usual, "mamba_d_state", "ssm_state_size", "state_size")

    def kernel(self, kind: str) -> int:
        if kind == "convolution":
            return self.figure(3, "conv_L_cache")
        return self.figure(4, "linear_conv_kernel_dim" if kind == "delta" else "mamba_d_conv", "conv_kernel")

    def heads(self, kind: str) -> int:
        """Heads that work in chunks of the sequence; 0 where the layer has none."""
        match kind:
            case "mamba2":
                usual = 8 if self.model_type == "zamba2" else 128
                names = (
                    ("num_heads",)
                    if self.model_type == "mamba2"
                    else ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads")
                )
                return self.figure(usual, *names)
            case "delta":
                usual = self.figure(30, "num_attention_heads") if self.model_type == "olmo_hybrid" else 32
                return self.figure(usual, "linear_num_value_heads")
        return self.figure(2, "n_mamba_heads") if self.model_type == "zamba" else 0

    def chunk(self) -> int:
        return self.figure(128 if self.model_type == "nemotron_h" else 256, "mamba_chunk_size", "chunk_size")

    def _key_heads(self) -> int:
        usual = self.figure(30, "num_attention_heads") if self.model_type == "olmo_hybrid" else 16
        return self.figure(usual, "linear_num_key_heads")

    def _delta_dims(self) -> tuple[int, int]:
        """Elements of a (key, value) head."""
        if self.model_type != "olmo_hybrid":
            return self.figure(128, "linear_key_head_dim"), self.figure(128, "linear_value_head_dim")
        key = self.figure(int(0.75 * self.hidden / self._key_heads()), "linear_key_head_dim")
        return key, self.figure(2 * key, "linear_value_head_dim")

    def _expanded(self) -> int:
        return self.figure(2, "mamba_expand", "expand") * self.hidden
