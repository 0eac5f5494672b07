"""Weights that bitsandbytes saved: bytes as they will be on the device, and the places that it can run them on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerlight.core import memory
from layerlight.core.device import Budget
from layerlight.core.errors import DoesNotFit
from layerlight.core.model import Layer, LayerKind, Model, Tensor
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
from layerlight.core.sizing.stored_format import stored_format
from tests.core.models import GIB, accelerator, dense, disk, layer, machine, ram, tensor

ROWS, COLUMNS = 128, 64
WEIGHT = "model.layers.0.mlp.up_proj.weight"


def saved(quantization: str) -> Layer:
    """A layer with a norm and one linear weight, as bitsandbytes writes it."""
    held: list[Tensor] = [tensor("model.layers.0.input_layernorm.weight", COLUMNS)]
    if quantization == "int8":
        module = WEIGHT.removesuffix(".weight")
        held += [
            tensor(WEIGHT, ROWS, COLUMNS, dtype="int8"),
            tensor(f"{module}.SCB", ROWS, dtype="float32"),
            tensor(f"{module}.weight_format", dtype="uint8"),
        ]
    else:
        blocks = ROWS * COLUMNS // 64
        double = quantization.endswith("-double")
        held += [
            tensor(WEIGHT, ROWS * COLUMNS // 2, 1, dtype="uint8"),
            tensor(f"{WEIGHT}.absmax", blocks, dtype="uint8" if double else "float32"),
            tensor(f"{WEIGHT}.quant_map", 16, dtype="float32"),
            tensor(f"{WEIGHT}.quant_state.bitsandbytes__{quantization[:3]}", 90, dtype="uint8"),
        ]
        if double:
            held.append(tensor(f"{WEIGHT}.nested_absmax", -(-blocks // 256), dtype="float32"))
            held.append(tensor(f"{WEIGHT}.nested_quant_map", 256, dtype="float32"))
    return layer("model.layers.0", LayerKind.DECODER, *held, index=0)


def model(quantization: str) -> Model:
    plain = dense(layers=1, hidden=COLUMNS, intermediate=ROWS, quantization="bitsandbytes")
    layers = tuple(saved(quantization) if each.index == 0 else each for each in plain.layers)
    dtype = "int8" if quantization == "int8" else "uint8"
    return replace(plain, layers=layers, dtype=dtype, config_dtype="bfloat16")


FORMATS = ("nf4", "fp4", "nf4-double", "fp4-double", "int8")


@pytest.mark.parametrize("quantization", FORMATS)
def test_saved_weights_take_what_quantising_while_loading_would(quantization: str) -> None:
    """A15: scales keep float32, and the description in the file takes nothing on a device."""
    found = memory.loaded_size(saved(quantization), "bfloat16")
    assert found == memory.quantized_size(ROWS * COLUMNS, ROWS, quantization) + 2 * COLUMNS


@pytest.mark.parametrize("quantization", FORMATS)
def test_the_format_is_told_by_the_tensors(quantization: str) -> None:
    assert stored_format(model(quantization)) == quantization
    assert stored_format(dense()) is None


@pytest.mark.parametrize("quantization", FORMATS)
def test_the_plan_keeps_to_what_bitsandbytes_can_run(quantization: str) -> None:
    """C01 for a saved model: a plan that parts it, or leaves layers on disk, would be refused after minutes."""
    stored = model(quantization)
    here = machine(accelerator("cuda:0", GIB), ram(8 * GIB), disk())
    needed = make_plan(stored, here, Budget(context=64)).prediction.use("cuda:0").used
    plan = make_plan(stored, here, Budget.of([("cuda:0", needed - 1)], 64))
    assert plan.places == ("cpu",)
    assert plan.fits
    nowhere = make_plan(stored, here, Budget.of([("cuda:0", needed - 1), ("cpu", 1000)], 64))
    assert not nowhere.fits
    with pytest.raises(DoesNotFit, match="on disk"):
        make_plan(stored, here, Budget(context=64), Wishes(pins=(("model.layers.0", "disk"),)))


@pytest.mark.parametrize("quantization", FORMATS)
def test_its_dtype_is_the_one_it_was_saved_with(quantization: str) -> None:
    plan = make_plan(model(quantization), machine(), Budget(context=64), Wishes(dtype="float32"))
    assert plan.dtype == "bfloat16"
    assert any("float32" in note for note in plan.notes)
    assert plan.placement("model.layers.0").dtype == quantization


@pytest.mark.parametrize("quantization", FORMATS)
def test_a_pass_turns_its_weights_back(quantization: str) -> None:
    """Work of a saved model is that of the same model quantised while loading."""
    plain = dense(layers=1, hidden=COLUMNS, intermediate=ROWS)
    linear = layer("model.layers.0", LayerKind.DECODER, tensor(WEIGHT, ROWS, COLUMNS), index=0)
    plain = replace(plain, layers=tuple(linear if each.index == 0 else each for each in plain.layers))
    stored = make_plan(model(quantization), machine(), Budget(context=64)).prediction
    turned = memory.dequantized_bytes(ROWS * COLUMNS, "bfloat16", quantization, on_accelerator=False)
    bare = make_plan(plain, machine(), Budget(context=64)).prediction.use("cpu").working
    assert bare < stored.use("cpu").working <= bare + turned


@pytest.mark.parametrize(
    ("dtype", "quantization", "on_accelerator", "each"),
    [
        ("bfloat16", None, False, 0),
        ("bfloat16", "nf4", False, 14),
        ("float32", "nf4-double", False, 14),
        ("bfloat16", "nf4", True, 2),
        ("bfloat16", "int8", False, 9),
        ("bfloat16", "int8", True, 2),
    ],
)
def test_a_load_needs_room_for_what_it_makes_weights_from(
    dtype: str, quantization: str | None, on_accelerator: bool, each: int
) -> None:
    """The result is among the weights already."""
    result = memory.quantized_size(2**20, 1, quantization) if each == 14 and quantization else 0
    assert memory.loading_bytes(2**20, dtype, quantization, on_accelerator) == each * 2**20 - result


def test_a_load_that_needs_more_than_any_pass_decides_what_is_kept_free() -> None:
    """Quantising one large weight in RAM, before there is a cache or a pass."""
    wide = dense(layers=2, hidden=512, intermediate=4096)
    use = make_plan(wide, machine(), Budget(context=64), Wishes(quantization="nf4")).prediction.use("cpu")
    assert use.kv + use.working == memory.loading_bytes(512 * 4096, "bfloat16", "nf4", False)
