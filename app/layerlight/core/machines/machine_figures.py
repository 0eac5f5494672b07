"""A machine file's content → Machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layerlight.core.device import CPU, DISK, Device, Machine
from layerlight.core.machines.machine_entry import Entry, Figure
from layerlight.core.pacing.rate_names import BUS, DISK_LOAD, bus_name, is_rate_name, matrix_name

KINDS = {"cuda": "cuda:", "rocm": "cuda:", "xpu": "xpu:", "sim": "sim:", "mps": "mps", CPU: CPU, DISK: DISK}
"""How the id of a device of each kind begins; torch calls ROCm's devices `cuda` too."""

_WAYS = {
    "to_pinned": (True, True),
    "to_pageable": (True, False),
    "from_pinned": (False, True),
    "from_pageable": (False, False),
}
"""(from RAM to the device, page-locked RAM) by the key in the file."""

_TOP = frozenset({"title", "about", "torch_build", "device", "bus", "rates"})
_DEVICE = frozenset(
    {"id", "kind", "name", "note", "dtypes", "shares_memory_with", "total", "free", "kept", "limit", "bandwidth"}
    | {"reached", "matrix"}
)


@dataclass(frozen=True, slots=True)
class MachineFile:
    """What a machine file tells."""

    name: str
    title: str
    about: str
    machine: Machine
    figures: tuple[Figure, ...]


def machine_file(entry: Entry, name: str) -> MachineFile:
    """The machine in a file's content. Raises BadRequest, naming the place and the fault."""
    entry.only(_TOP)
    figures: list[Figure] = []
    rates: dict[str, float] = {}
    devices = tuple(_device(entry, at, table, figures, rates) for at, table in enumerate(entry.tables("device"), 1))
    _check_places(entry, devices)
    devices = tuple(sorted(devices, key=lambda device: (device.id == DISK, device.id == CPU)))
    for table in entry.tables("bus"):
        _bus(entry, table, devices, figures, rates)
    inward = [rate for rate_name, rate in rates.items() if rate_name.endswith(":to-pageable")]
    if inward:
        rates[BUS] = min(inward)
    measured = _measured(entry)
    machine = Machine(devices, tuple({**rates, **measured}.items()), entry.words("torch_build", ""))
    return MachineFile(name, entry.words("title", name), entry.words("about", "").strip(), machine, tuple(figures))


def _device(entry: Entry, at: int, table: Mapping[str, Any], figures: list[Figure], rates: dict[str, float]) -> Device:
    given = table.get("id")
    own = Entry(entry.file, given if isinstance(given, str) and given else f"device {at}", table)
    own.only(_DEVICE)
    place, kind = own.words("id"), own.words("kind")
    if kind not in KINDS:
        raise own.fault(f"“{kind}” is no kind of device; known are {', '.join(KINDS)}")
    begins = KINDS[kind]
    if place != begins and not (begins.endswith(":") and re.fullmatch(re.escape(begins) + r"\d+", place)):
        raise own.fault(f"a device of the kind {kind} is called {begins + '0' if begins.endswith(':') else begins}")
    total, free = _memory(own, figures)
    _rates(own, place, figures, rates)
    dtypes = table.get("dtypes", [])
    if not isinstance(dtypes, list) or not all(isinstance(each, str) for each in dtypes):
        raise own.fault('“dtypes” must be a list such as ["float32", "bfloat16"]')
    shares = own.words("shares_memory_with", "") or None
    return Device(place, kind, own.words("name"), total, free, shares, tuple(dtypes), own.words("note", ""))


def _memory(own: Entry, figures: list[Figure]) -> tuple[int | None, int | None]:
    """(total, free): free as given, else what is left of the total after what the system keeps, at most the limit."""
    total, free = own.size("total", figures), own.size("free", figures)
    kept, limit = own.size("kept", figures), own.size("limit", figures)
    if free is None and total is not None and (kept is not None or limit is not None):
        free = total - (kept or 0)
        if free < 0:
            raise own.fault("the system can't keep more than there is")
        free = free if limit is None else min(free, limit)
    elif kept is not None or limit is not None:
        raise own.fault("“kept” and “limit” go with “total” and without “free”")
    if total == 0 or (total is not None and free is not None and free > total):
        raise own.fault("the total must be above 0 and no less than what is free")
    return total, free


def _rates(own: Entry, place: str, figures: list[Figure], rates: dict[str, float]) -> None:
    bandwidth, reached = own.rate("bandwidth", figures), own.rate("reached", figures)
    if reached is not None and (bandwidth is None or reached > 1):
        raise own.fault("“reached” is a share of “bandwidth”, at most 1")
    if bandwidth is not None:
        if place == DISK:
            rates[DISK_LOAD] = bandwidth
        rates[place] = bandwidth * (reached or 1.0)
    matrix = own.content.get("matrix", {})
    if not isinstance(matrix, dict):
        raise own.fault("“matrix” must be a table of rates by dtype")
    speeds = Entry(own.file, f"{own.where} matrix", matrix)
    for dtype in matrix:
        speed = speeds.rate(dtype, figures)
        if not is_rate_name(matrix_name(place, dtype)) or speed is None:
            raise speeds.fault(f"“{dtype}” is no dtype by torch's name, or {place} computes nothing")
        rates[matrix_name(place, dtype)] = speed


def _check_places(entry: Entry, devices: tuple[Device, ...]) -> None:
    places = [device.id for device in devices]
    if twice := sorted({place for place in places if places.count(place) > 1}):
        raise entry.fault(f"there are two devices {twice[0]}")
    for needed in (CPU, DISK):
        if needed not in places:
            raise entry.fault(f"it has no device {needed}")
    for device in devices:
        shares = device.shares_memory_with
        if shares is not None and (shares not in places or shares == device.id):
            raise entry.fault(f"{device.id} shares memory with “{shares}”, which is no other device of it")


def _bus(
    entry: Entry, table: Mapping[str, Any], devices: tuple[Device, ...], figures: list[Figure], rates: dict[str, float]
) -> None:
    between = table.get("device")
    if between not in [device.id for device in devices if device.is_accelerator]:
        raise entry.fault(f"a [[bus]] leads to “{between}”, which is no accelerator of it")
    own = Entry(entry.file, f"bus of {between}", table)
    own.only(frozenset({"device", "note", *_WAYS}))
    for way, (inward, pinned) in _WAYS.items():
        rate = own.rate(way, figures)
        if rate is not None:
            rates[bus_name(str(between), inward, pinned)] = rate


def _measured(entry: Entry) -> dict[str, float]:
    """The table [rates]: figures by their own names, which count before all others."""
    table = entry.content.get("rates", {})
    if not isinstance(table, dict):
        raise entry.fault("“rates” must be written as [rates]")
    own = Entry(entry.file, "rates", table)
    found: dict[str, float] = {}
    for name in table:
        if not is_rate_name(name):
            raise own.fault(f"“{name}” is no name of a rate")
        rate = own.rate(name, [])
        if rate is not None:
            found[name] = rate
    return found
