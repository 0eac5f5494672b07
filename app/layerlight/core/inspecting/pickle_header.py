"""torch's pickle files (`.bin`): names, dtypes and shapes of their tensors, found without running anything in them.

A pickle is a program. Here its instructions are read as symbols by a small machine of our own that builds tuples, lists
and dictionaries and can call nothing; a file that wants to call more than tensor rebuilding is refused by name.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from layerlight.core.errors import BrokenModel
from layerlight.core.inspecting.plain_file import open_plain
from layerlight.core.inspecting.safetensors_header import MOST_DIMENSIONS
from layerlight.core.model import Tensor

LARGEST_PICKLE = 100_000_000
"""Bytes of instructions; weights are not among them."""
MOST_INSTRUCTIONS = 5_000_000
"""Of one file: a tensor needs about forty, so that a hundred thousand tensors have room."""

_STORAGES = {
    "DoubleStorage": ("float64", 8), "FloatStorage": ("float32", 4), "HalfStorage": ("float16", 2),
    "BFloat16Storage": ("bfloat16", 2), "LongStorage": ("int64", 8), "IntStorage": ("int32", 4),
    "ShortStorage": ("int16", 2), "CharStorage": ("int8", 1), "ByteStorage": ("uint8", 1), "BoolStorage": ("bool", 1),
    "Float8_e4m3fnStorage": ("float8_e4m3fn", 1), "Float8_e5m2Storage": ("float8_e5m2", 1),
}  # fmt: skip
_DICTIONARIES = ("collections.OrderedDict", "builtins.dict")
_TENSORS = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor")
_PARAMETERS = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")
_PLAIN = ("torch.Size", "torch.storage.UntypedStorage", "torch.device")
_MENTIONED = frozenset(
    {
        *_DICTIONARIES,
        *_TENSORS,
        *_PARAMETERS,
        *_PLAIN,
        *(f"torch.{storage}" for storage in _STORAGES),
        *(f"torch.{dtype}" for dtype, _ in _STORAGES.values()),
    }
)


class _Refused(Exception):
    """The file wants to run something; the argument is what."""


class _Unreadable(Exception):
    """The instructions make no sense."""


@dataclass(frozen=True, slots=True)
class _Name:
    """An importable thing the file mentions. It is never imported."""

    path: str


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: str
    width: int
    elements: int


@dataclass(frozen=True, slots=True)
class _Rebuilt:
    storage: _Storage
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PickledTensor:
    """A tensor and the key of the storage it is a view of: two with one key share their bytes."""

    tensor: Tensor
    storage: str


def read_pickle_header(path: Path, name: str = "") -> tuple[PickledTensor, ...]:
    """The tensors of a `.bin` file, zipped or in torch's old form, in the file's order.

    Raises BrokenModel for a file that is cut short, is no such file, or holds instructions beyond tensors.
    """
    name = name or path.name
    try:
        with open_plain(path) as file:
            content = _read_program(file, name)
    except _Refused as error:
        raise BrokenModel(
            f"{name} is a pickle that wants to run “{error}”. It was not run.",
            hint="Don't load it anywhere. Look for safetensors weights of this model.",
            title="This file carries code",
        ) from error
    except zipfile.BadZipFile as error:
        raise BrokenModel(f"{name} is cut short or damaged: {error}.", hint="Download it again.") from error
    except (_Unreadable, EOFError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise BrokenModel(f"{name} can't be read as torch weights: {error}.", hint="Download it again.") from error
    except OSError as error:
        raise BrokenModel(f"{name} can't be read: {error.strerror or error}.") from error
    return tuple(_tensors(content, name))


def _read_program(file: IO[bytes], name: str) -> Any:
    start = file.read(64)
    if not start:
        raise BrokenModel(f"{name} is empty (0 bytes).", hint="Download it again.")
    if start.startswith(b"version https://git-lfs"):
        raise BrokenModel(
            f"{name} is a Git LFS pointer, not weights.",
            hint="Fetch the real file: “git lfs pull” in that folder, or download the model again.",
        )
    file.seek(0)
    if start.startswith(b"PK"):
        return _run(_zipped_program(file))
    for _ in range(3):  # magic number, protocol and system come before the state in the old form
        _run(file)
    return _run(file)


def _zipped_program(file: IO[bytes]) -> IO[bytes]:
    with zipfile.ZipFile(file) as archive:
        entry = next((each for each in archive.infolist() if each.filename.endswith("data.pkl")), None)
        if entry is None:
            raise _Unreadable("it has no data.pkl")
        if entry.file_size > LARGEST_PICKLE:
            raise _Unreadable(f"its instructions are {entry.file_size} bytes long")
        return io.BytesIO(archive.read(entry))


def _tensors(content: Any, name: str) -> list[PickledTensor]:
    if not isinstance(content, dict):
        raise BrokenModel(f"{name} holds no dictionary of weights.", hint="It may be a training checkpoint.")
    if isinstance(content.get("state_dict"), dict):
        raise BrokenModel(f"{name} is a training checkpoint, not a model's weights.")
    return [
        PickledTensor(
            Tensor(key, found.storage.dtype, found.shape, _elements(found.shape) * found.storage.width, name),
            found.storage.key,
        )
        for key, found in content.items()
        if isinstance(key, str) and isinstance(found, _Rebuilt)
    ]


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


# -- the machine -----------------------------------------------------------------------------------------------------

_MARK = object()
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": list}
_VALUES = frozenset(
    {
        *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "BINFLOAT", "FLOAT"),
        *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINSTRING", "SHORT_BINSTRING", "STRING"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    }
)


def _run(file: IO[bytes]) -> Any:
    """The value that the instructions build, with names, storages and tensors as symbols."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for count, (opcode, argument, position) in enumerate(pickletools.genops(file)):
        if count > MOST_INSTRUCTIONS or (position is not None and position > LARGEST_PICKLE):
            raise _Unreadable("its instructions don't end")
        if opcode.name == "STOP":
            return stack.pop()
        _step(opcode.name, argument, stack, memo)
    raise _Unreadable("its instructions have no end")


def _step(code: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    match code:
        case _ if code in _VALUES:
            stack.append(argument)
        case _ if code in _CONSTANTS:
            stack.append(_CONSTANTS[code])
        case _ if code in _EMPTY:
            stack.append(_EMPTY[code]())
        case "PROTO" | "FRAME":
            pass
        case "MARK":
            stack.append(_MARK)
        case "BINPUT" | "LONG_BINPUT" | "PUT":
            memo[int(argument)] = stack[-1]
        case "MEMOIZE":
            memo[len(memo)] = stack[-1]
        case "BINGET" | "LONG_BINGET" | "GET":
            stack.append(memo[int(argument)])
        case "POP":
            stack.pop()
        case "POP_MARK":
            _since_mark(stack)
        case "TUPLE" | "LIST":
            items = _since_mark(stack)
            stack.append(tuple(items) if code == "TUPLE" else items)
        case "TUPLE1" | "TUPLE2" | "TUPLE3":
            count = int(code[-1])
            stack[-count:] = [tuple(stack[-count:])]
        case "DICT":
            items = _since_mark(stack)
            stack.append(_set({}, items))
        case "SETITEM":
            value, key = stack.pop(), stack.pop()
            _set(stack[-1], [key, value])
        case "SETITEMS":
            items = _since_mark(stack)
            _set(stack[-1], items)
        case "APPEND":
            stack.pop()
        case "APPENDS" | "ADDITEMS":
            _since_mark(stack)
        case "GLOBAL":
            stack.append(_mention(str(argument).replace(" ", ".", 1)))
        case "STACK_GLOBAL":
            name, module = stack.pop(), stack.pop()
            stack.append(_mention(f"{module}.{name}"))
        case "BINPERSID":
            stack.append(_storage(stack.pop()))
        case "REDUCE" | "NEWOBJ":
            arguments, called = stack.pop(), stack.pop()
            stack.append(_rebuild(called, arguments))
        case "BUILD":
            stack.pop()  # attributes such as a state dict's _metadata
        case _:
            raise _Refused(f"the instruction {code}")


def _since_mark(stack: list[Any]) -> list[Any]:
    for index in range(len(stack) - 1, -1, -1):
        if stack[index] is _MARK:
            items = stack[index + 1 :]
            del stack[index:]
            return items
    raise _Unreadable("its instructions lack a mark")


def _set(target: Any, items: list[Any]) -> Any:
    if not isinstance(target, dict) or len(items) % 2:
        raise _Unreadable("it fills something that is no dictionary")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if isinstance(key, str | int):
            target[key] = value
    return target


def _mention(path: str) -> _Name:
    """A name the file may mention. Raises _Refused for any that is not about tensors."""
    if path in _MENTIONED:
        return _Name(path)
    raise _Refused(path)


def _storage(identity: Any) -> _Storage:
    if not isinstance(identity, tuple) or len(identity) < 5 or not isinstance(identity[1], _Name):
        raise _Unreadable("it names no storage where one belongs")
    kind = identity[1].path.rpartition(".")[2]
    dtype, width = _STORAGES.get(kind, ("uint8", 1))
    return _Storage(str(identity[2]), dtype, width, int(identity[4]))


def _is_shape(shape: Any) -> bool:
    if not isinstance(shape, tuple) or len(shape) > MOST_DIMENSIONS:
        return False
    return all(isinstance(length, int) and 0 <= length < 2**63 for length in shape)


def _rebuild(called: Any, arguments: Any) -> Any:
    """What the call would give, as a symbol: only dictionaries, tensors, parameters and plain torch values."""
    if not isinstance(called, _Name) or not isinstance(arguments, tuple):
        raise _Refused("a call of something that has no name")
    if called.path in _DICTIONARIES:
        return {}
    if called.path in _PARAMETERS:
        return arguments[0]
    if called.path in _TENSORS:
        storage, _, shape = arguments[:3]
        if not isinstance(storage, _Storage) or not _is_shape(shape):
            raise _Unreadable("a tensor has no storage or no shape")
        return _Rebuilt(storage, tuple(shape))
    if called.path in _PLAIN:
        return arguments
    raise _Refused(called.path)
