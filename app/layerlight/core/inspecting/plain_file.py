"""A plain file: opened only when it is one, since a pipe or a device in a model folder would never end."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import IO, Any

import msgspec

LARGEST_JSON = 100_000_000
"""Bytes; the longest index or tokenizer settings of public models have a tenth of it."""

_READ_BY_NAME = (".json", ".safetensors", ".bin", ".gguf", ".jinja", ".model", ".txt")
"""Endings of the files that loaders open by their name alone."""


def is_plain(path: Path) -> bool:
    """False too for a name that the file system can't hold."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def open_plain(path: Path) -> IO[bytes]:
    """The file, open for reading. Raises OSError, also for a pipe, a socket, a device or a folder."""
    if not is_plain(path) and path.exists():
        raise OSError("it is not a plain file")
    return path.open("rb")


def read_plain(path: Path, most: int = LARGEST_JSON) -> bytes:
    """Its bytes. Raises OSError, also for more than `most` of them."""
    with open_plain(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(f"it is longer than {most} bytes")
    return data


def read_json(path: Path, mark: bool = True) -> Any:
    """What a JSON file holds. Raises OSError when it can't be read and ValueError when it is no JSON; without `mark`
    also for one that begins with a byte-order mark, where its loader can't read that.
    """
    data = read_plain(path)
    if not mark and data.startswith(codecs.BOM_UTF8):
        raise ValueError("it was saved with a byte-order mark, which transformers can't read")
    try:
        return msgspec.json.decode(data.removeprefix(codecs.BOM_UTF8))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


def endless(folder: Path) -> list[str]:
    """Names in a folder that a loader would open and that are pipes, sockets or devices: reading them never ends."""
    return sorted(
        entry.name
        for entry in folder.iterdir()
        if entry.name.endswith(_READ_BY_NAME) and entry.exists() and not entry.is_file() and not entry.is_dir()
    )
