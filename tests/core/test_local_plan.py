"""`layerlight.inspect` and `layerlight.plan` for notebooks: torch-free, complete, honest about limits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import layerlight
from layerlight.core.device import Device, Machine
from layerlight.core.errors import BadRequest, BadSize, BrokenModel, LayerlightError, NotAModel, UnknownPlace
from layerlight.core.local_plan import local_machine
from layerlight.core.model import ModelKind
from tests.model_folders import write_json, write_llama


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "tiny")


def test_inspect_and_plan(folder: Path) -> None:
    model = layerlight.inspect(folder)
    assert model.kind is ModelKind.CHAT
    plan = layerlight.plan(folder)
    assert plan.fits
    assert plan.device_map() == dict.fromkeys((layer.name for layer in model.layers), "cpu")


def test_limits_in_words_or_bytes_move_layers(folder: Path) -> None:
    model = layerlight.inspect(folder)
    half = model.size // 2
    spread = layerlight.plan(folder, limits={"cuda:0": half + 400_000, "cpu": "8GiB"}, context=8)
    assert set(spread.device_map().values()) <= {"cuda:0", "cpu"}
    assert spread.device_map()["model.embed_tokens"] == "cuda:0"
    assert spread.budget.limit("cpu") == 8 * 2**30


def test_wishes_are_passed_on(folder: Path) -> None:
    plan = layerlight.plan(folder, dtype="float32", context=32)
    assert (plan.dtype, plan.budget.context) == ("float32", 32)
    assert plan.bytes_on("cpu") == 2 * layerlight.inspect(folder).size
    assert layerlight.plan(folder, quantize="nf4").wishes.quantization == "nf4"


def test_a_machine_given_is_the_one_used(folder: Path) -> None:
    machine = Machine((Device("cuda:0", "cuda", "Card", 2**33, 2**33), Device("cpu", "cpu", "RAM", 2**33, 2**33)))
    assert set(layerlight.plan(folder, machine=machine).device_map().values()) == {"cuda:0"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"limits": {"cpu": "10Gb"}}, BadSize),
        ({"limits": {"cpu": -1}}, BadSize),
        ({"limits": {"cpu": True}}, BadSize),
        ({"limits": {"gpu": "1GiB"}}, UnknownPlace),
        ({"limits": {"cuda:x": "1GiB"}}, UnknownPlace),
        ({"context": 100_000}, BadRequest),
        ({"context": 0}, BadRequest),
        ({"quantize": "int3"}, BadRequest),
        ({"dtype": "float8"}, BadRequest),
    ],
)
def test_a_bad_wish_is_refused_in_words(
    folder: Path, arguments: dict[str, object], error: type[LayerlightError]
) -> None:
    with pytest.raises(error):
        layerlight.plan(folder, **arguments)  # type: ignore[arg-type]


def test_a_model_without_tokenizer_can_be_planned_but_not_a_broken_one(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    assert layerlight.plan(folder).fits
    write_json(folder / "config.json", {"model_type": "llama"})
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(BrokenModel, match="empty"):
        layerlight.plan(folder)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NotAModel) as caught:
        layerlight.plan(tmp_path / "nowhere")
    assert caught.value.exit_code == 2


def test_the_local_machine_has_ram_disk_and_the_accelerators_named(tmp_path: Path) -> None:
    machine = local_machine(tmp_path, ("cpu", "mps", "sim:1"))
    assert [device.id for device in machine.devices] == ["mps", "sim:1", "cpu", "disk"]
    assert machine.device("mps").shares_memory_with == "cpu"


def test_neither_torch_nor_qt_is_imported(folder: Path) -> None:
    code = (
        "import sys, layerlight; loaded = set(sys.modules); "
        f"layerlight.plan({str(folder)!r}).device_map(); "
        "heavy = {'torch', 'transformers', 'accelerate', 'bitsandbytes', 'diffusers', 'PySide6', 'numpy'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules); "
        "assert not [name for name in loaded if name.startswith('layerlight.')], 'importing the package is not cheap'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
