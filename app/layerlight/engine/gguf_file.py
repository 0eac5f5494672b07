"""GgufFile: the header of a GGUF file, and its tensors dequantised piece by piece.

gguf's own GGUFReader makes an array object for every word of the vocabulary: two seconds in which nothing can be
stopped. This reads the same header in a twentieth of that.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from layerlight.core.errors import BrokenModel

Floats = np.ndarray[Any, np.dtype[np.float32]]
Check = Callable[[], None]

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
"""struct's formats by the type numbers of GGUF's values."""
_STRING, _ARRAY = 8, 9
_STRINGS_PER_CHECK = 8192
_PIECE = 4 * 2**20
"""Elements dequantised at once: 16 MiB of float32."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor in the file. `shape` is torch's order, `offset` bytes from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, the last dimension, as stored."""
        block, size = GGML_QUANT_SIZES[self.type]
        return int(self.shape[-1] // block * size)

    @property
    def rows(self) -> int:
        count = 1
        for length in self.shape[:-1]:
            count *= length
        return count


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What the header says: values by key, and tensors by name."""

    path: Path
    values: dict[str, Any]
    tensors: dict[str, GgufTensor]

    def value(self, key: str) -> Any:
        """The value of this key. Raises BrokenModel when the file has none."""
        if key not in self.values:
            raise BrokenModel(f"{self.path.name} does not say “{key}”.")
        return self.values[key]

    def pieces(self, tensor: GgufTensor) -> Iterator[Floats]:
        """The tensor in float32, a few rows at a time, each piece of the shape (rows, last dimension)."""
        step = max(1, _PIECE // tensor.shape[-1])
        with self.path.open("rb") as file:
            file.seek(tensor.offset)
            for first in range(0, tensor.rows, step):
                rows = min(step, tensor.rows - first)
                stored = file.read(rows * tensor.row_bytes)
                if len(stored) != rows * tensor.row_bytes:
                    raise BrokenModel(f"{self.path.name} ends in the middle of {tensor.name}.")
                yield dequantize(np.frombuffer(stored, np.uint8).reshape(rows, tensor.row_bytes), tensor.type)


def read_gguf(path: Path, check: Check) -> GgufFile:
    """The header of a GGUF file. Calls `check` now and then, which may raise to stop.

    Raises BrokenModel when it is no GGUF file of a known version, or ends too early.
    """
    with path.open("rb") as file:
        header = _Header(file, check)
        try:
            values, tensors = header.read()
        except (struct.error, KeyError, ValueError, MemoryError) as error:
            raise BrokenModel(f"{path.name} is not a whole GGUF file ({error}).", hint="Fetch it again.") from error
    return GgufFile(path, values, tensors)


@dataclass(slots=True)
class _Header:
    """Reads the header from a file, front to back."""

    file: BinaryIO
    check: Check

    def read(self) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
        magic = self.file.read(4)
        version = self._number("<I")
        if magic != _MAGIC or version not in _VERSIONS:
            raise ValueError(f"it begins with {magic!r}, version {version}")
        tensor_count, value_count = self._number("<Q"), self._number("<Q")
        values: dict[str, Any] = {}
        for _ in range(value_count):
            key = self._text()
            values[key] = self._value(self._number("<I"))
        found = [self._tensor() for _ in range(tensor_count)]
        alignment = int(values.get("general.alignment", _ALIGNMENT))
        start = -(-self.file.tell() // alignment) * alignment
        tensors = (GgufTensor(name, shape, kind, start + offset) for name, shape, kind, offset in found)
        return values, {tensor.name: tensor for tensor in tensors}

    def _tensor(self) -> tuple[str, tuple[int, ...], GGMLQuantizationType, int]:
        name = self._text()
        lengths = [self._number("<Q") for _ in range(self._number("<I"))]
        kind = GGMLQuantizationType(self._number("<I"))
        return name, tuple(reversed(lengths)), kind, self._number("<Q")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY:
            return self._array(self._number("<I"), self._number("<Q"))
        return struct.unpack(_SCALARS[kind], self.file.read(struct.calcsize(_SCALARS[kind])))[0]

    def _array(self, kind: int, count: int) -> list[Any]:
        if kind in _SCALARS:
            form = f"<{count}{_SCALARS[kind][1]}"
            return list(struct.unpack(form, self.file.read(struct.calcsize(form))))
        found: list[Any] = []
        for number in range(count):
            if number % _STRINGS_PER_CHECK == 0:
                self.check()
            found.append(self._value(kind))
        return found

    def _number(self, form: str) -> int:
        return int(struct.unpack(form, self.file.read(struct.calcsize(form)))[0])

    def _text(self) -> str:
        length = self._number("<Q")
        text = self.file.read(length)
        if len(text) != length:
            raise ValueError("it ends too early")
        return text.decode("utf-8")
