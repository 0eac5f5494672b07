"""Names in the files → modules of the loaded model, and those modules → the layers a plan moves whole.

transformers renames tensors while it loads: it adds the base model's prefix where a file lacks it, and gives older
names their present form. The rules here are its rules for causal and vision-language models; the engine later checks
the result against the empty model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from layerlight.core.inspecting.config_defaults import config_defaults
from layerlight.core.inspecting.expert_modules import experts_module
from layerlight.core.model import LayerKind

_PREFIXES = {
    **dict.fromkeys(("bloom", "codegen", "ctrl", "falcon", "gpt-sw3", "gpt2", "gpt_bigcode"), "transformer"),
    **dict.fromkeys(("gpt_neo", "gptj", "mpt", "openai-gpt", "xlm", "xlnet"), "transformer"),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "xlstm"), "backbone"),
    **{name: name for name in ("gpt_neox", "gpt_neox_japanese", "biogpt", "rwkv", "cpmant")},
}
"""The base model's attribute where it is not `model`."""

_TO_MLP = ((r"\.block_sparse_moe\.", ".mlp."),)
_TO_EXPERTS = (
    (r"\.block_sparse_moe\.input_linear\.weight$", ".block_sparse_moe.experts.gate_up_proj"),
    (r"\.block_sparse_moe\.output_linear\.weight$", ".block_sparse_moe.experts.down_proj"),
)
_RENAMED = {
    **dict.fromkeys(("mixtral", "minimax", "kimi_linear"), _TO_MLP),
    "phimoe": (*_TO_MLP, (r"\.mlp\.gate\.weight$", ".mlp.router.weight")),
    **dict.fromkeys(("granitemoe", "granitemoe_swa", "granitemoehybrid", "granitemoeshared"), _TO_EXPERTS),
    "gpt_neox": ((r"^embed_out\.", "lm_head."),),
    "nemotron_h": ((r"^backbone\.", "model."),),
    "deepseek_v4": ((r"^head\.", "lm_head."),),
    "bailing_hybrid": ((r"\.word_embeddings\.", ".embed_tokens."),),
    "sarvam_moe": ((r"\.word_embeddings\.", ".embed_tokens."),),
    "exaone": (
        (r"^transformer\.wte\.", "model.embed_tokens."),
        (r"^transformer\.h\.", "model.layers."),
        (r"^transformer\.ln_f\.", "model.norm."),
    ),
}
"""(pattern, replacement) by type: what transformers renames while loading, as far as it changes a layer."""

_HEADS = {
    "xlnet": "lm_loss",
    "biogpt": "output_projection",
    "gpt_neox_japanese": "embed_out",
    "rwkv": "head",
    "modernbert-decoder": "decoder",
}
_ROOTS = frozenset(
    {"lm_head", "embed_out", "output_projection", "head", "decoder", "pred_layer", "lm_loss", "proj_out"}
)
"""Modules beside the base model, never below its prefix."""

TEXT_ONLY = frozenset({"qwen3_5", "qwen3_5_moe", "llama4", "mllama", "qwen4_exp", "emu3", "dots3_note"})
"""Types whose whole files AutoModelForCausalLM loads as their language model alone."""

_WITHOUT_ROTARY = """
bart biogpt bloom cpmant ctrl falcon_mamba gpt-sw3 gpt2 gpt_bigcode gpt_neo glm5_next granitemoehybrid inkling2
inkling2_loop inkling2_loop_text inkling2_text inkling_mm_model inkling_text jamba kimi_linear mamba mamba2 moshi mpt
nemotron_h openai-gpt opt recurrent_gemma rwkv xglm xlm xlnet xlstm zamba zamba2
"""
_NO_ROTARY = frozenset(_WITHOUT_ROTARY.split())
_BUFFERS = {
    "gpt_bigcode": ("transformer.bias",),
    "openai-gpt": ("transformer.position_ids",),
    "recurrent_gemma": ("model.normalizer",),
    "xglm": ("model.embed_positions",),
    "ctrl": ("transformer.pos_encoding",),
    "granite_swa": ("model.rotary_emb", "model.rotary_embs"),
    "granitemoe_swa": ("model.rotary_emb", "model.rotary_embs"),
}
"""What holds no weights, only buffers computed at start, beside or in place of one `rotary_emb`."""

_NOT_LOADED = re.compile(r"(^|\.)mtp(_layers)?\.|rotary_emb\.inv_freq$|(^|\.)position_ids$")
_CAUSAL_MASKS = re.compile(r"(^|\.)(attn|attention|crossattention)\.(masked_bias|bias|causal_mask)$")
_MASKED = frozenset({"gpt2", "gpt-sw3", "gpt_neo", "gptj", "gpt_neox", "codegen"})

_TOWER = re.compile(
    r"vision|visual|vit\b|image|audio|speech|video|projector|projection|multi_modal|multimodal|connector|merger|aligner"
    r"|perceiver|resampler|vqmodel|embed_tokens_extend|^model\.generation_|separator"
)
_EMBEDDING = re.compile(r"embed|^w[tp]?e?$|emb$")
OTHER_EMBEDDINGS = re.compile(r"pos|wpe|per_layer|type|extend")
"""Embeddings of positions and the like, not of tokens."""
_NORM = re.compile(r"norm|^ln|layernorm|ln_f$")


@dataclass(frozen=True, slots=True)
class NameRules:
    """How one model's names are read. `nested` says that its language model sits beside towers."""

    model_type: str
    nested: bool = False
    layers: int | None = None
    """Decoder layers that the config promises; tensors of later ones are not loaded."""
    rotary: bool = False
    """True where the config adds rotary positions to a type that usually has none."""

    @property
    def prefix(self) -> str:
        return _PREFIXES.get(self.model_type, "model")

    @property
    def head(self) -> str:
        return _HEADS.get(self.model_type, "lm_head")

    @property
    def experts(self) -> str | None:
        """The path of a decoder layer's experts, where a plan may keep them apart from it."""
        return experts_module(self.model_type)


def loaded_name(name: str, rules: NameRules) -> str | None:
    """The parameter's name in the loaded model, experts unfused; None for a tensor that the loader leaves out."""
    if _NOT_LOADED.search(name) or (rules.model_type in _MASKED and _CAUSAL_MASKS.search(name)):
        return None
    if rules.nested:
        name = _nested_name(name)
    if rules.model_type in TEXT_ONLY:
        if any(_TOWER.search(part) for part in name.split(".")[:2]):
            return None
        name = name.replace("model.language_model.", "model.", 1)
    for pattern, replacement in _RENAMED.get(rules.model_type, ()):
        name = re.sub(pattern, replacement, name)
    known = config_defaults(rules.model_type) is not None
    if known and name.partition(".")[0] not in {rules.prefix, *_ROOTS}:
        name = f"{rules.prefix}.{name}"
    elif known and rules.prefix == "model" and name.startswith("decoder.") and rules.head != "decoder":
        name = f"model.{name}"
    found = _NUMBERED.search(name)
    beyond = found and rules.layers is not None and int(found[2]) >= rules.layers
    return None if beyond and not _TOWER.search(name) else name


def _nested_name(name: str) -> str:
    """Today's name: towers and the language model side by side below `model`, the head at the root."""
    name = re.sub(r"^(model\.)?language_model\.lm_head\.", "lm_head.", name)
    name = re.sub(r"^(model\.)?language_model\.(model\.)+", "model.language_model.", name)
    name = re.sub(r"^language_model\.", "model.language_model.", name)
    return re.sub(r"^model\.(?=(embed_tokens|layers|norm|rotary_emb)\.)", "model.language_model.", name)


_NUMBERED = re.compile(r"^((?:[A-Za-z_][A-Za-z0-9_]*\.)*?)(\d{1,6})\.")


def stack_of(names: Iterable[str]) -> str | None:
    """The dotted path of the list that holds the decoder layers, `model.layers`: the longest list outside towers."""
    longest: dict[str, int] = {}
    for name in names:
        found = _NUMBERED.match(name)
        if found:
            path = found[1].rstrip(".")
            longest[path] = max(longest.get(path, 0), int(found[2]))
    texts = [path for path in longest if not _TOWER.search(path)] or list(longest)
    return max(texts, key=lambda path: (longest[path], -len(path)), default=None)


def unit_of(name: str, stack: str | None, experts: str | None = None) -> str:
    """The module moved whole that holds this parameter.

    A decoder layer, or its experts where they lie at this path; a whole tower beside the stack; else the module next
    below the path that leads to the stack.
    """
    parts = name.split(".")
    if stack is None:
        return parts[0] if len(parts) > 1 else name
    way = stack.split(".")
    depth = 0
    while depth < min(len(way), len(parts)) and parts[depth] == way[depth]:
        depth += 1
    if depth == len(way):
        layer = ".".join(parts[: depth + 1])
        return f"{layer}.{experts}" if experts and name.startswith(f"{layer}.{experts}.") else layer
    return ".".join(parts[: min(depth + 1, len(parts))])


def kind_of(unit: str, stack: str | None, rules: NameRules) -> LayerKind:
    last = unit.rpartition(".")[2]
    if stack and unit.startswith(stack + "."):
        return LayerKind.DECODER if last.isdigit() else LayerKind.EXPERTS
    if unit in _ROOTS or unit == rules.head:
        return LayerKind.HEAD
    if last.startswith("rotary"):
        return LayerKind.OTHER
    if rules.nested and _TOWER.search(unit) and not _in_language_model(unit, stack):
        return LayerKind.TOWER
    if _NORM.search(last):
        return LayerKind.NORM
    if _EMBEDDING.search(last):
        return LayerKind.EMBEDDING
    return LayerKind.OTHER


def _in_language_model(unit: str, stack: str | None) -> bool:
    """Whether it lies beside the stack in a language model that has a module of its own, as Gemma 4's projections."""
    around = (stack or "").rpartition(".")[0]
    return "." in around and unit.startswith(around + ".")


def buffer_modules(stack: str | None, rules: NameRules) -> tuple[str, ...]:
    """Modules that hold no weights but buffers: a device map must name them too."""
    if rules.model_type in _BUFFERS:
        return _BUFFERS[rules.model_type]
    none = rules.model_type in _NO_ROTARY and not rules.rotary
    if stack is None or none or config_defaults(rules.model_type) is None:
        return ()
    return (stack.rpartition(".")[0] + ".rotary_emb",)
