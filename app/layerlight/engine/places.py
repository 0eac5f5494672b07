"""Where each layer's bytes really are, read from storages and from accelerate's hooks, never from a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from layerlight.core.errors import LoadFailed
from layerlight.core.messages import PlacedLayer
from layerlight.engine.file_pages import FileViews
from layerlight.engine.nesting import module_of, own_modules
from layerlight.engine.quantizing import is_quantized
from layerlight.engine.ring.unit_layout import StoredTensor
from layerlight.engine.staging.device_layout import HeldTensor


@dataclass(frozen=True, slots=True)
class Resting:
    """One tensor's storage: its place, its bytes, what identifies it, its dtype, and whether it is a view of a file."""

    place: str
    size: int
    identity: tuple[object, ...]
    dtype: str
    mapped: bool


def placed_layers(
    model: torch.nn.Module, layers: Sequence[str], streamed: Mapping[str, StoredTensor | HeldTensor] | None = None
) -> tuple[PlacedLayer, ...]:
    """Each layer's place, bytes and dtype. Bytes shared by two layers (tied weights) count for the first.

    `streamed`: weights that a ring brings from disk or RAM, by full name.

    Raises LoadFailed when a tensor of a layer was never filled.
    """
    views = FileViews()
    seen: set[tuple[object, ...]] = set()
    found = []
    for layer in layers:
        module = module_of(model, layer)
        held = list(_resting(own_modules(model, layer, layers), views, streamed or {}))
        own = [each for each in held if each.identity not in seen]
        seen.update(each.identity for each in held)
        found.append(_placed(layer, module, held, own))
    return tuple(found)


def place_name(device: torch.device | str | int) -> str:
    """`cpu`, `mps`, `cuda:0`, …: mps has one device, written without a number."""
    device = torch.device(device)
    if device.type in ("cpu", "mps", "meta"):
        return device.type
    return f"{device.type}:{device.index or 0}"


def _placed(layer: str, module: torch.nn.Module, held: list[Resting], own: list[Resting]) -> PlacedLayer:
    per_place: Counter[str] = Counter()
    per_dtype: Counter[str] = Counter()
    for each in held:
        per_place[each.place] += each.size
        per_dtype[each.dtype] += each.size
    for buffer in () if per_place else module.buffers():
        per_place[place_name(buffer.device)] += buffer.numel()
    rests = per_place.most_common(1)[0][0] if per_place else place_of_execution(module)
    return PlacedLayer(
        layer=layer,
        rests_on=rests,
        runs_on=place_of_execution(module),
        size=sum(each.size for each in own),
        dtype=_dtype_name(module, per_dtype),
        mapped=bool(held) and sum(each.size for each in held if each.mapped) * 2 > sum(each.size for each in held),
    )


def _dtype_name(module: torch.nn.Module, per_dtype: Counter[str]) -> str:
    """The dtype of most bytes; a quantised layer's is its format."""
    for inner in module.modules():
        if is_quantized(inner):
            state = getattr(inner.weight, "quant_state", None)
            return str(state.quant_type) if state is not None else "int8"
    return per_dtype.most_common(1)[0][0] if per_dtype else ""


def place_of_execution(module: torch.nn.Module) -> str:
    """Where a module's next pass will run: accelerate's hook says so, else its weights do. The ring brings its
    weights, which are nowhere while they rest, to the CPU."""
    for inner in module.modules():
        hook = getattr(inner, "_hf_hook", None)
        device = getattr(hook, "execution_device", None)
        if device is not None:
            return place_name(device)
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.device.type != "meta":
            return place_name(tensor.device)
    return "cpu"


def _resting(
    modules: Iterable[tuple[str, torch.nn.Module]], views: FileViews, streamed: Mapping[str, StoredTensor | HeldTensor]
) -> Iterator[Resting]:
    for inner_name, inner in modules:
        for name, parameter in inner.named_parameters(recurse=False):
            full = f"{inner_name}.{name}"
            if full in streamed:
                yield _streamed(parameter, streamed[full], views)
                continue
            if parameter.device.type == "meta":
                yield _carried(inner, name, full, views)
                continue
            yield _held(parameter.data, views)
            for extra in _scales(parameter, inner):
                yield _held(extra, views)
        for name, buffer in inner.named_buffers(recurse=False):
            if name not in inner._non_persistent_buffers_set:
                yield _held(buffer, views)


def _scales(parameter: torch.nn.Parameter, module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Tensors that bitsandbytes keeps beside a quantised weight, which no list of parameters shows."""
    state = getattr(parameter, "quant_state", None)
    for holder in (state, getattr(state, "state2", None)):
        for name in ("absmax", "code", "offset"):
            extra = getattr(holder, name, None)
            if isinstance(extra, torch.Tensor):
                yield extra
    if type(module).__name__ == "Linear8bitLt" and parameter.dtype == torch.int8:
        scale = getattr(parameter, "SCB", None)
        if not isinstance(scale, torch.Tensor):
            scale = getattr(module.state, "SCB", None)
        if isinstance(scale, torch.Tensor):
            yield scale


def _held(tensor: torch.Tensor, views: FileViews) -> Resting:
    place = place_name(tensor.device)
    address = tensor.data_ptr()
    return Resting(
        place,
        tensor.numel() * tensor.element_size(),
        (place, address),
        str(tensor.dtype).removeprefix("torch."),
        place == "cpu" and views.at(address) is not None,
    )


def _carried(module: torch.nn.Module, name: str, full: str, views: FileViews) -> Resting:
    """A tensor that is only brought for a pass: what the hook's weights map holds for it."""
    hook = getattr(module, "_hf_hook", None)
    loader = offloaded(hook)
    if loader is None:
        raise LoadFailed(f"“{full}” was never filled with weights.", hint="The log has the details.")
    if full in loader.state_dict:
        return _held(loader.state_dict[full], views)
    entry = loader.index[full]
    original = getattr(module, name)
    return Resting(
        "disk",
        original.numel() * original.element_size(),
        (entry["safetensors_file"], entry["weight_name"]),
        entry["dtype"],
        False,
    )


def _streamed(parameter: torch.nn.Parameter, stored: StoredTensor | HeldTensor, views: FileViews) -> Resting:
    """A tensor that is brought for each pass: from RAM, from its file into the ring, or as pages of the file."""
    if isinstance(stored, HeldTensor):
        address = stored.source.data_ptr() + stored.begin
        dtype = str(stored.dtype).removeprefix("torch.")
        return Resting("cpu", stored.size, ("cpu", address), dtype, views.at(address) is not None)
    return Resting(
        "disk",
        parameter.numel() * parameter.element_size(),
        (stored.path, stored.begin),
        str(parameter.dtype).removeprefix("torch."),
        parameter.device.type != "meta",
    )


def offloaded(hook: Any) -> Any:
    """accelerate's OffloadedWeightsLoader behind a hook, or None when the hook carries nothing.

    It knows what rests in RAM (`state_dict`) and what in files (`index`).
    """
    for each in getattr(hook, "hooks", (hook,)):
        if each is not None and getattr(each, "offload", False) and each.weights_map is not None:
            inner = each.weights_map.dataset
            return getattr(inner, "loader", inner)
    return None
