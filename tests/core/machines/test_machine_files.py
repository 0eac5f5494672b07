"""Machines that one does not have: every bundled file is whole and plausible; one's own can be saved and read back."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerlight.core import speed
from layerlight.core.device import Device, Machine
from layerlight.core.errors import BadRequest, LayerlightError, StoreFailed
from layerlight.core.machines.machine_entry import CONFIDENCES
from layerlight.core.machines.machine_files import (
    machine_names,
    machine_text,
    read_machine,
    read_machine_file,
    write_machine,
)
from layerlight.core.machines.resources import resource_folder
from layerlight.core.pacing import rate_names

GIB = 2**30
NAMES = machine_names()

CARD = """
[[device]]
id = "cuda:0"
kind = "cuda"
name = "Card"
total = "8 GiB"
kept = "1 GiB"
bandwidth = "100 GB/s"
reached = 0.5
dtypes = ["float32"]
[device.matrix]
float32 = "1.5 TFLOP/s"
"""
REST = """
[[device]]
id = "disk"
kind = "disk"
name = "Disk"
bandwidth = "2 GB/s"
reached = 0.25
[[device]]
id = "cpu"
kind = "cpu"
name = "RAM"
total = 17179869184
"""
BUS = """
[[bus]]
device = "cuda:0"
to_pageable = { value = "6 GB/s", confidence = "typical", source = "a guess" }
to_pinned = 12e9
"""
WHOLE = CARD + REST + BUS


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, "utf-8")
    return path


# -- the machines that come with the program ---------------------------------------------------------------------------


def test_there_are_about_twenty_machines_of_every_kind() -> None:
    kinds = {device.kind for name in NAMES for device in read_machine(name).accelerators}
    assert 20 <= len(NAMES) <= 30
    assert kinds == {"cuda", "rocm", "xpu", "mps"}
    assert any(not read_machine(name).accelerators for name in NAMES)
    assert any(len(read_machine(name).accelerators) == 2 for name in NAMES)
    totals = {device.total or 0 for name in NAMES for device in read_machine(name).accelerators}
    assert {8 * GIB, 12 * GIB, 16 * GIB, 24 * GIB, 64 * GIB, 128 * GIB} <= totals


@pytest.mark.parametrize("name", NAMES)
def test_every_bundled_machine_is_plausible(name: str) -> None:
    """C01: totals, what is free, and the order of the rates: device memory over bus, bus over disk."""
    machine = read_machine(name)
    rates = speed.rates_of(machine.bandwidths)
    assert [device.id for device in machine.devices][-2:] == ["cpu", "disk"]
    assert all(rate_names.is_rate_name(each) and rate > 0 for each, rate in machine.bandwidths)
    for device in machine.devices:
        assert device.total is not None
        assert device.free is not None
        assert device.total // 3 <= device.free < device.total
        assert device.id == "disk" or "float32" in device.dtypes
    assert rates["disk"] < rates["disk-load"] < 20e9
    assert 5e9 < rates["cpu"] < 500e9
    for device in machine.accelerators:
        pinned = rate_names.bus_rate(rates, device.id, pinned=True)
        pageable = rate_names.bus_rate(rates, device.id)
        assert pageable <= pinned < rates[device.id], "a device reads its own memory faster than the bus carries"
        assert rates["disk-load"] < pageable or device.shares_memory_with or pageable >= 6e9
        assert rates["bus"] <= pageable
        assert rates[device.id] > rates["cpu"]
        assert set(device.dtypes) >= {"float32", "float16"}
        half, whole = (rates[rate_names.matrix_name(device.id, dtype)] for dtype in ("float16", "float32"))
        assert 1e12 < whole <= half < 2e15


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_says_where_it_comes_from(name: str) -> None:
    found = read_machine_file(name)
    assert found.name == name
    assert found.title
    assert found.about.endswith(".")
    assert len(found.figures) >= 8
    for figure in found.figures:
        assert figure.confidence in CONFIDENCES, figure.name
        assert figure.source, figure.name


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("mac-", "mini-"))])
def test_unified_memory_is_one_pool(name: str) -> None:
    """C07: the accelerator's memory is RAM itself, and it may use only a part of it."""
    machine = read_machine(name)
    (accelerator,), ram = machine.accelerators, machine.device("cpu")
    assert accelerator.shares_memory_with == "cpu"
    assert accelerator.total == ram.total
    assert accelerator.free is not None
    assert ram.free is not None
    assert accelerator.free <= ram.free
    assert accelerator.note
    rates = speed.rates_of(machine.bandwidths)
    assert rate_names.bus_rate(rates, accelerator.id, pinned=True) == rate_names.bus_rate(rates, accelerator.id)


def test_only_unified_machines_share_memory() -> None:
    for name in NAMES:
        shares = [device.shares_memory_with for device in read_machine(name).accelerators]
        assert shares == (["cpu"] if name.startswith(("mac-", "mini-")) else [None] * len(shares))


# -- reading -----------------------------------------------------------------------------------------------------------


def test_words_become_bytes_and_rates(tmp_path: Path) -> None:
    found = read_machine_file(written(tmp_path, WHOLE))
    assert found.name == found.title == "mine"
    assert found.machine == Machine(
        (
            Device("cuda:0", "cuda", "Card", 8 * GIB, 7 * GIB, dtypes=("float32",)),
            Device("cpu", "cpu", "RAM", 16 * GIB),
            Device("disk", "disk", "Disk"),
        ),
        (
            ("cuda:0", 50e9),
            ("matrix:cuda:0:float32", 1.5e12),
            ("disk-load", 2e9),
            ("disk", 0.5e9),
            ("bus:cuda:0:to-pinned", 12e9),
            ("bus:cuda:0:to-pageable", 6e9),
            ("bus", 6e9),
        ),
    )
    assert [(each.confidence, each.source) for each in found.figures if each.name == "bus of cuda:0 to_pageable"] == [
        ("typical", "a guess")
    ]


def test_measured_rates_count_before_the_data_sheet(tmp_path: Path) -> None:
    machine = read_machine(written(tmp_path, WHOLE + '[rates]\n"cuda:0" = 42e9\n'))
    assert dict(machine.bandwidths)["cuda:0"] == 42e9


def test_a_limit_is_less_than_what_is_left(tmp_path: Path) -> None:
    """The accelerator of unified memory: the smaller of the system's limit and what the system leaves."""
    for limit, free in (("2 GiB", 2 * GIB), ("20 GiB", 7 * GIB)):
        text = WHOLE.replace('kept = "1 GiB"', f'kept = "1 GiB"\nlimit = "{limit}"')
        assert read_machine(written(tmp_path, text)).device("cuda:0").free == free


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title = [", "not valid TOML"),
        ("\x00", "not valid TOML"),
        ("", "no device cpu"),
        (CARD, "no device cpu"),
        (WHOLE + CARD, "two devices cuda:0"),
        (WHOLE + "\n[extra]\na = 1\n", "“extra” means nothing"),
        ('device = "cuda:0"', "[[device]]"),
        ("rates = 3\n" + WHOLE, "[rates]"),
        (WHOLE + '[rates]\n"wheels" = 4.0\n', "“wheels” is no name of a rate"),
        (WHOLE + '[rates]\n"cpu" = -4.0\n', "“cpu” must be a rate"),
        (WHOLE + '[rates]\n"cpu" = nan\n', "“cpu” must be a rate"),
        (WHOLE + '[rates]\n"cpu" = true\n', "“cpu” must be a rate"),
        (WHOLE.replace('kind = "cuda"', 'kind = "toaster"'), "“toaster” is no kind of device"),
        (WHOLE.replace('kind = "cuda"', 'kind = "xpu"'), "is called xpu:0"),
        (WHOLE.replace('id = "cuda:0"', 'id = "cuda"'), "is called cuda:0"),
        (WHOLE.replace('id = "cuda:0"', "id = 0"), "device 1: “id” must be words"),
        (WHOLE.replace('name = "Card"', ""), "cuda:0: “name” must be words"),
        (WHOLE.replace('name = "Card"', 'name = "Card"\ncolour = "red"'), "“colour” means nothing"),
        (WHOLE.replace('"8 GiB"', '"8 Gib"'), "names bits"),
        (WHOLE.replace('"8 GiB"', '"large"'), "can't be read as a size"),
        (WHOLE.replace('"8 GiB"', "-8"), "must be a size"),
        (WHOLE.replace('"8 GiB"', "1.5"), "must be a size"),
        (WHOLE.replace('"8 GiB"', "true"), "must be a size"),
        (WHOLE.replace('"8 GiB"', "99999999999999999999"), "must be a size"),
        (WHOLE.replace('"8 GiB"', "0"), "can't keep more"),
        (WHOLE.replace('"1 GiB"', '"9 GiB"'), "can't keep more"),
        (WHOLE.replace('kept = "1 GiB"', 'free = "9 GiB"'), "no less than what is free"),
        (WHOLE.replace('kept = "1 GiB"', 'kept = "1 GiB"\nfree = "1 GiB"'), "without “free”"),
        (WHOLE.replace('total = "8 GiB"', ""), "go with “total”"),
        (WHOLE.replace('"100 GB/s"', '"100"'), "“bandwidth” must be a rate"),
        (WHOLE.replace('"100 GB/s"', '"100 gigabytes"'), "“bandwidth” must be a rate"),
        (WHOLE.replace('"100 GB/s"', "0"), "“bandwidth” must be a rate"),
        (WHOLE.replace('"100 GB/s"', "inf"), "“bandwidth” must be a rate"),
        (WHOLE.replace("reached = 0.5", "reached = 1.5"), "at most 1"),
        (WHOLE.replace('bandwidth = "100 GB/s"', ""), "a share of “bandwidth”"),
        (WHOLE.replace('["float32"]', '"float32"'), "“dtypes” must be a list"),
        (WHOLE.replace('["float32"]', "[32]"), "“dtypes” must be a list"),
        (WHOLE.replace('name = "Card"', 'name = "Card"\nshares_memory_with = "mps"'), "no other device"),
        (WHOLE.replace('name = "Card"', 'name = "Card"\nshares_memory_with = "cuda:0"'), "no other device"),
        (WHOLE.replace('device = "cuda:0"', 'device = "cuda:1"'), "no accelerator"),
        (WHOLE.replace('device = "cuda:0"', 'device = "cpu"'), "no accelerator"),
        (WHOLE.replace('device = "cuda:0"', "device = [1]"), "no accelerator"),
        (WHOLE.replace("to_pinned", "to_pined"), "“to_pined” means nothing"),
        (WHOLE.replace('"typical"', '"certain"'), "“certain” is no confidence"),
        (WHOLE.replace('"a guess"', "7"), "“source” must be words"),
        (WHOLE.replace('value = "6 GB/s", ', ""), "the value is missing"),
        (WHOLE.replace("[device.matrix]", '[device.matrix]\n"a b" = 1e12'), "is no dtype"),
        (WHOLE.replace("[device.matrix]\nfloat32", "matrix"), "“matrix” must be a table"),
        ("a = " + "[" * 4000, "not valid TOML"),
        ("title = '" + "x" * 1_000_001 + "'", "far too large"),
    ],
)
def test_a_bad_file_is_refused_in_words(tmp_path: Path, text: str, said: str) -> None:
    """A file that can't be used is named, with the place and the fault, and never half used."""
    with pytest.raises(BadRequest) as refused:
        read_machine(written(tmp_path, text))
    assert "mine.toml" in refused.value.message
    assert said in refused.value.message
    assert refused.value.hint


def test_what_is_not_utf8_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b'title = "\xff\xfe"')
    with pytest.raises(BadRequest, match="not valid TOML"):
        read_machine(path)


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("desktop-rtx3060", "desktop-rtx3060-12gb"),
        ("Mac-M2-16GB", "mac-m2-16gb"),
        ("mac m2 16gb", "mac-m2-16gb"),
        ("steam-deck", "handheld-steam-deck"),
        ("rtx4090", "desktop-rtx4090-24gb"),
        ("h100", "server-h100-80gb"),
    ],
)
def test_an_unknown_name_lists_near_ones(asked: str, near: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read_machine(asked)
    assert near in refused.value.hint
    assert asked in refused.value.message


@pytest.mark.parametrize("asked", ["zzzz", "", " ", "../machines", "no/such/file.toml", "nul\x00"])
def test_a_name_without_near_ones_lists_all(asked: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read_machine(asked)
    assert refused.value.hint


def test_a_folder_is_no_machine(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="is a folder"):
        read_machine(tmp_path)


# -- saving ------------------------------------------------------------------------------------------------------------

SAVED = Machine(
    (
        Device("cuda:0", "cuda", 'A "card" \\ with é 显卡\t', 8 * GIB + 1, 7 * GIB - 1, None, ("float32", "bfloat16")),
        Device("mps", "mps", "Apple", 16 * GIB, 10 * GIB, "cpu", (), "One\nnote.\x7f\x00"),
        Device("sim:3", "sim", "Simulated", None, 5),
        Device("cpu", "cpu", "RAM", 16 * GIB, 0),
        Device("disk", "disk", "Disk", None, None),
    ),
    (("bus:cuda:0:to-pinned", 1.25e10), ("cpu", 1 / 3 * 1e10), ("disk-ring", 7e9), ("cuda:0", 1e22), ("bus", 5e9)),
    "2.13.0+cpu",
)


def test_a_saved_machine_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "mine.toml"
    write_machine(SAVED, path, "Where I work")
    assert read_machine(path) == SAVED
    assert read_machine_file(path).title == "Where I work"
    assert [each.name for each in path.parent.iterdir()] == ["mine.toml"], "no part is left behind"


@pytest.mark.parametrize("name", NAMES)
def test_a_bundled_machine_can_be_saved_as_ones_own(name: str, tmp_path: Path) -> None:
    machine = read_machine(name)
    write_machine(machine, tmp_path / "mine.toml")
    assert read_machine(tmp_path / "mine.toml") == machine


def test_the_warnings_of_the_moment_are_not_saved(tmp_path: Path) -> None:
    write_machine(Machine(SAVED.devices, warnings=("The driver is old.",)), tmp_path / "mine.toml")
    assert read_machine(tmp_path / "mine.toml") == Machine(SAVED.devices)


@given(name=st.text(min_size=1).filter(str.strip), note=st.text(), rate=st.floats(1e-3, 1e20))
def test_any_name_and_rate_can_be_saved(name: str, note: str, rate: float) -> None:
    """Whatever a driver calls its device, the file is valid and tells the same."""
    machine = Machine((Device("cpu", "cpu", name, 4, 3, note=note), *SAVED.devices[-1:]), (("cpu", rate),))
    content = tomllib.loads(machine_text(machine, name))
    assert content["title"] == content["device"][0]["name"] == name.encode("utf-8", "replace").decode()
    assert content["rates"]["cpu"] == rate


def test_an_older_file_stands_when_saving_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.toml"
    write_machine(SAVED, path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StoreFailed, match="No space left"):
        write_machine(Machine(SAVED.devices[-2:]), path)
    monkeypatch.undo()
    assert read_machine(path) == SAVED
    assert [each.name for each in tmp_path.iterdir()] == ["mine.toml"]


def test_a_folder_that_can_not_be_made_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFailed, match="could not be written"):
        write_machine(SAVED, tmp_path / "file" / "mine.toml")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a person who may not read everything")
def test_a_file_that_may_not_be_read_is_said_in_words(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    path.chmod(stat.S_IWUSR)
    with pytest.raises(BadRequest, match="can't be read"):
        read_machine(path)


# -- names of rates, and where the data lies ---------------------------------------------------------------------------


def test_the_nearest_known_bus_rate_is_used() -> None:
    rates = speed.rates_of((("bus:cuda:0:to-pageable", 8e9), ("bus:cuda:1:from-pinned", 12e9)))
    assert rate_names.bus_rate(rates, "cuda:0", pinned=True) == 8e9
    assert rate_names.bus_rate(rates, "cuda:0", inward=False) == 8e9
    assert rate_names.bus_rate(rates, "cuda:1", inward=True, pinned=True) == 12e9
    assert rate_names.bus_rate(rates, "cuda:1") == rate_names.bus_rate(rates, "xpu:0") == speed.TYPICAL["bus"]


@pytest.mark.parametrize("name", ["", "gpu", "cuda", "cuda:x", "bus:cuda:0", "bus:cuda:0:to", "matrix:cuda:0", "cpu "])
def test_what_is_no_rate_is_not_taken_for_one(name: str) -> None:
    assert not rate_names.is_rate_name(name)


@pytest.mark.parametrize("layout", ["wheel", "checkout"])
def test_resources_are_found_in_a_wheel_and_in_a_checkout(tmp_path: Path, layout: str) -> None:
    package = tmp_path / "app" / "layerlight"
    root = package if layout == "wheel" else tmp_path
    (root / "resources" / "machines").mkdir(parents=True)
    assert resource_folder("machines", package) == root / "resources" / "machines"
    with pytest.raises(LayerlightError, match="resources/models is missing"):
        resource_folder("models", package)
