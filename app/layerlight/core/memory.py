"""Bytes: weights as they will be loaded, KV cache, working memory, and the margin that stays free."""

from __future__ import annotations

from layerlight.core.device import Device
from layerlight.core.model import DTYPE_SIZES, FLOAT_DTYPES, Layer, LayerKind, Tensor
from layerlight.core.sizing.kv_cache import kv_bytes
from layerlight.core.sizing.single_precision import single_precision, unquantized
from layerlight.core.sizing.stored_format import described, is_scale
from layerlight.core.sizing.working_memory import experts_bytes, working_bytes

__all__ = [
    "MIB", "QUANTIZATIONS", "dequantized_bytes", "expands", "experts_bytes", "kv_bytes",
    "loaded_size", "loaded_tensor_size", "loading_bytes", "margin", "quantizable", "quantized_size", "working_bytes",
]  # fmt: skip

QUANTIZATIONS = ("nf4", "fp4", "int8", "nf4-double", "fp4-double")
"""What bitsandbytes can do while loading; `-double` quantises the scales too."""

FOUR_BIT_BLOCK = 64
"""Elements that share one fp32 absmax in bitsandbytes' 4-bit formats (its default block size)."""

DOUBLE_BLOCK = 256
"""Scales that share one fp32 absmax of their own where they are quantised too."""

CODE_BOOK = 16 * 4
"""Bytes of the table that every 4-bit weight carries."""

DOUBLE_CODE_BOOK = 256 * 4 + 4
"""Bytes of the table of quantised scales, and of their offset."""

MIB = 2**20

_FLOAT_8 = frozenset(name for name in DTYPE_SIZES if name.startswith("float8"))
_QUANTIZED_KINDS = frozenset({LayerKind.DECODER, LayerKind.TOWER, LayerKind.OTHER})
_TURNED = ("c_attn", "c_proj", "c_fc", "q_attn")
"""GPT-2's linear weights, which lie input by output."""


def loaded_size(
    layer: Layer, dtype: str, quantization: str | None = None, expands: bool = False, model_type: str = ""
) -> int:
    """Bytes of a layer's weights once loaded in `dtype`, quantised by bitsandbytes where that would happen."""
    return sum(loaded_tensor_size(tensor, layer, dtype, quantization, expands, model_type) for tensor in layer.tensors)


def loaded_tensor_size(
    tensor: Tensor, layer: Layer, dtype: str, quantization: str | None, expands: bool = False, model_type: str = ""
) -> int:
    """Bytes of one tensor once loaded. Tensors that are no floats keep their size, as in the file.

    Where it `expands`, weights that are stored in fp8 or mxfp4 become `dtype`, and their scales are gone. A few weights
    of some model types stay in float32.
    """
    if expands and (expanded := _expanded(tensor)) is not None:
        return expanded * DTYPE_SIZES[dtype]
    if (no_weight := described(tensor, layer)) is not None:
        return no_weight
    if tensor.dtype not in FLOAT_DTYPES or tensor.name.endswith("_scale_inv") or is_scale(tensor):
        return tensor.size
    if quantization and quantizable(tensor, layer, model_type):
        return quantized_size(tensor.elements, _outputs(tensor), quantization)
    single = single_precision(model_type, dtype)
    return tensor.elements * (4 if single is not None and single.search(tensor.name) else DTYPE_SIZES[dtype])


def quantized_size(elements: int, outputs: int, quantization: str) -> int:
    """Bytes of a linear weight that bitsandbytes quantised, with its scales and tables."""
    if quantization == "int8":
        return elements + 4 * outputs
    blocks = -(-elements // FOUR_BIT_BLOCK)
    scales = 4 * blocks
    if quantization.endswith("-double"):
        scales = blocks + 4 * -(-blocks // DOUBLE_BLOCK) + DOUBLE_CODE_BOOK
    return -(-elements // 2) + scales + CODE_BOOK


def dequantized_bytes(elements: int, dtype: str, quantization: str | None, on_accelerator: bool) -> int:
    """Bytes that a pass needs to turn one quantised weight of so many elements back.

    Without a kernel of its own, as in RAM, each of a 4-bit weight's elements also passes through whole numbers, and an
    int8 weight becomes float32, as do its products. Accelerators multiply int8 as it is. What RAM needs was measured in
    whole runs of two models, looked at every millisecond (bitsandbytes 0.50.2, without AVX-512); nothing else was.
    """
    if quantization is None or (quantization == "int8" and on_accelerator):
        return 0
    if on_accelerator:
        return elements * DTYPE_SIZES[dtype]
    return elements * (8 + DTYPE_SIZES[dtype] if quantization == "int8" else 7)


def loading_bytes(elements: int, dtype: str, quantization: str | None, on_accelerator: bool) -> int:
    """Bytes beside all weights that a load needs while it quantises one of so many elements: what it is made from, what
    is made on the way, less the result.

    Measured in RAM as the rise of a process that quantised one matrix of 6 or 34 million elements (bitsandbytes
    0.50.2); whole loads in nf4 and int8 agreed within 3 %. On accelerators, where one kernel reads the weight and
    writes the result, it is the weight: not measured.
    """
    if quantization is None:
        return 0
    if on_accelerator:
        return elements * (2 if quantization == "int8" else DTYPE_SIZES[dtype])
    if quantization == "int8":
        return elements * (13 if DTYPE_SIZES[dtype] == 4 else 9)
    return 14 * elements - quantized_size(elements, 1, quantization)


def expands(method: str | None, devices: tuple[Device, ...]) -> bool:
    """Whether weights that are stored in fp8 or mxfp4 become the model's dtype, because nothing here computes in them.

    fp8 needs an XPU or CUDA of capability 8.9; mxfp4 needs kernels that Layerlight does not bring.
    """
    if method == "fp8":
        return not any(
            device.kind == "xpu" or (device.capability is not None and device.capability >= (8, 9))
            for device in devices
        )
    return method == "mxfp4"


def _expanded(tensor: Tensor) -> int | None:
    """Elements it has once expanded, 0 for scales; None for tensors that stay as they are."""
    if tensor.name.endswith(("_scale_inv", "_scales", ".weight_scale")):
        return 0
    if tensor.name.endswith("_blocks") and tensor.dtype == "uint8":
        return 2 * tensor.elements
    return tensor.elements if tensor.dtype in _FLOAT_8 else None


def _outputs(tensor: Tensor) -> int:
    turned = tensor.name.rsplit(".", 2)[-2] in _TURNED
    return tensor.shape[-1] if turned else tensor.shape[0]


def quantizable(tensor: Tensor, layer: Layer, model_type: str = "") -> bool:
    """Whether bitsandbytes would quantise it: a linear weight that is neither expert, router nor table.

    transformers fuses experts into three-dimensional parameters and keeps routers as plain parameters; both stay as
    they are. The output head and embeddings are skipped by default; towers and projectors are not.
    """
    if layer.kind not in _QUANTIZED_KINDS or len(tensor.shape) != 2 or not tensor.name.endswith(".weight"):
        return False
    inner = tensor.name.rpartition(".")[0]
    expert = ".experts." in tensor.name
    router = inner.endswith((".gate", ".router"))
    if inner.endswith(unquantized(model_type)):
        return False
    return not expert and not router and "embed" not in inner.rpartition(".")[2]


def margin(device: Device) -> int:
    """Bytes that stay free on a device, so that what can't be foreseen does not end in an error.

    A twentieth of what is free, at most 512 MiB on an accelerator and 1 GiB of RAM; nothing on disk. On an accelerator
    that covers what its driver and libraries take once work begins (typically 300 to 500 MiB with CUDA, a figure from
    public reports that was not measured here) only where the survey did not see it taken already.
    """
    if device.kind == "disk" or device.free is None:
        return 0
    return min(device.free // 20, (512 if device.is_accelerator else 1024) * MIB)
