"""model_index.json: the components of an image pipeline and their sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from layerlight.core.errors import BrokenModel
from layerlight.core.inspecting.plain_file import read_json
from layerlight.core.inspecting.safetensors_header import read_safetensors_header
from layerlight.core.model import Component, Layer, LayerKind, Model, ModelKind, Tensor

_SINGLES = ("diffusion_pytorch_model.safetensors", "model.safetensors")


def inspect_pipeline(folder: Path, name: str) -> Model:
    """An image pipeline: each component is one layer, with the bytes of the files that its loader opens."""
    try:
        index = read_json(folder / "model_index.json")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return _broken(folder, name, f"model_index.json can't be read: {reason}.")
    if not isinstance(index, dict):
        return _broken(folder, name, "model_index.json holds no object.")
    components: list[Component] = []
    layers: list[Layer] = []
    files: list[str] = []
    problems: list[str] = []
    for part, entry in index.items():
        if part.startswith("_") or not _is_class(entry):
            continue
        if not _is_inner_folder(folder, part):
            problems.append(f"The component {part} is missing.")
            continue
        tensors, found = _weights(folder, part, problems)
        files += found
        size = sum(tensor.size for tensor in tensors)
        components.append(Component(part, str(entry[1]), size))
        if tensors:
            elements = sum(tensor.elements for tensor in tensors)
            layers.append(Layer(part, part, LayerKind.OTHER, elements, size, tensors=tuple(tensors)))
    return Model(
        str(folder),
        ModelKind.IMAGE,
        str(index.get("_class_name", "")),
        tuple(components),
        tuple(layers),
        most_common_dtype(tensor for layer in layers for tensor in layer.tensors),
        name,
        files=tuple(files),
        tokenizer=any(part.startswith("tokenizer") for part in index),
        problems=tuple(problems),
        hint="Finish the download, then open the folder again." if problems else "",
    )


def most_common_dtype(tensors: Any) -> str | None:
    """The dtype of most bytes; None without any."""
    sizes: dict[str, int] = {}
    for tensor in tensors:
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.size
    return max(sizes, key=lambda dtype: sizes[dtype], default=None)


def _is_inner_folder(folder: Path, part: str) -> bool:
    """False too for a part whose name leads out of the folder, or that the file system can't hold."""
    try:
        return part != ".." and Path(part).name == part and (folder / part).is_dir()
    except (OSError, ValueError):
        return False


def _is_class(entry: Any) -> bool:
    """`["diffusers", "AutoencoderKL"]`; `[null, null]` is a part that this pipeline leaves out."""
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], str)


def _weights(folder: Path, part: str, problems: list[str]) -> tuple[list[Tensor], list[str]]:
    names = sorted(entry.name for entry in (folder / part).iterdir())
    single = next((name for name in _SINGLES if name in names), None)
    if single:
        chosen = [single]
    else:
        chosen = [name for name in names if name.endswith(".safetensors") and "-of-" in name and ".fp16" not in name]
        chosen = chosen or [name for name in names if name.endswith(".fp16.safetensors")][:1]
    if not chosen and "config.json" in names:
        problems.append(f"The component {part} has no safetensors weights.")
    tensors: list[Tensor] = []
    for name in chosen:
        try:
            tensors += read_safetensors_header(folder / part / name, f"{part}/{name}")
        except BrokenModel as error:
            problems.append(error.message)
    return tensors, [f"{part}/{name}" for name in chosen]


def _broken(folder: Path, name: str, problem: str) -> Model:
    return Model(str(folder), ModelKind.IMAGE, "", (), (), None, name, problems=(problem,), hint="Download it again.")
