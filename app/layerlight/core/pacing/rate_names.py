"""Names of a machine's rates: what `Machine.bandwidths`, calibration and the price of a plan call each figure.

cuda:0                   bytes/s at which weights that rest in a device's memory are read by it; so too `cpu`, `mps`
disk                     bytes/s of weights on disk that come each by itself: experts that a router chose, and by hooks
disk-ring                bytes/s of layers on disk that are read ahead of every pass, past the system's cache
disk-load                bytes/s of one long read from disk, nothing cached
bus:cuda:0:to-pinned     bytes/s of a copy from page-locked RAM to the device
bus:cuda:0:to-pageable   … from ordinary RAM, as accelerate copies
bus:cuda:0:from-pinned   … and back; likewise `from-pageable`
bus                      bytes/s of the slowest `to-pageable`: for whoever asks without naming a device
matrix:cuda:0:bfloat16   floating-point operations/s of large matrix products, an addition and a product being two
weights:cpu:nf4          bytes/s at which weights in a format of bitsandbytes are read and multiplied by
weights:cpu:float16      … and in a dtype, where dtypes differ
turned-back:cpu          elements/s of a KV cache in fp8 that grow by a token and become the model's dtype again
overhead:cuda:0          seconds of Python and dispatch per decoder layer and pass, of work that runs there
overhead:disk            seconds by which reading ahead slows the CPU's work, per decoder layer on disk
"""

from __future__ import annotations

import re
from collections.abc import Mapping

DISK_LOAD = "disk-load"
DISK_RING = "disk-ring"
BUS = "bus"

_PLACE = r"(cpu|mps|(cuda|xpu|sim):\d+)"
_NAME = re.compile(
    rf"{_PLACE}|disk(-load|-ring|-warm)?|bus(:{_PLACE}:(to|from)-(pinned|pageable))?|(matrix|weights):{_PLACE}:\w+"
    rf"|overhead:({_PLACE}|disk)|turned-back:{_PLACE}"
)


def is_rate_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def bus_name(place: str, inward: bool = True, pinned: bool = False) -> str:
    """The bus between RAM and `place`: inward is from RAM to the device."""
    return f"bus:{place}:{'to' if inward else 'from'}-{'pinned' if pinned else 'pageable'}"


def matrix_name(place: str, dtype: str) -> str:
    """The speed of matrix products on `place`; dtype by torch's name."""
    return f"matrix:{place}:{dtype}"


def weights_name(place: str, quantization: str) -> str:
    """The speed of quantised weights on `place`: `nf4`, `fp4` or `int8`."""
    return f"weights:{place}:{quantization}"


def overhead_name(place: str) -> str:
    """The overhead of a decoder layer that runs on `place`."""
    return f"overhead:{place}"


def turned_back_name(place: str) -> str:
    """The speed at which a KV cache in fp8 is turned back on `place`."""
    return f"turned-back:{place}"


def bus_rate(rates: Mapping[str, float], place: str, inward: bool = True, pinned: bool = False) -> float:
    """Bytes/s between RAM and `place`, from `speed.rates_of`: where this way was not measured, that of pageable RAM,
    then that of the other direction, then that of any bus.
    """
    nearest = (
        bus_name(place, inward, pinned),
        bus_name(place, inward, False),
        bus_name(place, not inward, pinned),
        bus_name(place, not inward, False),
    )
    return next((rates[name] for name in nearest if name in rates), rates[BUS])
