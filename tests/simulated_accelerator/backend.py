"""`torch.sim`: what a torch device module offers, over the built library, and counters that real ones lack."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from tests.simulated_accelerator import MOST_DEVICES
from tests.simulated_accelerator.build import library
from tests.simulated_accelerator.reading import teach_safetensors

Where = int | str | torch.device | None

_unified = False


@dataclass(frozen=True)
class Transfers:
    """Bytes and counts of the copies that a program asked for; what operators do inside is no transfer."""

    to_device: int = 0
    to_device_count: int = 0
    from_device: int = 0
    from_device_count: int = 0
    from_peer: int = 0
    from_peer_count: int = 0
    to_peer: int = 0
    to_peer_count: int = 0
    scalars_read: int = 0
    """`.item()` calls: numbers that a program read, kept apart from the copies."""


@dataclass(frozen=True)
class DeviceProperties:
    name: str
    total_memory: int
    is_integrated: bool


@dataclass(frozen=True)
class _Reading:
    total: int
    used: int
    peak: int
    blocks: int
    overflows: int
    from_host: int
    from_host_count: int
    to_host: int
    to_host_count: int
    from_peer: int
    from_peer_count: int
    to_peer: int
    to_peer_count: int
    scalars: int


# -- installing ------------------------------------------------------------------------------------------------------


def install(devices: Sequence[int], unified: bool = False) -> ModuleType:
    """See `tests.simulated_accelerator.install`."""
    global _unified
    if len(devices) > MOST_DEVICES:
        raise ValueError(f"{len(devices)} simulated devices are more than {MOST_DEVICES}")
    lib = _library()
    for index in range(len(devices), device_count()):
        if _read(index).used:
            raise ValueError(f"sim:{index} still holds {_read(index).used} bytes, so it can't be taken away")
    for index, total in enumerate(devices):
        lib.sim_set_total(index, total)
    lib.sim_set_devices(len(devices))
    for index in range(len(devices)):
        reset_peak_memory_stats(index)
        reset_transfers(index)
    _unified = unified
    return sys.modules[__name__]


@functools.cache
def _library() -> ctypes.CDLL:
    """Loads and registers the backend, once per process."""
    lib = ctypes.CDLL(str(library()))
    lib.sim_set_total.argtypes = (ctypes.c_int, ctypes.c_int64)
    lib.sim_read.argtypes = (ctypes.c_int, ctypes.POINTER(ctypes.c_int64))
    lib.sim_pinned_bytes.restype = ctypes.c_int64
    lib.sim_start()
    torch.utils.rename_privateuse1_backend("sim")
    torch._register_device_module("sim", sys.modules[__name__])
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    teach_safetensors()
    return lib


def uninstall() -> None:
    """Leaves no simulated devices. The backend stays registered, as torch can't forget one."""
    _library().sim_set_devices(0)


def set_total(where: Where, total: int) -> None:
    """Changes a device's total bytes, as if another program had taken or left memory."""
    _library().sim_set_total(_index(where), total)


# -- what torch's device modules offer -------------------------------------------------------------------------------


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    return True


def init() -> None:
    pass


def _lazy_init() -> None:
    pass


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    return int(_library().sim_device_count())


def current_device() -> int:
    return int(_library().sim_current_device())


def set_device(where: Where) -> None:
    _library().sim_set_current_device(_index(where))


class device:  # noqa: N801  (torch's own name for it)
    """Makes a device the current one inside a `with`."""

    def __init__(self, where: Where) -> None:
        self._index = _index(where)
        self._before = self._index

    def __enter__(self) -> None:
        self._before = current_device()
        set_device(self._index)

    def __exit__(self, *exception: object) -> None:
        set_device(self._before)


def synchronize(where: Where = None) -> None:
    _index(where)


def empty_cache() -> None:
    pass


def current_stream(where: Where = None) -> torch.Stream:
    return torch.accelerator.current_stream(_index(where))


def get_device_name(where: Where = None) -> str:
    return get_device_properties(where).name


def get_device_properties(where: Where = None) -> DeviceProperties:
    index = _index(where)
    return DeviceProperties(f"Simulated accelerator {index}", _read(index).total, _unified)


def mem_get_info(where: Where = None) -> tuple[int, int]:
    """(free, total) bytes."""
    reading = _read(_index(where))
    return max(0, reading.total - reading.used), reading.total


def memory_allocated(where: Where = None) -> int:
    return _read(_index(where)).used


def max_memory_allocated(where: Where = None) -> int:
    return _read(_index(where)).peak


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


def reset_peak_memory_stats(where: Where = None) -> None:
    _library().sim_reset_peak(_index(where))


def memory_stats(where: Where = None) -> dict[str, Any]:
    return dict(torch.accelerator.memory_stats(_index(where)))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16, torch.float32]


def manual_seed(seed: int) -> None:
    """Nothing to do: without a generator of their own, random operators take the CPU's, which torch seeds."""


manual_seed_all = manual_seed


def get_rng_state(where: Where = None) -> torch.Tensor:
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, where: Where = None) -> None:
    torch.set_rng_state(state)


# -- what only a simulated device can tell ---------------------------------------------------------------------------


def transfers(where: Where = None) -> Transfers:
    """What crossed since the last reset."""
    it = _read(_index(where))
    return Transfers(
        it.from_host, it.from_host_count, it.to_host, it.to_host_count,
        it.from_peer, it.from_peer_count, it.to_peer, it.to_peer_count, it.scalars,
    )  # fmt: skip


def reset_transfers(where: Where = None) -> None:
    _library().sim_reset_transfers(_index(where))


def overflows(where: Where = None) -> int:
    """How often an allocation was refused since the process began."""
    return _read(_index(where)).overflows


def pinned_bytes() -> int:
    """Bytes of host memory that are pinned now."""
    return int(_library().sim_pinned_bytes())


def _index(where: Where) -> int:
    index = current_device() if where is None else where if isinstance(where, int) else torch.device(where).index
    index = current_device() if index is None else index
    if not 0 <= index < device_count():
        raise RuntimeError(f"sim:{index} does not exist: there are {device_count()} simulated devices.")
    return index


def _read(index: int) -> _Reading:
    values = (ctypes.c_int64 * len(_Reading.__dataclass_fields__))()
    _library().sim_read(index, values)
    return _Reading(*values)
