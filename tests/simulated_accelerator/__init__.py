"""A simulated accelerator for torch: devices `sim:0`, `sim:1`, … with limits, peaks and counted transfers.

It is how several accelerators, unified memory and overflow are tested on a machine that has none. Its memory is host
memory and its kernels are the CPU's, so tokens equal the CPU's and its speed means nothing.

It differs from a real device where torch treats registered backends differently: a CPU tensor's `.data` can't be set to
a device tensor, so `module.to("sim")` makes new Parameters (ties part), and bitsandbytes' int8 can't load onto it.
Streams are accepted, but every copy and kernel has ended when its call returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

MOST_DEVICES = 16


class NoCompiler(RuntimeError):
    """The backend can't be built here; the message says what is missing."""


def install(devices: Sequence[int] = (64 << 20, 64 << 20), unified: bool = False) -> ModuleType:
    """Makes `sim:0`, … with these total bytes each, and returns `torch.sim`. May be called again to change them.

    `unified` makes each device say that it shares RAM, as a Mac's does. Raises NoCompiler where it can't be built,
    ValueError for more than 16 devices, or for fewer than hold memory now.
    """
    # Imported late: `python -m tests.simulated_accelerator` sets torch's environment before torch is imported.
    from tests.simulated_accelerator import backend

    return backend.install(devices, unified)
