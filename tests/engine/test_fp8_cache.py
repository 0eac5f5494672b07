"""A KV cache in 8 bit, run: its bytes are the plan's, its tokens those of rounded keys, and it is kept and cut back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import Cache, DynamicLayer

from layerlight.bench.random_model import random_llama
from layerlight.core.device import Budget
from layerlight.core.errors import BadRequest
from layerlight.core.inspecting.config_file import ConfigFile
from layerlight.core.inspecting.text_shape import text_shape
from layerlight.core.inspection import inspect_folder
from layerlight.core.job import Job
from layerlight.core.load_request import load_request
from layerlight.core.messages import LoadRequest
from layerlight.core.model import TextShape
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan, Wishes
from layerlight.core.planning.kv_choice import why_not
from layerlight.core.sizing.kv_cache import kv_bytes
from layerlight.engine.cache_choice import quantized_cache, require_cache
from layerlight.engine.checking import check
from layerlight.engine.empty_pass import storages_of
from layerlight.engine.engine import TorchEngine
from layerlight.engine.kept_cache import can_be_cut
from tests.engine.events import Events, ask
from tests.engine.model_kinds import KINDS
from tests.engine.tiny_models import CONFIGS, machine, request_for, write_model

pytestmark = pytest.mark.engine

PROMPT = "Tell me about layers, and about the places where they may rest, in RAM, on a disk or on a card here."
HEADS = {"multi-head": 4, "grouped": 2}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    root = tmp_path_factory.mktemp("fp8")
    made: dict[int, Path] = {}

    def folder(heads: int) -> Path:
        if heads not in made:
            made[heads] = write_model(root / str(heads), "tied", num_key_value_heads=heads)
        return made[heads]

    return folder


def packed(request: LoadRequest) -> LoadRequest:
    return replace(request, kv="fp8")


# -- bytes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)
def test_its_bytes_are_the_plan_s(heads: int, dtype: str, engine: TorchEngine, llama: Callable[[int], Path]) -> None:
    folder = llama(heads)
    engine.load(packed(request_for(folder, dtype=dtype, context=256)), Events().job())
    result = ask(engine, PROMPT, 40)
    held = result.prompt_tokens + len(result.tokens) - 1
    cache = engine.kept._cache
    assert cache is not None
    real = sum(each.nbytes() for layer in cache.layers for each in storages_of(layer))
    plan = make_plan(inspect_folder(folder), machine(), Budget(context=held), Wishes(dtype, kv="fp8"))
    assert plan.prediction.use("cpu").kv == pytest.approx(real, rel=0.01)


CONTEXT = 1026
"""Two whole chunks of a prompt, and two tokens of an answer."""


@pytest.mark.simulated
@pytest.mark.parametrize("kv", ["", "fp8"])
def test_its_peak_on_a_device_is_the_plan_s(
    kv: str, engine: TorchEngine, simulated: Callable[..., ModuleType], tmp_path: Path
) -> None:
    """With as little beside the cache as can be, and more of it than any other work takes."""
    sim = simulated([256 << 20])
    folder = random_llama(
        tmp_path / "llama", hidden=128, intermediate=128, layers=10, heads=4, key_value_heads=4, context=CONTEXT
    )  # fmt: skip
    wishes = Wishes("bfloat16", kv=kv, map=tuple((each.name, "sim:0") for each in inspect_folder(folder).layers))
    plan = make_plan(inspect_folder(folder), machine("sim:0"), Budget(context=CONTEXT), wishes)
    engine.load(load_request(plan), Events().job())
    sim.reset_peak_memory_stats(0)
    result = ask(engine, "x" * (CONTEXT - 2), 2)
    assert result.prompt_tokens + len(result.tokens) == CONTEXT
    used = plan.prediction.use("sim:0")
    assert sim.max_memory_allocated(0) == pytest.approx(used.used, rel=0.05)
    engine.unload(Job(lambda event: None))


def test_the_empty_model_tells_the_packed_bytes(llama: Callable[[int], Path]) -> None:
    request = request_for(llama(2), context=200)
    usual, small = (check(each).checked for each in (request, packed(request)))
    assert small.kv_bytes == usual.kv_bytes // 4 + 8 * 4
    assert small.told == usual.told


# -- tokens ------------------------------------------------------------------------------------------------------------


class RoundedLayer(DynamicLayer):
    """Keeps keys and values rounded, as torch converts to float8 and back; a first pass sees them as they are."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        first = not self.is_initialized
        if first:
            self.scales = [self._scale(states) for states in (key_states, value_states)]
        rounded = [self._round(states, at) for states, at in zip((key_states, value_states), self.scales, strict=True)]
        kept = super().update(*rounded)
        return (key_states, value_states) if first else kept

    @staticmethod
    def _scale(states: torch.Tensor) -> float:
        return float(2.0 ** torch.ceil(torch.log2(states.abs().amax().float() * 8 / 448)))

    @staticmethod
    def _round(states: torch.Tensor, scale: float) -> torch.Tensor:
        return (states / scale).to(torch.float8_e4m3fn).to(states.dtype) * scale


def reference(folder: Path, text: str, count: int, layer: type[Any], chunk: int) -> list[int]:
    """What transformers answers greedily with a cache of these layers."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")["input_ids"]
    cache = Cache(layers=[layer() for _ in range(model.config.num_hidden_layers)])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=1, cache=cache,
        prefill_chunk_size=chunk if ids.shape[1] > chunk else None,
    )  # fmt: skip
    return [int(token) for token in out[0, ids.shape[1] :]]


@pytest.mark.parametrize("chunk", [512, 32])
@pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)
def test_its_tokens_are_those_of_rounded_keys_and_values(
    heads: int, chunk: int, engine: TorchEngine, llama: Callable[[int], Path]
) -> None:
    """And the first of a prompt in one pass is that of a usual cache: nothing was turned back yet."""
    folder = llama(heads)
    engine.load(replace(packed(request_for(folder, context=256)), prefill_chunk=chunk), Events().job())
    tokens = list(ask(engine, PROMPT, 30).tokens)
    assert tokens == reference(folder, PROMPT, 30, RoundedLayer, chunk)
    if chunk > len(PROMPT):
        assert tokens[0] == reference(folder, PROMPT, 1, DynamicLayer, chunk)[0]


def test_it_is_kept_and_cut_back_between_turns(engine: TorchEngine, llama: Callable[[int], Path]) -> None:
    """What is new runs alone, and the answer is what a new cache gives."""
    request = packed(request_for(llama(2), context=256))
    engine.load(request, Events().job())
    ask(engine, PROMPT + " One question?", 20)
    other = PROMPT + " Another question, somewhat longer?"
    again = ask(engine, other, 20)
    assert again.reused == len(PROMPT) + 1
    engine.kept.drop()
    fresh = ask(engine, other, 20)
    assert fresh.reused == 0
    assert fresh.tokens == again.tokens


def test_a_cache_is_cut_to_the_tokens_that_stay() -> None:
    cache = quantized_cache(CONFIGS["tied"]())
    states = torch.randn(1, 2, 9, 8)
    for layer in cache.layers:
        layer.update(states, states)
    assert can_be_cut(cache)
    cache.crop(-4)
    assert cache.get_seq_length() == 5
    keys, values = cache.layers[0].update(states[..., :1, :], states[..., :1, :])
    assert keys.shape[-2] == values.shape[-2] == 6


def shape_of(kind: str) -> TextShape:
    model_type, sizes = KINDS[kind]
    shape = text_shape(ConfigFile({"model_type": model_type, **sizes}))
    assert shape is not None
    return shape


PLANNED = [kind for kind in KINDS if not why_not(shape_of(kind), machine())]


@pytest.mark.parametrize("kind", PLANNED)
@torch.inference_mode()
def test_every_kind_that_may_be_planned_runs_with_it(kind: str) -> None:
    """The same logits as with rounded keys and values, pass after pass, and the bytes of the plan."""
    shape, (model_type, sizes) = shape_of(kind), KINDS[kind]
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **sizes), dtype=torch.float32).eval()
    ids = torch.randint(0, 131, (1, 30))
    packed, rounded = quantized_cache(model.config), Cache(layers=[RoundedLayer() for _ in range(shape.layers)])
    for first, last in ((0, 20), (20, 28), (28, 29), (29, 30)):
        ours, theirs = (
            model(input_ids=ids[:, first:last], cache=cache, use_cache=True).logits for cache in (packed, rounded)
        )
        assert torch.equal(ours, theirs)
    real = sum(each.nbytes() for layer in packed.layers for each in storages_of(layer))
    assert real == sum(kv_bytes(shape, index, 30, "float32", cache="fp8") for index in range(shape.layers))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in PLANNED])
def test_what_the_engine_refuses_is_never_planned(kind: str) -> None:
    """The other way round it may be: latents are refused by the plan alone."""
    config = AutoConfig.for_model(KINDS[kind][0], **KINDS[kind][1])
    refused = False
    try:
        require_cache("fp8", config)
    except BadRequest:
        refused = True
    assert refused or "latents" in why_not(shape_of(kind), machine())


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sliding", "granite hybrid", "both at once", "convolutions", "delta"])
def test_models_that_transformers_has_none_for_are_refused_before_a_weight(kind: str) -> None:
    config = CONFIGS[kind]() if kind in CONFIGS else AutoConfig.for_model(KINDS[kind][0], **KINDS[kind][1])
    with pytest.raises(BadRequest, match="8 bit"):
        require_cache("fp8", config)
    require_cache("", config)


def test_another_word_is_refused() -> None:
    with pytest.raises(BadRequest, match="no KV cache"):
        require_cache("int3", CONFIGS["tied"]())


def planned(folder: Path, **wishes: Any) -> Plan:
    return make_plan(inspect_folder(folder), machine(), Budget(context=64), Wishes(**wishes))


@pytest.mark.parametrize("kv", ["", "fp8"])
def test_the_wish_reaches_the_request(kv: str, llama: Callable[[int], Path]) -> None:
    assert load_request(planned(llama(2), kv=kv)).kv == kv
