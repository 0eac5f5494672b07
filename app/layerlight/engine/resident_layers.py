"""Layers in RAM that are pages of their files become memory of this process: huge pages, which nobody takes back."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from layerlight.core.device import CPU, DISK
from layerlight.core.machines.local_memory import ram
from layerlight.core.memory import margin
from layerlight.core.messages import PlacedLayer
from layerlight.engine import file_pages
from layerlight.engine.failures import LIBRARY_FAILURES
from layerlight.engine.nesting import own_modules
from layerlight.engine.open_files import allow_open_files
from layerlight.engine.ring.page_buffer import PageBuffer
from layerlight.engine.ring.piece_reading import PieceReader
from layerlight.engine.ring.source_file import SourceFile
from layerlight.engine.ring.unit_layout import StoredTensor, UnitTensor, layout_of

log = logging.getLogger(__name__)

LEISURE = 2.0
"""Seconds after a load before reading begins: whoever asks at once gets the first token first."""
PATIENCE = 5.0
"""Seconds in which a read that is under way must return at the end."""


@dataclass(frozen=True, slots=True)
class _Viewed:
    """A weight that is a view of its file: where it stands in the model and in memory."""

    holder: dict[str, torch.nn.Parameter | None]
    name: str
    parameter: torch.nn.Parameter
    stored: StoredTensor
    view: file_pages.FileView
    address: int

    @property
    def still(self) -> bool:
        """Whether nobody has put it elsewhere meanwhile."""
        here = self.holder.get(self.name)
        return here is self.parameter and here.device.type == CPU and here.data_ptr() == self.address

    def let_go(self) -> None:
        """Its pages are no longer this process's memory; who looks at them brings them back."""
        file_pages.let_go(self.address, self.address + self.stored.size)


@dataclass(frozen=True, slots=True)
class _Ready:
    """A layer that was read."""

    layer: str
    weights: tuple[tuple[_Viewed, torch.Tensor], ...]


class ResidentLayers:
    """A thread that reads one layer after another into memory, to be taken into use when the next pass begins.

    What is viewed is right all along: where there is no room, or a file can't be read, it stays as it is. While a
    prompt is computed nothing is read, and during an answer one layer at a time, so that no two of them are held twice.
    """

    def __init__(self, model: torch.nn.Module, placed: Sequence[PlacedLayer]) -> None:
        """Begins by itself, `LEISURE` later."""
        self._closed = threading.Event()
        self._free = threading.Event()
        self._free.set()
        self._answering = False
        self._emptied = threading.Event()
        self._ready: deque[_Ready] = deque()
        self._taken: list[str] = []
        self._thread = threading.Thread(target=self._read_all, args=(model, placed), name="resident", daemon=True)
        if any(_eligible(placed)):
            self._thread.start()

    @contextmanager
    def answering(self, model: torch.nn.Module) -> Iterator[Callable[[], None]]:
        """While an answer lasts, nothing is read until what this gives is called: the first token is there."""
        self._answering = True
        self._free.clear()
        hook = model.register_forward_pre_hook(self._take)
        try:
            yield self._free.set
        finally:
            hook.remove()
            self._answering = False
            self._free.set()
            self._emptied.set()

    @property
    def ready(self) -> int:
        """Layers that were read and wait for the next pass."""
        return len(self._ready)

    def taken(self) -> tuple[str, ...]:
        """Layers that became resident since this was asked last."""
        taken, self._taken = tuple(self._taken), []
        return taken

    def wait(self) -> None:
        """Until all is read that will be."""
        if self._thread.ident is not None:
            self._thread.join()

    def close(self) -> None:
        """Ends the thread. Layers stay as they are."""
        self._closed.set()
        self._free.set()
        self._emptied.set()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE)
        self._ready.clear()

    # -- the reading thread ------------------------------------------------------------------------------------------

    def _read_all(self, model: torch.nn.Module, placed: Sequence[PlacedLayer]) -> None:
        if self._closed.wait(LEISURE):
            return
        files: dict[str, SourceFile] = {}
        try:
            views, names = file_pages.FileViews(), [each.layer for each in placed]
            written = file_pages.written_views()
            for layer in _eligible(placed):
                self._wait_for_taking()
                weights = _viewed(model, layer, names, views)
                own = [each for each in weights if each.view.start not in written and _same(each, files)]
                if own and not self._read(layer, own, files):
                    return
        except LIBRARY_FAILURES as error:
            log.warning("layers stay pages of their files: %s", error)
        finally:
            for file in files.values():
                file.close()

    def _read(self, layer: str, weights: Sequence[_Viewed], files: dict[str, SourceFile]) -> bool:
        """Whether there was room and time for this layer."""
        layout = layout_of(
            [UnitTensor(each.stored, each.stored.dtype, tuple(each.parameter.shape)) for each in weights]
        )
        memory = ram()
        if memory.free is None or memory.free - layout.size < margin(memory):
            log.info("no more room: %s and what follows stay pages of their files", layer)
            return False
        buffer, reader = PageBuffer(layout.size), PieceReader(files, casts=False)
        for piece in layout.pieces:
            self._free.wait()
            if self._closed.is_set():
                return False
            reader.read(piece, buffer)
        if any(files[path].changed() for path in layout.paths):
            return False
        views = [
            buffer.tensor[view.position : view.position + each.stored.size].view(view.dtype).view(view.shape)
            for each, view in zip(weights, layout.views, strict=True)
        ]
        self._ready.append(_Ready(layer, tuple(zip(weights, views, strict=True))))
        for each in weights:
            each.let_go()
        return True

    def _wait_for_taking(self) -> None:
        """Until what was read is in use, where an answer is being computed."""
        self._emptied.clear()
        if self._answering and self._ready and not self._closed.is_set():
            self._emptied.wait()

    # -- the thread that computes ------------------------------------------------------------------------------------

    def _take(self, *_unused: object) -> None:
        """Before a pass: from now on the layers are what was read."""
        while self._ready:
            ready = self._ready.popleft()
            still = [(weight, tensor) for weight, tensor in ready.weights if weight.still]
            for weight, tensor in still:
                weight.parameter.data = tensor
                weight.let_go()  # a pass that was under way may have brought it back
            if len(still) == len(ready.weights):
                self._taken.append(ready.layer)
        self._emptied.set()


def _eligible(placed: Sequence[PlacedLayer]) -> tuple[str, ...]:
    """Layers that are pages of their files and compute in RAM; none where others rest on disk.

    Where there is no room for all layers there is none to hold one twice, even for a moment.
    """
    if any(each.size and each.rests_on == DISK for each in placed):
        return ()
    return tuple(each.layer for each in placed if each.mapped and each.rests_on == each.runs_on == CPU)


def _viewed(
    model: torch.nn.Module, layer: str, layers: Sequence[str], views: file_pages.FileViews
) -> Iterator[_Viewed]:
    """The layer's weights that are whole views of files; not tables, of which a pass looks up a few rows."""
    for _, module in own_modules(model, layer, layers):
        for name, weight in module.named_parameters(recurse=False):
            size = weight.numel() * weight.element_size()
            view = views.at(weight.data_ptr()) if weight.device.type == CPU and size else None
            whole = view is not None and weight.is_contiguous() and weight.data_ptr() + size <= view.end
            if view is not None and whole and not isinstance(module, torch.nn.Embedding):
                stored = StoredTensor(view.path, view.offset + weight.data_ptr() - view.start, size, weight.dtype)
                yield _Viewed(module._parameters, name, weight, stored, view, weight.data_ptr())


def _same(weight: _Viewed, files: dict[str, SourceFile]) -> bool:
    """Whether the file of this name is still the one that is viewed."""
    path = weight.stored.path
    if path not in files:
        allow_open_files(len(files) + 2)
        files[path] = SourceFile(path)
    return Path(path).stat().st_ino == weight.view.inode
