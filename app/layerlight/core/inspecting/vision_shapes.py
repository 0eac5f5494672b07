"""config.json → the parameters of the vision towers that sit beside a language model, and their shapes."""

from __future__ import annotations

from layerlight.core.errors import BadRequest
from layerlight.core.inspecting.config_file import ConfigFile

VISION_TYPES = frozenset({"gemma3", "qwen2_5_vl"})
"""Model types whose language model sits beside a tower that is known here."""

MOST = 20_000
"""No length in a tower is as large."""

_SIGLIP = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_channels": 3, "image_size": 224,
    "patch_size": 16,
}  # fmt: skip
_QWEN = {
    "depth": 32, "hidden_size": 3584, "intermediate_size": 3420, "in_channels": 3, "patch_size": 14,
    "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 3584,
}  # fmt: skip
"""What transformers assumes where the config is silent."""


def vision_shapes(config: ConfigFile, text_width: int) -> dict[str, tuple[int, ...]]:
    """Tower and projector. `text_width` is the language model's hidden size. Raises BadRequest without a tower."""
    vision = config.content.get("vision_config")
    if not isinstance(vision, dict):
        raise BadRequest(
            "config.json does not describe the model's vision tower.",
            hint="Use the model's own, complete config.json.",
        )
    siglip = config.model_type == "gemma3"
    numbers = _numbers(vision, _SIGLIP if siglip else _QWEN)
    if not all(0 < numbers[name] < MOST for name in numbers):
        raise BadRequest(
            "config.json describes a vision tower that can't be.", hint="Use the model's own, complete config.json."
        )
    return _siglip(numbers, text_width) if siglip else _qwen(numbers)


def _numbers(vision: dict[str, object], defaults: dict[str, int]) -> dict[str, int]:
    found = dict(defaults)
    for name in defaults:
        value = vision.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            found[name] = value
    return found


def _siglip(numbers: dict[str, int], text_width: int) -> dict[str, tuple[int, ...]]:
    tower, hidden, patch = "model.vision_tower.", numbers["hidden_size"], numbers["patch_size"]
    patches = (numbers["image_size"] // patch) ** 2
    found: dict[str, tuple[int, ...]] = {
        tower + "embeddings.patch_embedding.weight": (hidden, numbers["num_channels"], patch, patch),
        tower + "embeddings.patch_embedding.bias": (hidden,),
        tower + "embeddings.position_embedding.weight": (patches, hidden),
    }
    for index in range(numbers["num_hidden_layers"]):
        layer = f"{tower}encoder.layers.{index}."
        for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
            found |= _biased(f"{layer}self_attn.{part}", hidden, hidden)
        found |= _biased(layer + "mlp.fc1", numbers["intermediate_size"], hidden)
        found |= _biased(layer + "mlp.fc2", hidden, numbers["intermediate_size"])
        for norm in ("layer_norm1", "layer_norm2"):
            found |= {f"{layer}{norm}.weight": (hidden,), f"{layer}{norm}.bias": (hidden,)}
    found |= {tower + "post_layernorm.weight": (hidden,), tower + "post_layernorm.bias": (hidden,)}
    projector = "model.multi_modal_projector."
    found[projector + "mm_input_projection_weight"] = (hidden, text_width)
    found[projector + "mm_soft_emb_norm.weight"] = (hidden,)
    return found


def _qwen(numbers: dict[str, int]) -> dict[str, tuple[int, ...]]:
    tower, hidden, patch = "model.visual.", numbers["hidden_size"], numbers["patch_size"]
    depth = numbers["temporal_patch_size"]
    found: dict[str, tuple[int, ...]] = {
        tower + "patch_embed.proj.weight": (hidden, numbers["in_channels"], depth, patch, patch)
    }
    for index in range(numbers["depth"]):
        block = f"{tower}blocks.{index}."
        found |= {block + "norm1.weight": (hidden,), block + "norm2.weight": (hidden,)}
        found |= _biased(block + "attn.qkv", 3 * hidden, hidden) | _biased(block + "attn.proj", hidden, hidden)
        for part in ("gate_proj", "up_proj"):
            found |= _biased(f"{block}mlp.{part}", numbers["intermediate_size"], hidden)
        found |= _biased(block + "mlp.down_proj", hidden, numbers["intermediate_size"])
    merged = hidden * numbers["spatial_merge_size"] ** 2
    found[tower + "merger.ln_q.weight"] = (hidden,)
    found |= _biased(tower + "merger.mlp.0", merged, merged)
    return found | _biased(tower + "merger.mlp.2", numbers["out_hidden_size"], merged)


def _biased(name: str, outputs: int, inputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}
