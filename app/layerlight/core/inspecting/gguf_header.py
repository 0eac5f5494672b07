"""GGUF headers: architecture, name, context and licence, without reading a weight."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from layerlight.core.errors import BrokenModel
from layerlight.core.inspecting.plain_file import open_plain

_MAGIC = b"GGUF"
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
MOST_KEYS = 10_000
LONGEST_STRING = 10_000_000


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What the file says about itself; empty or None where it is silent."""

    architecture: str
    name: str
    licence: str
    context_length: int | None
    tensors: int


def read_gguf_header(path: Path) -> GgufHeader:
    """The header of a GGUF file, version 2 or 3. Raises BrokenModel for any other file."""
    try:
        with open_plain(path) as file:
            if path.stat().st_size == 0:
                raise BrokenModel(f"{path.name} is empty (0 bytes).", hint="Download it again.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(data, path.name)
    except (struct.error, IndexError, OverflowError) as error:
        raise BrokenModel(f"{path.name} is cut short inside its header.", hint="Download it again.") from error
    except OSError as error:
        raise BrokenModel(f"{path.name} can't be read: {error.strerror or error}.") from error


def _read(data: mmap.mmap, name: str) -> GgufHeader:
    if data[:4] != _MAGIC:
        raise BrokenModel(f"{name} is not a GGUF file, whatever its name says.", hint="Download it again.")
    version, tensors, count = struct.unpack_from("<IQQ", data, 4)
    if version not in (2, 3) or count > MOST_KEYS:
        raise BrokenModel(f"{name} has a GGUF header of the unknown version {version}.")
    found: dict[str, object] = {}
    position = 24
    for _ in range(count):
        key, position = _string(data, position)
        if key.startswith("tokenizer."):
            break  # vocabularies are long, and what is wanted comes before them
        (kind,) = struct.unpack_from("<I", data, position)
        found[key], position = _value(data, position + 4, kind)
    architecture = str(found.get("general.architecture", ""))
    context = found.get(f"{architecture}.context_length")
    return GgufHeader(
        architecture,
        str(found.get("general.name", "")),
        str(found.get("general.license", "")),
        context if isinstance(context, int) else None,
        tensors,
    )


def _string(data: mmap.mmap, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", data, position)
    end = position + 8 + length
    if length > LONGEST_STRING or end > len(data):
        raise IndexError
    return data[position + 8 : end].decode("utf-8", errors="replace"), end


def _value(data: mmap.mmap, position: int, kind: int) -> tuple[object, int]:
    if kind == _STRING:
        return _string(data, position)
    if kind == _ARRAY:
        return None, _past_array(data, position)
    if kind not in _FORMATS:
        raise IndexError
    (value,) = struct.unpack_from("<" + _FORMATS[kind], data, position)
    return value, position + struct.calcsize(_FORMATS[kind])


def _past_array(data: mmap.mmap, position: int) -> int:
    kind, count = struct.unpack_from("<IQ", data, position)
    position += 12
    if kind in _FORMATS:
        return position + int(count) * struct.calcsize(_FORMATS[kind])
    if kind != _STRING or count > len(data):
        raise IndexError
    for _ in range(count):
        _, position = _string(data, position)
    return position
