"""Request → live model, through transformers and accelerate, each layer where the plan wants it."""

from __future__ import annotations

import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from layerlight.core.errors import BrokenModel, LayerlightError, LoadFailed, Stopped
from layerlight.core.folders import own_folders
from layerlight.core.inspecting.tokenizer_files import processor_template
from layerlight.core.job import Job
from layerlight.core.messages import LoadRequest, PlacedLayer
from layerlight.engine import file_pages
from layerlight.engine.auto_class import auto_class
from layerlight.engine.checking import CheckedModel
from layerlight.engine.crossing import cross_once
from layerlight.engine.dispatching import index_of, join_experts, loader_of, run_on_main, tie_on_disk
from layerlight.engine.empty_model import config_of, torch_dtype
from layerlight.engine.failures import LIBRARY_FAILURES, first_line, loading_failure
from layerlight.engine.mapped_layers import MappedLayers, map_from_disk
from layerlight.engine.misfits import require_fitting
from layerlight.engine.offload_folder import OffloadFolder
from layerlight.engine.places import placed_layers
from layerlight.engine.progress import LoadProgress, reported_by
from layerlight.engine.quantizing import avoid_failing_kernels, bitsandbytes_config, quiet_bitsandbytes
from layerlight.engine.read_files import ReadFiles
from layerlight.engine.staged_layers import StagedLayers, stage
from layerlight.engine.stored_names import stored_tensors
from layerlight.engine.streamed_layers import StreamedLayers, stream_from_disk
from layerlight.engine.streaming import Carried, carry_counted, files_on_disk
from layerlight.engine.towers import beside_text, rest_on_disk, tell_device

log = logging.getLogger(__name__)

RELEASE_EVERY = 64 * 2**20
"""Bytes loaded between two releases of source pages."""


@dataclass(slots=True)
class LoadedModel:
    """A live model with all that belongs to it. `placed` was measured, `carried` counts weights brought for passes."""

    request: LoadRequest
    model: Any
    tokenizer: Any
    placed: tuple[PlacedLayer, ...]
    carried: dict[str, Carried]
    places: tuple[str, ...]
    """Where its layers rest and run."""
    config: Any
    offload: OffloadFolder | None
    files: ReadFiles
    """What passes still read."""
    streamed: StreamedLayers | None = None
    """Layers that the ring reads from disk ahead of each pass."""
    mapped: MappedLayers | None = None
    """Experts and tables on disk that are pages of their files."""
    staged: StagedLayers | None = None
    """Layers in RAM and on disk that are copied to an accelerator ahead of each pass."""

    def drop(self) -> None:
        """Lets go of weights, of the threads that read them, and of the offload folder."""
        for reading in (self.streamed, self.mapped, self.staged):
            if reading is not None:
                reading.close()
        self.streamed = self.mapped = self.staged = None
        self.model = self.tokenizer = None
        self.carried = {}
        self.files.close()
        if self.offload is not None:
            self.offload.remove()
            self.offload = None


def load_model(request: LoadRequest, checked: CheckedModel, job: Job, tokenizer: Any = None) -> LoadedModel:
    """Loads what was checked; a tokenizer that is there already is not read again.

    Raises Stopped between two parameters when asked to stop, else a LayerlightError. What a failure leaves behind is
    only garbage: the caller collects it.
    """
    progress = LoadProgress(job, dict(checked.checked.layers), checked.layer_of, _page_releaser(request))
    offload = _offload_folder(request, checked.resaved)
    loaded: LoadedModel | None = None
    failure: LayerlightError
    try:
        loaded = _load_and_look(request, checked, progress, offload, tokenizer)
        return loaded
    except Stopped:
        failure = Stopped()
    except LIBRARY_FAILURES as error:
        # as text: a record that some handler keeps would keep the frames, and so the weights
        log.error("loading %s failed\n%s", request.folder, traceback.format_exc())
        failure = _why(error, request, checked).with_traceback(None)
    finally:
        if loaded is None and offload is not None:
            offload.remove()
    raise failure


def _why(error: Exception, request: LoadRequest, checked: CheckedModel) -> LayerlightError:
    """What ended the load: a file that is no longer whole, before what a library made of that."""
    if isinstance(error, (SafetensorError, OSError)):
        try:
            stored_tensors(Path(request.folder), checked.config)
        except BrokenModel as broken:
            return broken
    return loading_failure(error, Path(request.folder).name)


def _load_and_look(
    request: LoadRequest,
    checked: CheckedModel,
    progress: LoadProgress,
    offload: OffloadFolder | None,
    tokenizer: Any,
) -> LoadedModel:
    if tokenizer is None:
        progress.tell("Reading the tokenizer")
        tokenizer = load_tokenizer(request.folder)
    progress.check()
    model = _load(request, checked, progress, offload)
    progress.finish("Looking where everything is")
    layers = tuple(placement.layer for placement in request.placements)
    run_on_main(model, checked)
    join_experts(model, request)
    cross_once(model, request)
    tie_on_disk(model)
    quiet_bitsandbytes()
    avoid_failing_kernels(model)
    with ExitStack() as undo:  # threads that read end where the load fails after all
        stored = rest_on_disk(model, request, index_of(model))
        mapped, streamed, staged = _brought(model, request, undo)
        tell_device(model, layers)
        carried = carry_counted(model, layers)
        for reading in (mapped, streamed, staged):
            if reading is not None:
                carried |= reading.carried
                stored |= reading.stored
        held = staged.held if staged is not None else {}
        placed = placed_layers(model, layers, {**stored, **held})
        places = tuple(dict.fromkeys(place for layer in placed for place in (layer.rests_on, layer.runs_on)))
        files = _read_files(request, files_on_disk(model) | {each.path for each in stored.values()}, placed)
        undo.pop_all()
    return LoadedModel(
        request, model, tokenizer, placed, carried, places, checked.config, offload, files, streamed, mapped, staged
    )


def _brought(
    model: Any, request: LoadRequest, undo: ExitStack
) -> tuple[MappedLayers | None, StreamedLayers | None, StagedLayers | None]:
    """What rests elsewhere than it runs is brought by us: what is chosen on disk when it is, the rest ahead."""
    index, loader = index_of(model), loader_of(model)
    mapped = map_from_disk(model, request, index)
    if mapped is not None:
        undo.callback(mapped.close)
    streamed = stream_from_disk(model, request, index)
    if streamed is not None:
        undo.callback(streamed.close)
    staged = stage(model, request, loader)
    if staged is not None:
        undo.callback(staged.close)
    return mapped, streamed, staged


def _read_files(request: LoadRequest, on_disk: set[str], placed: tuple[PlacedLayer, ...]) -> ReadFiles:
    """Weight files that memory shows, and those that hold layers on disk.

    Where the system does not list views, layers in RAM may be views of any weight file.
    """
    weights = file_pages.weight_files(Path(request.folder))
    viewed = {view.path for view in file_pages.FileViews().of(weights)}
    if sys.platform != "linux" and any(layer.rests_on == "cpu" for layer in placed):
        viewed = set(weights)
    return ReadFiles(viewed, on_disk)


def load_tokenizer(folder: str) -> Any:
    """The folder's tokenizer; no code of the folder is run. Raises BrokenModel when there is none, and what `config_of`
    raises where it is the config that can't be read: transformers reads that for the tokenizer's class.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except LIBRARY_FAILURES as error:
        log.exception("no tokenizer in %s", folder)
        words = first_line(error)
    else:
        if not getattr(tokenizer, "chat_template", None):  # models that also see may keep it with their processor
            tokenizer.chat_template = processor_template(Path(folder))
        return tokenizer
    if (Path(folder) / "config.json").is_file():
        config_of(Path(folder))
    raise BrokenModel(
        f"{Path(folder).name} has no tokenizer that can be read: {words[:200]}",
        hint="Add the model's tokenizer files (tokenizer.json, tokenizer_config.json).",
    )


def _load(request: LoadRequest, checked: CheckedModel, progress: LoadProgress, offload: OffloadFolder | None) -> Any:
    dtype = torch_dtype(request.dtype)
    options: dict[str, Any] = {}
    if request.quantization:
        options["quantization_config"] = bitsandbytes_config(request.quantization, dtype)
    progress.tell("Opening the weight files")
    with reported_by(progress), _one_at_a_time(checked.converts), _names_already_checked():
        model, told = auto_class(checked.config).from_pretrained(
            request.folder,
            config=checked.config,
            dtype=dtype,
            device_map=dict(checked.device_map),
            offload_folder=str(offload.path) if offload else None,
            attn_implementation=request.attention,
            trust_remote_code=False,
            local_files_only=True,
            weights_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **options,
        )
    told["unexpected_keys"] = beside_text(told["unexpected_keys"], checked.config, model)
    _refuse_surprises(told, Path(request.folder).name)
    model.eval()
    model.generation_config = _neutral(model.generation_config)
    return model


def _neutral(generation_config: Any) -> Any:
    """Only the special tokens of a model's own settings: a request says all the rest, so that it can be repeated."""
    from transformers import GenerationConfig

    return GenerationConfig(
        bos_token_id=generation_config.bos_token_id,
        eos_token_id=generation_config.eos_token_id,
        pad_token_id=generation_config.pad_token_id,
    )


def _refuse_surprises(told: dict[str, Any], name: str) -> None:
    """Raises BrokenModel for weights that are missing, misshapen or unknown: never a silently random layer.

    transformers has already taken out what it knows to be harmless (old rotary buffers and the like). Misshapen ones
    are asked for by `ignore_mismatched_sizes`, because otherwise their names would only be in the log.
    """
    require_fitting(
        name,
        missing=told["missing_keys"],
        misshapen=[(key, tuple(found), tuple(wanted)) for key, found, wanted in told["mismatched_keys"]],
        unexpected=told["unexpected_keys"],
    )
    if told.get("error_msgs"):
        raise LoadFailed(f"{name} could not be loaded: {told['error_msgs'][0]}")


# -- memory and disk while loading -----------------------------------------------------------------------------------


def _page_releaser(request: LoadRequest) -> Any:
    """Called with the bytes that are loaded; lets pages of the files go where many have come, as a cast brings them."""
    files = file_pages.weight_files(Path(request.folder))
    released, seen = 0, file_pages.resident()

    def after(done: int) -> None:
        nonlocal released, seen
        if done - released >= RELEASE_EVERY:
            released = done
            if file_pages.resident() - seen >= RELEASE_EVERY // 4:
                file_pages.release(files)
                seen = file_pages.resident()

    return after


@contextmanager
def _one_at_a_time(needed: bool) -> Iterator[None]:
    """While it lasts, tensors are read when they are needed.

    transformers otherwise reads ahead in threads, and merging experts is slower than reading: the whole model would
    lie in memory in pieces beside the merged one.
    """
    name = "HF_DEACTIVATE_ASYNC_LOAD"
    before = os.environ.get(name)
    if needed:
        os.environ[name] = "1"
    try:
        yield
    finally:
        if needed and before is None:
            del os.environ[name]
        elif before is not None:
            os.environ[name] = before


@contextmanager
def _names_already_checked() -> Iterator[None]:
    """accelerate takes names of parameters that stand alone for none of the model's."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The following device_map keys do not match any submodules")
        yield


def _offload_folder(request: LoadRequest, resaved: int) -> OffloadFolder | None:
    """A folder for layers on disk; None when none rests there."""
    if all(placement.rests_on != "disk" for placement in request.placements):
        return None
    root = Path(request.offload_folder) if request.offload_folder else own_folders().offload
    folder = OffloadFolder(root)
    try:
        folder.require_room(resaved)
    except LayerlightError:
        folder.remove()
        raise
    return folder
