"""accelerate's strategies, worked out by accelerate for our machines and budgets, and priced by our plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from layerlight.core.device import Budget, Device, Machine
from layerlight.core.errors import LoadFailed
from layerlight.core.inspection import inspect_folder
from layerlight.core.machines.public_models import find_public_model, public_model
from layerlight.core.model import Model
from layerlight.core.placing import ENGINE_STRATEGIES, make_plan
from layerlight.core.plan import Plan, Wishes
from layerlight.engine.strategies import strategy_maps
from tests.core.models import GIB, accelerator, disk, ram
from tests.core.plan_checker import Table, groups_of
from tests.model_folders import write_llama

pytestmark = pytest.mark.engine

TWO = (accelerator("sim:0", kind="sim"), accelerator("sim:1", kind="sim"), ram(), disk())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama of eight layers, of which each has about 100 KiB."""
    return write_llama(
        tmp_path_factory.mktemp("models") / "eight",
        num_hidden_layers=8,
        hidden_size=64,
        intermediate_size=256,
        vocab_size=512,
    )


def _plan(model: Model, machine: Machine, **limits: int) -> Plan:
    places = {place.replace("_", ":"): size for place, size in limits.items()}
    return make_plan(model, machine, Budget.of(places.items(), 64), Wishes(dtype="bfloat16"))


def _priced(plan: Plan, strategy: str, config: object = None) -> Plan:
    maps = strategy_maps(plan, (strategy,), config)  # type: ignore[arg-type]
    wishes = replace(plan.wishes, strategy=strategy, map=maps[strategy])
    return make_plan(plan.model, plan.machine, plan.budget, wishes)


@pytest.mark.parametrize("strategy", ENGINE_STRATEGIES)
def test_the_map_is_complete_and_becomes_a_plan_that_tells_who_placed_it(folder: Path, strategy: str) -> None:
    model = inspect_folder(folder)
    found = _priced(_plan(model, Machine(TWO)), strategy)
    assert list(found.device_map()) == [layer.name for layer in model.layers]
    assert set(found.device_map().values()) <= {"sim:0", "sim:1"}
    assert {each.reason for each in found.placements} == {f"Placed by accelerate's “{strategy}”."}
    assert found.prediction.seconds_per_token > 0


def test_they_are_what_transformers_itself_works_out(folder: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.integrations.accelerate import _get_device_map

    model = inspect_folder(folder)
    plan = _plan(model, Machine(TWO), sim_0=600_000, sim_1=500_000)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
    rooms = {use.place: use.capacity for use in plan.prediction.places}
    maps = strategy_maps(plan)
    for strategy in ENGINE_STRATEGIES:
        most = {0: rooms["sim:0"], 1: rooms["sim:1"], "cpu": rooms["cpu"]}
        theirs = {
            name: f"sim:{place}" if isinstance(place, int) else place
            for name, place in _get_device_map(empty, strategy, most, None).items()
        }
        for layer, place in maps[strategy]:
            around = [name for name in theirs if f"{layer}.".startswith(f"{name}.") or not name]
            assert place == theirs[max(around, key=len)], (strategy, layer)


def test_each_strategy_spreads_as_its_name_says(folder: Path) -> None:
    model = inspect_folder(folder)
    plan = _plan(model, Machine(TWO))
    on = {
        strategy: [_priced(plan, strategy).bytes_on(place) for place in ("sim:0", "sim:1")]
        for strategy in ENGINE_STRATEGIES
    }
    assert on["sequential"][1] == 0
    assert min(on["balanced"]) > 0
    assert on["auto"] == on["balanced"]
    assert on["balanced_low_0"][0] < on["balanced"][0]


def test_a_budget_too_small_spills_to_ram_and_then_to_disk(folder: Path) -> None:
    model = inspect_folder(folder)
    found = _priced(_plan(model, Machine(TWO), sim_0=500_000, sim_1=0, cpu=400_000), "auto")
    assert set(found.device_map().values()) == {"sim:0", "cpu", "disk"}


def test_accelerate_forgets_the_cache_where_our_plan_does_not(folder: Path) -> None:
    """Its weights fill the limit to the brim; ours leaves room for what a run needs beside them."""
    model = inspect_folder(folder)
    ours = _plan(model, Machine((accelerator("sim:0", kind="sim"), ram(), disk())), sim_0=1_200_000)
    theirs = _priced(ours, "sequential")
    assert ours.fits
    assert theirs.bytes_on("sim:0") > ours.bytes_on("sim:0")
    assert not theirs.fits


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ((ram(), disk()), {"cpu"}),
        ((Device("mps", "mps", "Apple", 8 * GIB, 8 * GIB, "cpu"), ram(), disk()), {"mps"}),
        ((Device("mps", "mps", "Apple", None, None, "cpu"), ram(), disk()), {"mps"}),
        ((accelerator("xpu:0", kind="xpu"), ram(), disk()), {"xpu:0"}),
        ((accelerator("cuda:0", free=0), accelerator("cuda:1"), ram(), disk()), {"cuda:1"}),
        ((Device("cuda:0", "cuda", "Unknown"), Device("cpu", "cpu", "RAM"), disk()), {"cuda:0"}),
    ],
)
def test_places_keep_our_names_on_every_kind_of_machine(
    folder: Path, devices: tuple[Device, ...], expected: set[str]
) -> None:
    plan = _plan(inspect_folder(folder), Machine(devices))
    assert set(dict(strategy_maps(plan, ("sequential",))["sequential"]).values()) == expected


def test_quantised_weights_are_counted_as_they_will_be_loaded(folder: Path) -> None:
    model = inspect_folder(folder)
    machine = Machine((accelerator("cuda:0"), ram(), disk()))
    limits = Budget.of([("cuda:0", 750_000)], 64)
    whole = make_plan(model, machine, limits, Wishes(dtype="bfloat16"))
    packed = make_plan(model, machine, limits, Wishes(dtype="bfloat16", quantization="nf4"))
    on = [
        sum(place == "cuda:0" for _, place in strategy_maps(plan, ("sequential",))["sequential"])
        for plan in (whole, packed)
    ]
    assert on[1] > on[0]


@pytest.mark.parametrize("strategy", ENGINE_STRATEGIES)
def test_a_card_without_room_or_forbidden_is_left_out(folder: Path, strategy: str) -> None:
    three = Machine((accelerator("cuda:0"), accelerator("cuda:1", free=0), accelerator("cuda:2"), ram(), disk()))
    plan = _plan(inspect_folder(folder), three, cuda_0=0)
    assert set(dict(strategy_maps(plan, (strategy,))[strategy]).values()) == {"cuda:2"}


def test_a_model_that_no_library_class_runs_is_refused_by_its_name() -> None:
    name = "qwen3-8b"
    plan = make_plan(public_model(name), Machine(TWO), Budget(context=64))
    with pytest.raises(LoadFailed, match=name):
        strategy_maps(plan, config={"model_type": "vit"})


@pytest.mark.parametrize("name", ["qwen3-8b", "gemma-3-4b", "gpt-oss-20b", "granite-4.0-h-micro"])
@pytest.mark.parametrize("card", [4 * GIB, 12 * GIB])
def test_ours_is_never_slower_and_fits_wherever_theirs_does(name: str, card: int) -> None:
    """Priced by the tests' own count, not by the planner's, for public models on one card and on two."""
    model, config = public_model(name), find_public_model(name).config
    machine = Machine((accelerator("cuda:0", free=card), accelerator("cuda:1", free=8 * GIB), ram(64 * GIB), disk()))
    ours = make_plan(model, machine, Budget(context=2048))
    prices = Table(ours)
    groups = [group[0].name for group in groups_of(model)]
    own = prices.total([ours.device_map()[layer] for layer in groups])
    for strategy, pairs in strategy_maps(ours, ENGINE_STRATEGIES, config).items():
        theirs = prices.total([dict(pairs)[layer] for layer in groups])
        assert own <= theirs * (1 + 1e-9), strategy
        assert ours.fits or theirs == float("inf")
