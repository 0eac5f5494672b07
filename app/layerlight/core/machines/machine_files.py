"""Machines as TOML files: those that come with the program, and a person's own.

A file describes a machine so that a person can read and check it (`resources/machines/README.md` shows one). Each
figure is a bare value or a table `{ value, confidence, source }`; sizes are words (`8 GiB`) or bytes, rates are words
(`256 GB/s`, `23.2 TFLOP/s`) or numbers per second.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tempfile
import tomllib
from contextlib import suppress
from pathlib import Path

from layerlight.core.device import Device, Machine
from layerlight.core.errors import BadRequest, StoreFailed
from layerlight.core.folders import expanded
from layerlight.core.machines.machine_entry import Entry, fault
from layerlight.core.machines.machine_figures import MachineFile, machine_file
from layerlight.core.machines.resources import resource_folder

LARGEST_FILE = 1_000_000
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def machine_names() -> tuple[str, ...]:
    """Names of the machines that come with the program, e.g. `desktop-rtx3060-12gb`, in alphabetical order."""
    return tuple(sorted(path.stem for path in resource_folder("machines").glob("*.toml")))


def read_machine(name_or_path: str | Path) -> Machine:
    """The machine with this name, or in this file. Raises BadRequest in words for anything else."""
    return read_machine_file(name_or_path).machine


def read_machine_file(name_or_path: str | Path) -> MachineFile:
    """The machine with what its file tells about it: title, description, and where each figure comes from."""
    path = _find(name_or_path)
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise BadRequest(
            f"The machine file “{path}” can't be read: {error.strerror or error}.", hint="Choose another file."
        ) from error
    if len(data) > LARGEST_FILE:
        raise fault(path.name, "it is far too large to be one")
    try:
        content = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise fault(path.name, f"it is not valid TOML ({error})") from error
    return machine_file(Entry(path.name, "", content), path.stem)


def write_machine(machine: Machine, path: str | Path, title: str = "This machine") -> None:
    """Saves a machine as such a file, in one step: memory as it is now, rates as measured. Its warnings are of the
    moment and are left out. Raises StoreFailed when it can't be written; an older file then stands.
    """
    place = Path(path)
    temporary = ""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        number, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.", suffix=".part")
        with os.fdopen(number, "w", encoding="utf-8", newline="\n") as file:
            file.write(machine_text(machine, title))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except OSError as error:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
        raise StoreFailed(
            f"The machine could not be written to {place}: {error.strerror or error}.",
            hint="Check that the disk has room and that the folder may be written to.",
        ) from error


def machine_text(machine: Machine, title: str) -> str:
    """The content of a machine's file."""
    lines = [f"title = {_quoted(title)}"]
    if machine.torch_build:
        lines.append(f"torch_build = {_quoted(machine.torch_build)}")
    for device in machine.devices:
        lines += ["", "[[device]]", *_device_lines(device)]
    if machine.bandwidths:
        lines += ["", "# Bytes per second; after “matrix:” floating-point operations per second.", "[rates]"]
        lines += [f"{_key(name)} = {rate!r}" for name, rate in machine.bandwidths]
    return "\n".join(lines) + "\n"


def _device_lines(device: Device) -> list[str]:
    lines = [f"id = {_quoted(device.id)}", f"kind = {_quoted(device.kind)}", f"name = {_quoted(device.name)}"]
    lines += [f"{key} = {size}" for key, size in (("total", device.total), ("free", device.free)) if size is not None]
    if device.shares_memory_with:
        lines.append(f"shares_memory_with = {_quoted(device.shares_memory_with)}")
    if device.dtypes:
        lines.append(f"dtypes = [{', '.join(map(_quoted, device.dtypes))}]")
    if device.note:
        lines.append(f"note = {_quoted(device.note)}")
    return lines


def _quoted(words: str) -> str:
    """A TOML basic string: JSON's escapes are among TOML's, but TOML wants DEL escaped too and has no surrogates."""
    whole = words.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007F")


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quoted(name)


def _find(name_or_path: str | Path) -> Path:
    words = str(name_or_path)
    names = machine_names()
    if words in names:
        return resource_folder("machines") / f"{words}.toml"
    path = expanded(words, "machine file")
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except OSError as error:  # a name that is too long, for one
        raise BadRequest(
            f"The machine file “{words}” can't be read: {error.strerror or error}.", hint="Choose another file."
        ) from error
    if is_file:
        return path
    if is_folder:
        raise BadRequest(f"“{words}” is a folder, not a machine file.", hint="Name a .toml file in it.")
    near = difflib.get_close_matches(words.lower(), names, n=3, cutoff=0.4)
    near += [name for name in names if words.lower().strip() and words.lower() in name and name not in near][:3]
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known machines: {', '.join(names)}."
    raise BadRequest(f"There is no machine “{words}”.", hint=hint)
