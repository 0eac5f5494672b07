"""Safetensors headers: names, dtypes, shapes and exact bytes of the tensors in a file, without reading one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from layerlight.core.device import format_size
from layerlight.core.errors import BrokenModel
from layerlight.core.inspecting.plain_file import open_plain
from layerlight.core.model import Tensor

LARGEST_HEADER = 100_000_000
"""Bytes; the library's own limit."""
MOST_DIMENSIONS = 64
"""More than any tensor has: multiplying a million lengths would never end."""

_DTYPES = {
    "BOOL": ("bool", 8), "U8": ("uint8", 8), "I8": ("int8", 8), "U16": ("uint16", 16), "I16": ("int16", 16),
    "U32": ("uint32", 32), "I32": ("int32", 32), "U64": ("uint64", 64), "I64": ("int64", 64),
    "F4": ("float4_e2m1fn_x2", 4), "F6_E2M3": ("float6_e2m3fn", 6), "F6_E3M2": ("float6_e3m2fn", 6),
    "F8_E4M3": ("float8_e4m3fn", 8), "F8_E5M2": ("float8_e5m2", 8), "F8_E8M0": ("float8_e8m0fnu", 8),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8), "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "F16": ("float16", 16), "BF16": ("bfloat16", 16), "F32": ("float32", 32), "F64": ("float64", 64),
    "C64": ("complex64", 64),
}  # fmt: skip
"""torch's dtype name and bits per element by the format's own name."""


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_entry_decoder = msgspec.json.Decoder(_Entry)


def read_safetensors_header(path: Path, name: str = "") -> tuple[Tensor, ...]:
    """The tensors of a safetensors file, in the file's order. `name` is the file's name as people know it.

    Reads the header only, and at most 100 MB. Raises BrokenModel, with expected and real bytes, for a pointer in place
    of weights, an empty or truncated file and a header that contradicts itself or the file.
    """
    return tuple(tensor for _, tensor in read_placed_tensors(path, name))


def read_placed_tensors(path: Path, name: str = "") -> tuple[tuple[int, Tensor], ...]:
    """The same, each after the byte of the file that it begins at."""
    name = name or path.name
    try:
        with open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(8)
            _check_start(start, size, name)
            length = int.from_bytes(start, "little")
            _check_length(length, size, name)
            header = file.read(length)
    except OSError as error:
        raise BrokenModel(f"{name} can't be read: {error.strerror or error}.") from error
    tensors = _parse(header, name)
    _check_data(tensors, size - 8 - length, size, name)
    return tuple((8 + length + begin, tensor) for (begin, _), tensor in tensors)


def _check_start(start: bytes, size: int, name: str) -> None:
    if size == 0:
        raise BrokenModel(f"{name} is empty (0 bytes).", hint="Download it again.")
    if start.startswith(b"version "):
        raise BrokenModel(
            f"{name} is a Git LFS pointer ({size} bytes of text), not weights.",
            hint="Fetch the real file: “git lfs pull” in that folder, or download the model again.",
        )
    if start.startswith((b"<!DOCTYP", b"<html>", b"<!doctyp")):
        raise BrokenModel(f"{name} is a web page, not weights.", hint="Download it again, signed in if need be.")
    if size < 8:
        raise BrokenModel(f"{name} is cut short: it has {size} bytes.", hint="Download it again.")


def _check_length(length: int, size: int, name: str) -> None:
    if length > LARGEST_HEADER:
        raise BrokenModel(
            f"{name} claims a header of {length} bytes; more than {LARGEST_HEADER} is not allowed.",
            hint="It is not a safetensors file, or it is damaged: download it again.",
        )
    if length > size - 8:
        raise BrokenModel(
            f"{name} is cut short: its header alone needs {length + 8} bytes, the file has {size}.",
            hint="Download it again.",
        )


def described_tensor(key: str, dtype: str, shape: Sequence[int], begin: int, end: int, file: str) -> Tensor:
    """The tensor of one entry of a header; `dtype` is the format's own name. Raises BrokenModel for what is none."""
    if dtype not in _DTYPES:
        raise BrokenModel(
            f"{file} holds a tensor of the unknown dtype {dtype!r}.",
            hint="It needs a newer version of Layerlight, or it is damaged.",
        )
    if len(shape) > MOST_DIMENSIONS:
        raise BrokenModel(
            f"{file} holds a tensor of {len(shape)} dimensions.", hint="It is damaged: download it again."
        )
    name, bits = _DTYPES[dtype]
    tensor = Tensor(key, name, tuple(shape), end - begin, file)
    if begin < 0 or min(shape, default=0) < 0 or tensor.elements * bits != (end - begin) * 8:
        raise BrokenModel(
            f"{file} contradicts itself: “{key}” is said to be {dtype} {list(shape)} in {end - begin} bytes.",
            hint="Download it again.",
        )
    return tensor


def _parse(header: bytes, name: str) -> list[tuple[tuple[int, int], Tensor]]:
    """((begin, end), tensor) for each entry. Raises BrokenModel for what is not a header."""
    tensors: list[tuple[tuple[int, int], Tensor]] = []
    try:
        for key, raw in _decoder.decode(header).items():
            if key == "__metadata__":
                continue
            entry = _entry_decoder.decode(raw)
            begin, end = entry.data_offsets
            tensor = described_tensor(key, entry.dtype, entry.shape, begin, end, name)
            tensors.append(((begin, end), tensor))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenModel(f"{name} has no readable header: {error}.", hint="Download it again.") from error
    return tensors


def _check_data(tensors: list[tuple[tuple[int, int], Tensor]], room: int, size: int, name: str) -> None:
    """The tensors must fill the rest of the file without gap or overlap."""
    reached = 0
    for begin, end in sorted(span for span, _ in tensors):
        if begin != reached:
            raise BrokenModel(
                f"{name} contradicts itself: its tensors leave a gap or overlap at byte {min(begin, reached)}.",
                hint="Download it again.",
            )
        reached = end
    if reached > room:
        expected = size - room + reached
        raise BrokenModel(
            f"{name} is cut short: {format_size(size)} ({size} bytes) of the {format_size(expected)} "
            f"({expected} bytes) that its header promises.",
            hint="Download it again.",
        )
    if reached < room:
        raise BrokenModel(f"{name} is {room - reached} bytes longer than its header says.", hint="Download it again.")
