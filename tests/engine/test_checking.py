"""The empty model: complete maps, exact bytes and the cache, before a weight is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from layerlight.core.device import Budget
from layerlight.core.errors import BadRequest, MapMismatch
from layerlight.core.inspection import inspect_folder
from layerlight.core.messages import LoadRequest
from layerlight.core.placing import make_plan
from layerlight.core.plan import Placement, Wishes
from layerlight.engine.checking import check
from layerlight.engine.device_map import complete_map
from layerlight.engine.empty_model import empty_model, read_config
from tests.engine.tiny_models import CONFIGS, machine, request_for

Folder = Callable[[str], Path]


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_the_map_is_complete_and_disjoint(kind: str, model_folder: Folder) -> None:
    """Every parameter and buffer under exactly one name; what the file doesn't show runs where the rest does."""
    request = request_for(model_folder(kind))
    checked = check(request)
    model = empty_model(read_config(request), request)
    names = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]
    for name in names:
        holders = [each for each in checked.device_map if name == each or name.startswith(each + ".")]
        assert len(holders) == 1, name
    assert not any(a != b and b.startswith(a + ".") for a in checked.device_map for b in checked.device_map)


@pytest.mark.parametrize("kind", sorted(CONFIGS))
@pytest.mark.parametrize("quantization", [None, "nf4", "int8"])
def test_bytes_equal_the_plans(kind: str, quantization: str | None, model_folder: Folder) -> None:
    """A15: the plan reads file headers, the check the empty model; scales may differ by a code book."""
    request = request_for(model_folder(kind), dtype="bfloat16", quantization=quantization)
    planned = {each.layer: each.size for each in request.placements}
    for layer, size in check(request).checked.layers:
        code_books = 7 * 16 * 4 if quantization == "nf4" else 0
        if not (quantization and kind == "gpt2"):  # a header does not show that its projections lie transposed
            assert 0 <= size - planned[layer] <= code_books, layer


@pytest.mark.parametrize(
    ("kind", "tokens", "expected"),
    [
        ("llama", 64, 12 * 2 * 2 * 8 * 64 * 4),
        ("llama", 200, 12 * 2 * 2 * 8 * 200 * 4),
        ("gpt2", 32, 4 * 2 * 4 * 8 * 32 * 4),
        ("sliding", 200, 6 * 200 * 2 * 2 * 8 * 4),
    ],
)
def test_the_cache_is_what_the_architecture_keeps(kind: str, tokens: int, expected: int, model_folder: Folder) -> None:
    """Bytes in float32 at the context: grouped heads, all heads, and a window, which lies in its whole chunk."""
    found = check(request_for(model_folder(kind), context=tokens)).checked.kv_bytes
    assert expected <= found <= expected + 64


def test_tied_weights_stay_beside_their_source(model_folder: Folder) -> None:
    """A head that no placement names follows the embedding; its own bytes are none."""
    request = request_for(model_folder("tied"), lambda index, count: "disk" if index == 0 else "cpu")
    without = replace(request, placements=tuple(each for each in request.placements if each.layer != "lm_head"))
    assert check(without).device_map["lm_head"] == "disk"
    assert dict(check(request).checked.layers)["lm_head"] == 0


def _without(request: LoadRequest, layer: str) -> LoadRequest:
    return replace(request, placements=tuple(each for each in request.placements if each.layer != layer))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda request: _without(request, "model.layers.2"), r"model\.layers\.2\."),
        (lambda request: _without(request, "model.norm"), r"model\.norm\.weight"),
        (
            lambda request: replace(
                request, placements=(*request.placements, Placement("model.layers.40", "cpu", "cpu", "", 0, "float32"))
            ),
            r"names “model\.layers\.40”",
        ),
    ],
)
def test_a_map_that_does_not_fit_is_refused_by_name(
    change: Callable[[LoadRequest], LoadRequest], words: str, model_folder: Folder
) -> None:
    """A17."""
    with pytest.raises(MapMismatch, match=words):
        check(change(request_for(model_folder("llama"))))


def test_layers_carried_to_two_devices_are_refused(model_folder: Folder) -> None:
    request = request_for(model_folder("llama"))
    mixed = tuple(replace(each, runs_on="sim:1" if index else "sim:0") for index, each in enumerate(request.placements))
    with pytest.raises(MapMismatch, match="one device only"):
        check(replace(request, placements=mixed))


def test_a_dtype_torch_does_not_have_is_refused(model_folder: Folder) -> None:
    with pytest.raises(BadRequest, match="float17"):
        check(replace(request_for(model_folder("tied")), dtype="float17"))


def test_completing_names_no_parent(model_folder: Folder) -> None:
    request = request_for(model_folder("llama"))
    model = empty_model(read_config(request), request)
    places = {each.layer: "cpu" for each in request.placements if each.layer != "model.rotary_emb"}
    assert set(complete_map(model, places, "sim:0").items()) - set(places.items()) == {("model.rotary_emb", "sim:0")}


@pytest.mark.parametrize("kind", sorted(CONFIGS))
@pytest.mark.parametrize("quantization", [None, "nf4"])
def test_what_was_told_makes_a_checked_plan(kind: str, quantization: str | None, model_folder: Folder) -> None:
    """Weights, cache and work as the libraries say them, to the byte."""
    request = request_for(model_folder(kind), dtype="bfloat16", quantization=quantization, context=32)
    checked = check(request).checked
    assert checked.told is not None
    assert checked.told.work is not None
    model = replace(inspect_folder(model_folder(kind)), told=(checked.told,))
    wishes = Wishes("bfloat16", quantization, attention="eager")
    plan = make_plan(model, machine(), Budget(context=32), wishes)
    assert plan.checked
    assert {each.layer: each.size for each in plan.placements} == dict(checked.layers)
    assert plan.prediction.use("cpu").kv == checked.kv_bytes
    if quantization is None:
        assert plan.prediction.use("cpu").working >= checked.told.work.most
