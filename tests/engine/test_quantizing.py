"""bitsandbytes on the CPU: bytes as planned, scales included, and what stays as it is said by name."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from layerlight.core.device import Budget
from layerlight.core.errors import BadRequest
from layerlight.core.inspection import inspect_folder
from layerlight.core.load_request import load_request
from layerlight.core.messages import LoadRequest, ModelChecked, ModelLoaded
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
from layerlight.engine.engine import TorchEngine
from layerlight.engine.quantizing import require_quantization
from tests.engine.events import Events, ask
from tests.engine.tiny_models import byte_tokenizer, machine, request_for, write_model

Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def wide_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wide enough that scales are a small part of each weight, as in a real model."""
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "head_dim": 64}
    return write_model(tmp_path_factory.mktemp("wide") / "model", "llama", **sizes)


@pytest.mark.parametrize("head_dim", [64, 24])
def test_four_bits_run_whatever_the_lengths(head_dim: int, engine: TorchEngine, tmp_path: Path) -> None:
    """On processors with AVX-512 bitsandbytes repacks rows by 32, and would fail in the first pass of other lengths."""
    folder = write_model(tmp_path / "model", "tied", hidden_size=96, num_hidden_layers=2, head_dim=head_dim)
    engine.load(request_for(folder, dtype="bfloat16", quantization="nf4"), Events().job())
    assert len(ask(engine).tokens) == 8


@pytest.mark.parametrize("quantization", ["nf4", "fp4", "int8"])
def test_bytes_with_their_scales_are_as_planned(
    quantization: str, engine: TorchEngine, wide_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Weights and absmax read from storages, within 1 % of the plan's; it answers, and the log stays readable."""
    request = request_for(wide_folder, dtype="bfloat16", quantization=quantization)
    assert {each.rests_on for each in request.placements} == {"cpu"}
    events = Events()
    engine.load(request, events.job())
    placed = {each.layer: each for each in events.last(ModelLoaded).placed}
    planned = {each.layer: each for each in request.placements}
    for layer in ("model.layers.0", "model.layers.1"):
        assert placed[layer].dtype == planned[layer].dtype == quantization
        assert placed[layer].size == pytest.approx(planned[layer].size, rel=0.01)
    measured = sum(each.size for each in placed.values())
    assert measured == pytest.approx(sum(each.size for each in planned.values()), rel=0.01)
    checked = events.last(ModelChecked)
    assert measured == pytest.approx(sum(size for _, size in checked.layers), rel=0.001)
    assert checked.unquantized == ("model.embed_tokens", "lm_head")
    with caplog.at_level(logging.DEBUG):
        assert len(ask(engine).tokens) == 8
    assert not [record for record in caplog.records if "MatMul8bitLt" in record.getMessage()]


def stored_request(folder: Path) -> LoadRequest:
    """The plan's own request, in the dtype that the weights were saved with."""
    return load_request(make_plan(inspect_folder(folder), machine(), Budget(context=64), Wishes(attention="eager")))


def test_fused_experts_stay_as_they_are_and_are_named(engine: TorchEngine, model_folder: Folder) -> None:
    """bitsandbytes says nothing about them; a person who hoped for a quarter of the size must hear it."""
    events = Events()
    engine.load(request_for(model_folder("mixtral"), dtype="bfloat16", quantization="nf4"), events.job())
    kept = events.last(ModelChecked).unquantized
    assert [name for name in kept if name.endswith(".mlp.experts")] == [
        f"model.layers.{i}.mlp.experts" for i in range(4)
    ]
    assert {"model.embed_tokens", "lm_head"} <= set(kept)
    assert not any("self_attn" in name for name in kept)
    assert len(ask(engine).tokens) == 8


@pytest.mark.parametrize("quantization", ["nf4", "nf4-double", "int8"])
def test_weights_saved_quantized_load_as_they_are(
    quantization: str, engine: TorchEngine, wide_folder: Path, tmp_path: Path
) -> None:
    """The format is the file's own, its bytes are as planned; a layer on disk is refused for it as well."""
    engine.load(request_for(wide_folder, dtype="bfloat16", quantization=quantization), Events().job())
    assert engine.loaded is not None
    folder = tmp_path / "quantized"
    engine.loaded.model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    expected = ask(engine).tokens
    events = Events()
    request = stored_request(folder)
    engine.load(request, events.job())
    assert {each.layer: each.size for each in events.last(ModelLoaded).placed} == {
        each.layer: each.size for each in request.placements
    }
    layers = [each for each in events.last(ModelLoaded).placed if each.layer.startswith("model.layers.")]
    assert {each.dtype for each in layers} == {quantization.removesuffix("-double")}
    assert ask(engine).tokens == expected
    on_disk = tuple(
        replace(each, rests_on="disk") if index == 2 else each for index, each in enumerate(request.placements)
    )
    with pytest.raises(BadRequest, match="all layers in RAM"):
        engine.load(replace(request, placements=on_disk), Events().job())


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_never_with_a_layer_on_disk(quantization: str, engine: TorchEngine, model_folder: Folder) -> None:
    """Refused before anything is loaded: bitsandbytes would fail only in the first pass."""
    engine.load(request_for(model_folder("tied")), Events().job())
    request = request_for(model_folder("tied"), lambda index, count: "disk" if index == 2 else "cpu")
    with pytest.raises(BadRequest, match="all layers in RAM"):
        engine.load(replace(request, quantization=quantization), Events().job())
    assert engine.loaded is not None


@pytest.mark.parametrize("places", [{"cpu", "cuda:0"}, {"disk"}, {"cuda:0", "disk"}])
def test_never_over_two_kinds_of_places(places: set[str]) -> None:
    with pytest.raises(BadRequest):
        require_quantization("nf4", places)


def test_a_place_where_it_does_not_run_is_said() -> None:
    """The probe's own words, in place of a failure after minutes of loading."""
    with pytest.raises(BadRequest, match="does not run on xpu:7 here"):
        require_quantization("nf4", {"xpu:7"})
