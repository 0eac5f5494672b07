"""Bytes that one pass needs beside weights and cache: what is alive at once in its most demanding stage.

Every figure counts the tensors that transformers' own code holds at that line, in elements a token. They were measured:
on the meta device type by type, where a test holds them within 5 to 10 %, and as peaks of the CPU's kernels on the
simulated accelerator, within 5 %. What differs on other kinds of devices was read in the libraries and never measured:
softmax and attention kernels on CUDA, ROCm, XPU and Metal. What the empty model tells of one model goes before it all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from layerlight.core.inspecting.layer_types import FULL, HYBRID, LINEAR, NOTHING
from layerlight.core.model import DTYPE_SIZES, TextShape
from layerlight.core.sizing.kv_cache import elements_per_token, head_dim, key_value_heads, tokens_held, window_of
from layerlight.core.sizing.work import Work

FUSED_SOFTMAX = frozenset({"cuda", "rocm"})
"""Kinds of device whose softmax reads half precision and writes float32 without a copy in between: read in torch's
`softmax.int`, which asks for CUDA (ROCm calls itself so too); not measured."""


@dataclass(frozen=True, slots=True)
class _Habits:
    """What a model type's code holds that others' don't."""

    mlp: int = 3
    """Tensors of the MLP's inner width at once: gate, up and product."""
    hidden: int = 0
    """Further tensors of the model's width in the MLP."""
    streams: int = 0
    """Further tensors of the model's width throughout."""
    fused: bool = False
    """Queries, keys and values are views of one tensor, which stays."""
    scores: tuple[int, int] = (1, 2)
    """Scores at the softmax: so many in the model's dtype, so many in float32, a copied input among these."""
    expert: int = 4
    """Tensors of the experts' inner width at once."""
    masks: int = 1
    """Masks that are made, needed or not."""
    every_expert: bool = False
    """Every token passes every expert, and is multiplied with zero."""


_HABITS = {
    "gpt2": _Habits(4, 2, fused=True, scores=(2, 0)), "bloom": _Habits(4, 4, fused=True, scores=(3, 2)),
    "mpt": _Habits(3, 3, fused=True, scores=(2, 2)), "gpt_bigcode": _Habits(2, 3, fused=True),
    "falcon": _Habits(2, 2, fused=True, scores=(4, 0)), "gpt_neox": _Habits(2, 1, fused=True),
    "phi3": _Habits(4, fused=True), "phi": _Habits(3, 3), "glm4": _Habits(4), "nemotron_h": _Habits(2),
    "gpt_oss": _Habits(scores=(3, 0), expert=9), "llama4_text": _Habits(scores=(2, 0), every_expert=True),
    "qwen2_moe": _Habits(masks=2), "gemma3n_text": _Habits(hidden=7, streams=12),
}  # fmt: skip
_USUAL = _Habits()

_ALL_LOGITS = frozenset({"mamba2"})
"""Types that compute the logits of every token of a chunk."""

_SAMPLING = 32
"""Bytes an entry of the vocabulary while a token is drawn: scores, sorted scores, their order and probabilities."""


def working_bytes(
    shape: TextShape,
    context: int,
    dtype: str,
    attention: str,
    chunk: int,
    batch: int = 1,
    device_kind: str = "cpu",
) -> int:
    """Most bytes of a pass beside weights and cache, for a prompt of up to `context` tokens read in chunks."""
    return work_of(shape, context, dtype, attention, chunk, batch, device_kind).most


def work_of(
    shape: TextShape,
    context: int,
    dtype: str,
    attention: str,
    chunk: int,
    batch: int = 1,
    device_kind: str = "cpu",
    told: Work | None = None,
    kv: str = "",
) -> Work:
    """The same with what lies beside carried weights, and beside a cache that is kept in `kv`.

    `told` is what the empty model says of the last whole chunk, which it computes as the CPU does: it takes the place
    of the formula, but for what differs on other kinds of devices.
    """
    passes = _passes(shape, context, dtype, attention, chunk, device_kind, kv)
    works = [each.work() for each in passes]
    if told is not None:
        first = works[0]
        usual = _passes(shape, context, dtype, attention, chunk, "cpu")[0].work()
        works[0] = Work(
            max(told.most + first.most - usual.most, passes[0].logits()),
            max(told.in_modules + first.in_modules - usual.in_modules, passes[0].logits()),
        )
    return Work(batch * max(each.most for each in works), batch * max(each.in_modules for each in works))


def experts_bytes(shape: TextShape, context: int, dtype: str, chunk: int, batch: int = 1) -> int:
    """Most bytes in RAM of a pass whose experts alone run there: hidden states come in and go back beside them."""
    return batch * max(each.in_experts() for each in _passes(shape, context, dtype, "sdpa", chunk, "cpu"))


def _passes(
    shape: TextShape, context: int, dtype: str, attention: str, chunk: int, device_kind: str, kv: str = ""
) -> list[_Pass]:
    fused, on_accelerator = device_kind in FUSED_SOFTMAX, device_kind != "cpu"
    return [
        _Pass(shape, tokens, length, DTYPE_SIZES[dtype], attention, fused, on_accelerator, bool(kv))
        for tokens, length in passes_of(context, chunk)
    ]


def passes_of(context: int, chunk: int) -> tuple[tuple[int, int], ...]:
    """(tokens, tokens seen by then) of the passes that may be the most demanding: a whole chunk as late as there is
    room for one, the rest of the context after it, and one token at its end."""
    whole = context // chunk * chunk
    prefill = ((chunk, whole), (context - whole, context)) if whole else ((context, context),)
    return (*(each for each in prefill if each[0]), (1, context))


@dataclass(frozen=True, slots=True)
class _Pass:
    """`tokens` go through the model; with them it has seen `length`. Sizes are bytes."""

    shape: TextShape
    tokens: int
    length: int
    width: int
    attention: str
    fused_softmax: bool
    on_accelerator: bool
    packed: bool = False
    """Whether the cache holds keys and values in 8 bit, which each layer turns back for its own attention."""

    def work(self) -> Work:
        throughout = self._throughout()
        in_modules = max(self.logits(), throughout + max(self._in_modules()))
        between = max(stage for kind in self._kinds or {FULL} for stage in self._between_modules(kind))
        return Work(max(in_modules, throughout + between), in_modules)

    def in_experts(self) -> int:
        return 2 * self._hidden + self._experts()

    def _in_modules(self) -> Iterator[int]:
        """Stages in which a module with weights computes; some types still hold their scores at the last projection."""
        yield self._norm()
        for kind in self._kinds:
            yield self._projecting(kind)
            if self.attention == "eager" and self._habits.scores[0] > 1:
                yield from self._between_modules(kind)
            if self.packed:  # a layer holds what it turned back until its output projection is done
                yield 2 * self._hidden + 2 * self._projected(kind)[0] + self._turned_back(kind)
        if {LINEAR, HYBRID}.intersection(self.shape.layer_types):
            yield self._linear()
        yield self._mlp(self._habits.mlp - (0 if self._habits.streams else 1))
        if self.shape.experts:
            yield self._experts()

    @property
    def _habits(self) -> _Habits:
        return _HABITS.get(self.shape.model_type, _USUAL)

    # -- alive during the whole pass ---------------------------------------------------------------------------------

    def _throughout(self) -> int:
        """Ids and their mask, the embedded tokens, the rotary tables, the masks of attention."""
        ids = 24 * self.length
        rotary = 2 * self.tokens * (self.shape.latent_rope_dim or self.shape.head_dim) * self.width + 16 * self.tokens
        streams = (1 + self._habits.streams) * self._hidden
        return ids + streams + rotary + sum(self._mask(kind) for kind in self._kinds)

    @property
    def _kinds(self) -> frozenset[str]:
        """Types of layers with attention."""
        return frozenset(self.shape.layer_types or (FULL,)) - {LINEAR, NOTHING}

    @property
    def _hidden(self) -> int:
        """One tensor of the model's width."""
        return self.tokens * self.shape.hidden_size * self.width

    def _seen(self, kind: str) -> int:
        """Tokens that a layer attends to."""
        window = window_of(self.shape, kind)
        return self.length if window is None else min(self.length, window - 1 + self.tokens)

    def _needs_mask(self, kind: str) -> bool:
        """sdpa's own causal mask serves a first chunk that no window cuts, and a single token."""
        window = window_of(self.shape, kind)
        first = self.tokens == self.length and (window is None or self.length <= window)
        return self.attention == "eager" or not (first or self.tokens == 1)

    def _mask(self, kind: str) -> int:
        if not self._needs_mask(kind):
            return 0
        return self.tokens * self._seen(kind) * self._habits.masks * (self.width if self.attention == "eager" else 1)

    # -- stages of a layer -------------------------------------------------------------------------------------------

    def _norm(self) -> int:
        """A norm in float32: its input, that and its square, beside the layer's own input."""
        return 2 * self._hidden + 8 * self.tokens * self.shape.hidden_size

    def _projecting(self, kind: str) -> int:
        """Projections turned, or a norm of the queries in float32; with latents all that was made of them."""
        queries, keys, values = self._projected(kind)
        turned = max(4 * queries + keys + values, queries + 8 * queries // self.width)
        latent = self.shape.latent_rank is not None
        made = 2 * queries + keys + values + self._expanded(kind) + self._kept() if latent else 0
        return 2 * self._hidden + max(turned, made)

    def _between_modules(self, kind: str) -> Iterator[int]:
        """The cache growing, scores, gate times up: what no module with weights takes part in."""
        queries, keys, values = self._projected(kind)
        yield self._mlp(self._habits.mlp)
        yield 2 * self._hidden + queries + 2 * (keys + values) + self._growth(kind)
        taken = keys + values if self._habits.fused or self.shape.latent_rank is not None else 0
        yield 2 * self._hidden + queries + taken + self._expanded(kind) + self._scores(kind) + self._turned_back(kind)

    def _projected(self, kind: str) -> tuple[int, int, int]:
        """(queries, new keys, new values)."""
        shape = self.shape
        if shape.latent_rank is not None:
            dim = shape.query_dim or shape.head_dim
            queries = self.tokens * shape.heads * dim * self.width
            return (
                queries,
                self.tokens * (shape.latent_rope_dim or 0) * self.width,
                self.tokens * shape.latent_rank * self.width,
            )
        new = self.tokens * elements_per_token(shape, kind) // 2 * self.width
        return self.tokens * shape.heads * head_dim(shape, kind) * self.width, new, new

    def _growth(self, kind: str) -> int:
        """The old values beside the new, while the cache of a layer grows; packed ones beside all that is back."""
        old = self.length - self.tokens
        if self.packed:
            return old * elements_per_token(self.shape, kind) + self._turned_back(kind)
        window = window_of(self.shape, kind)
        if window is not None:
            old = min(old, tokens_held(old, window, self.tokens)) if old else 0
        return old * elements_per_token(self.shape, kind) // 2 * self.width

    def _turned_back(self, kind: str) -> int:
        """Keys and values in the model's dtype, beside their packed ones; a first pass attends to those it computed."""
        return self._seen(kind) * elements_per_token(self.shape, kind) * self.width if self.packed else 0

    def _expanded(self, kind: str) -> int:
        """Keys and values as attention takes them: repeated for every head, or made from the latents."""
        shape = self.shape
        seen = self._seen(kind)
        if shape.latent_rank is not None:
            plain = (shape.query_dim or shape.head_dim) - (shape.latent_rope_dim or 0)
            value = shape.value_dim or shape.head_dim
            made = shape.heads * (plain + value + plain + (shape.latent_rope_dim or 0))
            copied = shape.heads * value if self.attention == "eager" else 0
            again = self.tokens * shape.heads * (shape.query_dim or shape.head_dim)
            return (seen * (made + copied) + again) * self.width
        if key_value_heads(shape, kind) in (1, shape.heads):  # one head is shared without a copy
            return 0
        if self.attention != "eager" and (not self._needs_mask(kind) or self.tokens == 1):
            return 0
        return 2 * seen * shape.heads * head_dim(shape, kind) * self.width

    def _scores(self, kind: str) -> int:
        shape = self.shape
        value = (shape.value_dim if shape.latent_rank is not None else None) or head_dim(shape, kind)
        out = self.tokens * shape.heads * value * self.width
        if self.attention != "eager":
            mask = self.tokens * self._seen(kind) * self.width if self._needs_mask(kind) else 0
            return max(mask + out, 2 * out)
        return shape.heads * self.tokens * self._seen(kind) * self._score_width()

    def _score_width(self) -> int:
        """Bytes a score at the softmax: its own dtype, a float32 copy where the kernel needs one, the result."""
        own, single = self._habits.scores
        if self.width >= 4:
            return 4 * (own + single - 1 if single else own)
        if not single or not self.fused_softmax:
            return self.width * own + 4 * single
        turned_back = self.width + 4
        return self.width * own + max(4 * (single - 1), turned_back)

    def _kept(self) -> int:
        """Eager attention's weights, which a layer holds until its next attention."""
        if self.attention != "eager" or not self._kinds:
            return 0
        return self.shape.heads * self.tokens * max(self._seen(kind) for kind in self._kinds) * self.width

    def _mlp(self, alive: int) -> int:
        """With so many tensors of its inner width."""
        inner = self.shape.intermediate_size
        if self.shape.experts and self.shape.expert_size:
            inner = max(self.shape.shared_expert_size, self.shape.intermediate_size if self._has_dense_layers() else 0)
        own = (3 + self._habits.hidden) * self._hidden + self._kept()
        return own + alive * self.tokens * inner * self.width

    def _has_dense_layers(self) -> bool:
        return self.shape.model_type.startswith(("deepseek", "glm4_moe", "llama4", "ernie", "longcat"))

    def _experts(self) -> int:
        """Tokens sorted by expert, each once for every expert it passes: the grouped product's own order."""
        shape = self.shape
        inner = shape.expert_size or shape.intermediate_size
        chosen = (shape.experts_per_token or 2) if not self._habits.every_expert else (shape.experts or 0)
        entries = self.tokens * chosen
        shared = 2 if shape.shared_expert_size else 0
        own = (3 + shared) * self._hidden + self._kept()
        if self.on_accelerator and self.tokens == 1 and not self._habits.every_expert:
            return own + entries * 2 * inner * shape.hidden_size * self.width
        inside = max(shape.hidden_size + self._habits.expert * inner, 4 * shape.hidden_size)
        return own + entries * (inside * self.width + 40) + self.tokens * (shape.experts or 0) * 8

    def _linear(self) -> int:
        """With transformers' own code, which runs where no package of kernels is installed."""
        linear = self.shape.linear
        own = 3 * self._hidden + self._kept()
        if linear is None:
            return own
        state = linear.recurrence // linear.width
        entering = (linear.width + 2 * linear.channels) * self.width
        match linear.kind:
            case "mamba":
                return own + self.tokens * linear.width * (12 * state // max(1, linear.heads) + 20 + 2 * self.width)
            case "mamba2":
                chunk = -(-self.tokens // linear.chunk) * linear.chunk
                squares = 12 * chunk * linear.chunk * linear.heads
                return own + squares + chunk * (28 * linear.width + 12 * linear.heads * state) + self.tokens * entering
            case "delta":
                chunk = -(-self.tokens // linear.chunk) * linear.chunk
                squares = 12 * chunk * linear.chunk * linear.heads
                inner = 20 * (linear.width + linear.heads * state)
                return own + squares + chunk * inner + self.tokens * (entering + linear.width * self.width)
        return own + 7 * self.tokens * linear.width * self.width

    def logits(self) -> int:
        """The last token's logits, and what drawing a token takes."""
        tokens = self.tokens if self.shape.model_type in _ALL_LOGITS else 1
        return 24 * self.length + self.shape.vocabulary * (tokens * self.width + _SAMPLING)
