"""Shows 2: wherever layers rest and run, each kind of model gives the tokens that plain transformers gives from RAM.

On the CPU alone, and with experts apart, the kinds of tiny_models are held to it in test_loading and test_experts,
models that also see in test_seeing_models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from layerlight.core.inspection import inspect_folder
from layerlight.core.messages import LayerRan, LoadRequest, ModelLoaded, RunFinished
from layerlight.core.model import LayerKind
from layerlight.engine.engine import TorchEngine
from tests.engine.events import Events, text_request
from tests.engine.seeing_models import write_seeing
from tests.engine.tiny_models import FUSED, byte_tokenizer, machine, plain_tokens, request_for

Folder = Callable[[str], Path]

SMALL: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 258, "max_position_embeddings": 256, "pad_token_id": 1, "bos_token_id": 0,
    "eos_token_id": 1, "initializer_range": 0.25,
}  # fmt: skip
HYBRIDS: dict[str, dict[str, Any]] = {
    "lfm2": {
        **SMALL, "block_auto_adjust_ff_dim": False, "layer_types": ["conv", "full_attention", "conv", "conv"],
    },
    "jamba": {
        **SMALL, "num_experts": 2, "num_experts_per_tok": 1, "attn_layer_period": 4, "attn_layer_offset": 1,
        "mamba_d_state": 4, "mamba_dt_rank": 4, "use_mamba_kernels": False,
    },
    "granitemoehybrid": {
        **SMALL, "layer_types": ["mamba", "attention", "mamba", "mamba"], "mamba_n_heads": 4, "mamba_d_head": 16,
        "mamba_n_groups": 1, "mamba_d_state": 8, "num_local_experts": 2, "num_experts_per_tok": 1,
        "shared_intermediate_size": 32, "position_embedding_type": "rope",
    },
    "qwen3_next": {
        **SMALL, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    },
}  # fmt: skip
"""Layers of several kinds in one model, some with experts that rest apart."""
SEES = ("gemma3", "qwen2_5_vl")
KINDS = ("llama", "gpt2", "tied", "sliding", *FUSED, *HYBRIDS, *SEES)

Way = Callable[[float, LayerKind], tuple[str, str]]
"""Share of the layers that come before one, and its kind → where it rests and runs."""


def _shares(*places: str) -> Way:
    """Equal shares of the layers, one after another: where they rest, and where they run if not there."""

    def place(share: float, _kind: LayerKind) -> tuple[str, str]:
        rests, _, runs = places[int(share * len(places))].partition(" ")
        return rests, runs or rests

    return place


def _experts(rests: str) -> Way:
    def place(_share: float, kind: LayerKind) -> tuple[str, str]:
        return (rests, "cpu") if kind is LayerKind.EXPERTS else ("sim:0", "sim:0")

    return place


DEVICES: dict[str, Way] = {
    "all on one device": _shares("sim:0"),
    "carried from RAM": _shares("sim:0", "cpu sim:0"),
    "carried from RAM and disk": _shares("cpu sim:0", "sim:0", "disk sim:0"),
    "computed in RAM and from disk": _shares("sim:0", "cpu", "disk cpu", "sim:0"),
    "two devices": _shares("sim:0", "sim:1"),
    "two devices and the second carries": _shares("sim:1", "sim:0", "cpu sim:1", "disk sim:1"),
}
CPU = {"half on disk": _shares("cpu", "disk cpu"), "all on disk": _shares("disk cpu")}
APART = {"experts in RAM": _experts("cpu"), "experts on disk": _experts("disk")}
WAYS = {**DEVICES, **CPU, **APART}
CELLS = [
    *((kind, way) for kind in KINDS for way in DEVICES),
    *((kind, way) for kind in HYBRIDS for way in CPU),
    *((kind, way) for kind in ("jamba", "qwen3_next") for way in APART),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, model_folder: Folder) -> Folder:
    root, made = tmp_path_factory.mktemp("resting"), dict[str, Path]()

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = _write(root / kind, kind) if kind in (*HYBRIDS, *SEES) else model_folder(kind)
        return made[kind]

    return folder


def _write(folder: Path, kind: str) -> Path:
    if kind in SEES:
        return write_seeing(folder, kind)
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **HYBRIDS[kind]), dtype=torch.bfloat16)
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def expected(folders: Folder) -> Callable[[str], list[int]]:
    """Plain transformers, all in RAM, in float32: each kind is asked once."""
    known: dict[str, list[int]] = {}

    def tokens(kind: str) -> list[int]:
        if kind not in known:
            known[kind] = plain_tokens(folders(kind), "hello there, world", "float32", 8)
        return known[kind]

    return tokens


def resting(folder: Path, way: str) -> LoadRequest:
    """The request that places layers so, tied ones beside their first, experts on no other device than their layer."""
    model = inspect_folder(folder)
    kinds = {layer.name: layer.kind for layer in model.layers}
    assert way not in APART or LayerKind.EXPERTS in kinds.values()
    places = {name: WAYS[way](number / len(kinds), kind) for number, (name, kind) in enumerate(kinds.items())}
    request = request_for(folder, context=32, on=machine("sim:0", "sim:1"))
    for name, kind in kinds.items():
        outer = name.removesuffix(".experts").rpartition(".")[0]
        if kind is LayerKind.EXPERTS and outer in places and places[outer][1] != places[name][1] != "cpu":
            places[name] = places[outer]
    for group in model.tied:
        places.update(dict.fromkeys(group, places[group[0]]))
    return replace(
        request,
        placements=tuple(
            replace(each, rests_on=places[each.layer][0], runs_on=places[each.layer][1]) for each in request.placements
        ),
    )


@pytest.mark.simulated
@pytest.mark.parametrize(("kind", "way"), CELLS)
def test_same_tokens_from_the_places_that_were_planned(
    kind: str,
    way: str,
    engine: TorchEngine,
    folders: Folder,
    expected: Callable[[str], list[int]],
    simulated: Callable[..., object],
) -> None:
    """Places and bytes are read from storages; of what rests where it runs no byte is brought."""
    simulated([64 << 20, 64 << 20])
    request = resting(folders(kind), way)
    events = Events()
    engine.load(request, events.job())
    placed = {each.layer: (each.rests_on, each.runs_on, each.size) for each in events.last(ModelLoaded).placed}
    wanted = {each.layer: (each.rests_on, each.runs_on, each.size) for each in request.placements if each.size}
    assert {layer: placed[layer] for layer in wanted} == wanted
    running = Events()
    engine.generate(text_request(), running.job())
    assert list(running.last(RunFinished).result.tokens) == expected(kind)
    for each in running.last(LayerRan).activity:
        if each.layer in wanted and len({*wanted[each.layer][:2]}) == 1:
            assert each.bytes_moved == 0, each.layer
