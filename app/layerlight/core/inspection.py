"""A folder → Model: kind, layers and exact bytes from JSON and file headers, without torch and without a weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from layerlight.core.device import format_size
from layerlight.core.errors import BrokenModel, NotAModel, WrongKindOfModel
from layerlight.core.inspecting.architecture import judge
from layerlight.core.inspecting.config_file import ConfigFile, read_config
from layerlight.core.inspecting.config_values import HINT, implausible
from layerlight.core.inspecting.generation_file import generation_problems
from layerlight.core.inspecting.gguf_header import read_gguf_header
from layerlight.core.inspecting.layers import COMPONENT, incomplete, layers_of, name_rules, tie, unexplained_dtypes
from layerlight.core.inspecting.pipeline_folder import inspect_pipeline, most_common_dtype
from layerlight.core.inspecting.plain_file import endless, read_plain
from layerlight.core.inspecting.quantized_weights import plain_weights, quantized_weights
from layerlight.core.inspecting.safetensors_header import read_safetensors_header
from layerlight.core.inspecting.text_shape import text_shape
from layerlight.core.inspecting.tokenizer_files import TokenizerFiles, find_tokenizer
from layerlight.core.inspecting.weight_files import WeightFiles, find_weight_files
from layerlight.core.model import Component, Model, ModelKind, Tensor

LONGEST_REVISION = 1_000
"""Bytes of the name of a snapshot."""


def inspect_folder(folder: str | Path) -> Model:
    """The model in a folder, in a Hugging Face cache folder or snapshot, or beside a file of a model.

    What keeps it from running is in `problems`. Raises NotAModel where there is no model at all.
    """
    try:
        place = _model_folder(Path(folder).expanduser())
        names = frozenset(entry.name for entry in place.iterdir())
        unending = endless(place)
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise NotAModel(f"“{folder}” can't be read: {reason}.", hint="Check the path.") from error
    if unending:
        raise NotAModel(
            f"“{unending[0]}” in “{folder}” is a pipe or a device, not a file: reading it would never end.",
            hint="Remove it, or choose a folder with the model's own files.",
        )
    name = _model_name(place)
    if "model_index.json" in names:
        return inspect_pipeline(place, name)
    if "config.json" in names:
        return _inspect_model(place, name, names)
    if "adapter_config.json" in names:
        return _adapter(place, name, names)
    if ggufs := sorted(each for each in names if each.lower().endswith(".gguf")):
        return _gguf(place, name, ggufs)
    return _without_config(place, name, names)


def require_runnable(model: Model, tokenizer: bool = True) -> Model:
    """The same model, when a language model can be run from it; without `tokenizer`, when one can be planned.

    Raises WrongKindOfModel for a model of another kind and BrokenModel for files that are not whole.
    """
    called = model.name or model.folder
    if not model.kind.generates_text:
        why = " " + model.problems[0] if model.problems else ""
        kind = "" if model.kind is ModelKind.GGUF else ": it does not write text"
        raise WrongKindOfModel(
            f"{called} is of the kind “{model.kind.value}”{kind}.{why}",
            hint=model.hint or "Choose a chat or base text model.",
        )
    problems = [problem for problem in model.problems if tokenizer or problem != model.tokenizer_problem]
    if problems:
        more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
        raise BrokenModel(f"{called} can't be run. {problems[0]}{more}", hint=model.hint)
    if not model.layers or model.shape is None:
        raise BrokenModel(f"{called} can't be run: it has no layers.", hint="Download the weight files too.")
    return model


# -- which folder ----------------------------------------------------------------------------------------------------


def _model_folder(path: Path) -> Path:
    """The folder that holds the model's files. A cache folder `models--…` leads to its newest snapshot."""
    place = path.absolute()
    if place.is_file():
        return place.parent
    if not place.is_dir():
        raise NotAModel(f"There is no folder “{path}”.", hint="Check the path.")
    if not (place / "snapshots").is_dir() or (place / "config.json").exists():
        return place
    try:
        revision = read_plain(place / "refs" / "main", LONGEST_REVISION).decode().strip()
    except (OSError, UnicodeDecodeError):
        revision = ""
    if revision and "/" not in revision and (place / "snapshots" / revision).is_dir():
        return place / "snapshots" / revision
    snapshots = [entry for entry in (place / "snapshots").iterdir() if entry.is_dir()]
    if not snapshots:
        raise NotAModel(f"“{path}” is a cache folder without a snapshot.", hint="Download the model first.")
    return max(snapshots, key=lambda entry: (entry.stat().st_mtime_ns, entry.name))


def _model_name(place: Path) -> str:
    """`org/name` for a cache snapshot, else the folder's own name."""
    if place.parent.name == "snapshots" and place.parents[1].name.startswith("models--"):
        return place.parents[1].name.removeprefix("models--").replace("--", "/")
    return place.name or str(place)


# -- a folder with a config --------------------------------------------------------------------------------------------


def _inspect_model(place: Path, name: str, names: frozenset[str]) -> Model:
    config = read_config(place / "config.json")
    weights = find_weight_files(place, names, config.content)
    tokenizer = find_tokenizer(place, names)
    tensors, shared, broken = _read_weights(place, weights)
    return _described(config, weights, tensors, shared, broken, tokenizer, str(place), name)


def model_from_headers(config: ConfigFile, tensors: Mapping[str, Sequence[Tensor]], name: str) -> Model:
    """The model that this config and these headers of its safetensors files describe, before any weight is there.

    It can be planned, not run: it has no folder and no tokenizer.
    """
    weights = WeightFiles(tuple(tensors))
    every = [tensor for each in tensors.values() for tensor in each]
    return _described(config, weights, every, {}, [], TokenizerFiles(False, False), "", name)


def _described(
    config: ConfigFile,
    weights: WeightFiles,
    tensors: list[Tensor],
    shared: dict[str, str],
    broken: Sequence[tuple[str, str]],
    tokenizer: TokenizerFiles,
    folder: str,
    name: str,
) -> Model:
    """The model that its config and the tensors in its files make, with all that keeps it from running."""
    verdict = judge(config, tokenizer.chat_template)
    wrong = implausible(config) if verdict.kind.generates_text else ()
    shape = text_shape(config) if verdict.kind.generates_text and not wrong else None
    problems = [(config.problem, config.hint)] if config.problem else []
    problems += list(verdict.problems)
    problems += [*weights.problems, *broken]
    notes = [*verdict.notes, *weights.notes]
    if weights.pickled:
        notes.append("The weights are pickles: they are opened with the safe reader only.")
    if verdict.kind.generates_text:
        problems += [(each, HINT) for each in wrong]
        problems += generation_problems(Path(folder)) if folder else []
        if shape is None and not wrong:
            problems.append(("config.json does not describe a language model's layers.", "Download it again."))
        if tokenizer.problem:
            problems.append((tokenizer.problem, tokenizer.hint))
        if config.quantization:
            lacking, told = quantized_weights(config.quantization)
            problems += lacking
            problems += plain_weights(config.quantization, tensors)
            notes += told
        if verdict.kind is ModelKind.BASE and tokenizer.found:
            notes.append("It has no chat template: it continues your text.")
        if "vision_config" in config.content:
            notes.append("It can see as well, but it is given text alone: pictures can't be shown to it yet.")
    rules = name_rules(config, shape.layers if shape else None)
    layers, left_out = layers_of(tensors, rules)
    tied: tuple[tuple[str, ...], ...] = ()
    if verdict.kind.generates_text and layers:
        layers, tied, tie_notes = tie(layers, rules, config, shared)
        notes += tie_notes
        if not weights.problems and not broken and not wrong:
            problems += incomplete(layers, tied, rules)
            problems += [] if config.quantization else unexplained_dtypes(layers)
    if left_out:
        notes.append(f"{format_size(left_out)} in the files are not part of the loaded model.")
    return Model(
        folder,
        verdict.kind,
        config.architecture or verdict.architecture,
        (Component(COMPONENT, config.architecture or verdict.architecture, sum(layer.size for layer in layers)),),
        layers,
        most_common_dtype(tensors),
        name,
        shape,
        weights.files,
        tied,
        config.quantization,
        tokenizer.chat_template,
        tokenizer.found,
        tuple(problem for problem, _ in problems),
        tuple(notes),
        problems[0][1] if problems else "",
        weights.pickled,
        tokenizer.problem if verdict.kind.generates_text else "",
        config.dtype,
    )


def _read_weights(place: Path, weights: WeightFiles) -> tuple[list[Tensor], dict[str, str], list[tuple[str, str]]]:
    """(tensors, storage of each pickled tensor, problems) from the headers of all files."""
    tensors: list[Tensor] = []
    shared: dict[str, str] = {}
    problems: list[tuple[str, str]] = []
    for file in weights.files:
        try:
            if file.endswith(".safetensors"):
                tensors += read_safetensors_header(place / file, file)
            else:
                from layerlight.core.inspecting.pickle_header import read_pickle_header

                for found in read_pickle_header(place / file, file):
                    tensors.append(found.tensor)
                    shared[found.tensor.name] = f"{file}:{found.storage}"
        except BrokenModel as error:
            problems.append((error.message, error.hint))
    if weights.weight_map and not weights.problems and not problems:
        held = {(tensor.name, tensor.file) for tensor in tensors}
        lacking = [f"{name} in {file}" for name, file in weights.weight_map if (name, file) not in held]
        if lacking:
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            problems.append(
                (f"The index promises {lacking[0]}{more}, which is not there.", "Download the model again.")
            )
    return tensors, shared, problems


# -- folders without a config ------------------------------------------------------------------------------------------


def _adapter(place: Path, name: str, names: frozenset[str]) -> Model:
    adapter = read_config(place / "adapter_config.json")
    base = adapter.content.get("base_model_name_or_path")
    method = adapter.content.get("peft_type")
    for_base = f" for “{base}”" if isinstance(base, str) and base else ""
    kind = method if isinstance(method, str) and method else "fine-tuning"
    files = tuple(sorted(each for each in names if each.startswith("adapter_model.")))
    return Model(
        str(place),
        ModelKind.ADAPTER,
        "",
        (),
        (),
        None,
        name,
        files=files,
        problems=(f"It is only a {kind} adapter{for_base}, not a whole model.",),
        hint=f"Open the base model{for_base}, or a version with the adapter merged in.",
    )


def _gguf(place: Path, name: str, files: list[str]) -> Model:
    notes: list[str] = []
    architecture = ""
    for file in files:
        try:
            header = read_gguf_header(place / file)
        except BrokenModel as error:
            notes.append(error.message)
            continue
        architecture = architecture or header.architecture
        told = [header.name, header.architecture, f"context {header.context_length}" if header.context_length else ""]
        told += [f"licence {header.licence}" if header.licence else "", format_size((place / file).stat().st_size)]
        notes.append(f"{file}: " + ", ".join(word for word in told if word) + ".")
    return Model(
        str(place),
        ModelKind.GGUF,
        architecture,
        (),
        (),
        None,
        name,
        files=tuple(files),
        problems=("GGUF files are not supported here yet: its weights would be unpacked, several times the file.",),
        hint="Choose the safetensors version of this model; loaded in 4 or 8 bit it takes about as little memory.",
        notes=tuple(notes),
    )


def _without_config(place: Path, name: str, names: frozenset[str]) -> Model:
    weights = find_weight_files(place, names, {})
    loose = tuple(sorted(each for each in names if each.endswith((".safetensors", ".bin", ".pth", ".pt", ".ckpt"))))
    if not weights.files and not loose:
        inner = sorted(entry.name for entry in place.iterdir() if entry.is_dir() and (entry / "config.json").is_file())
        hint = f"Open “{inner[0]}” inside it." if inner else "Choose a folder with config.json and weight files."
        raise NotAModel(f"“{place}” holds no model.", hint=hint)
    return Model(
        str(place),
        ModelKind.UNKNOWN,
        "",
        (),
        (),
        None,
        name,
        files=weights.files or loose,
        problems=("There is no config.json beside the weights.",),
        hint="Download config.json of this model too.",
    )
