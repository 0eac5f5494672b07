"""Layers on disk measured: ours, accelerate's and the disk alone, one after another in one process."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from layerlight.bench.answers import Answer, answer_of, answering, running_engine
from layerlight.bench.machine_state import MachineState
from layerlight.core.device import CPU, DISK, Budget
from layerlight.core.errors import RunFailed
from layerlight.core.inspection import inspect_folder
from layerlight.core.job import Job
from layerlight.core.load_request import load_request
from layerlight.core.messages import LoadRequest
from layerlight.core.model import LayerKind, Model
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes

if TYPE_CHECKING:
    from layerlight.engine.engine import TorchEngine
    from layerlight.engine.ring.unit_layout import Piece
    from layerlight.engine.streamed_layers import StreamedLayers

CONTEXT = 128


@dataclass(frozen=True, slots=True)
class Pair:
    """One after the other in one process: seconds a token, and of the disk alone for the same bytes, before and
    after ours."""

    ours: float
    accelerate: float
    disk: float
    read: float
    """Bytes that ours had read from the disk, as a part of those due."""
    others: float
    quiet: bool

    @property
    def faster(self) -> float:
        return self.accelerate / self.ours

    @property
    def possible(self) -> float:
        """How many times accelerate's speed the disk itself would be."""
        return self.accelerate / self.disk

    @property
    def of_disk(self) -> float:
        return self.disk / self.ours


def measure(share: float, folder: Path, pairs: int, tokens: int, console: Console) -> list[Pair]:
    """Pairs of ours and accelerate's with a share of the decoder layers on disk, cold, each beside the disk alone.

    Raises RunFailed when their tokens differ.
    """
    model = inspect_folder(folder)
    there = _on_disk(model, share)
    found = []
    with running_engine() as engine, tempfile.TemporaryDirectory() as scratch:
        engine.load(_request(model, there), Job(lambda _event: None))
        theirs = _accelerate(folder, engine, Path(scratch))
        for number in range(pairs):
            state = MachineState()
            found.append(_pair(engine, theirs, tokens, state))
            console.print(f"  {number + 1}: {_line(found[-1])}", style="dim", highlight=False)
        del theirs
    return found


def measure_mapped(folder: Path, pairs: int, tokens: int, console: Console) -> list[float]:
    """Speeds of layers that are views of their files, as parts of plain transformers' with copies in RAM."""
    import torch
    from transformers import AutoModelForCausalLM

    found = []
    with running_engine() as engine:
        engine.load(_request(inspect_folder(folder), frozenset()), Job(lambda _event: None))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager").eval()
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
        theirs = answering(model, folder)
        answer_of(engine, 2)  # brings the file's pages in
        for number in range(pairs):
            ours, answer = answer_of(engine, tokens)
            in_ram, expected = theirs(tokens)
            if answer != expected:
                raise RunFailed("The tokens differ from those in RAM.")
            found.append(in_ram / ours)
            console.print(
                f"  {number + 1}: {1000 * ours:.0f} ms, in RAM {1000 * in_ram:.0f} ms", style="dim", highlight=False
            )
    return found


def measure_experts(folder: Path, tokens: int, console: Console) -> float:
    """Bytes that come from the disk for an answer, as a part of what the experts that it used weigh; all else is in
    RAM, and nothing of the experts in the system's cache."""
    from layerlight.engine.disk_probes import bytes_read, forget_file

    model = inspect_folder(folder)
    experts = frozenset(layer.name for layer in model.layers if layer.kind is LayerKind.EXPERTS)
    with running_engine() as engine:
        engine.load(_request(model, experts), Job(lambda _event: None))
        loaded = engine.loaded
        if loaded is None or loaded.mapped is None:
            raise RunFailed("No expert is read from the disk.")
        for path in loaded.mapped.files.paths:
            forget_file(Path(path))
        for layer in experts:
            own = [stored for name, stored in loaded.mapped.stored.items() if name.startswith(f"{layer}.")]
            whole = [(each.path, 0, os.path.getsize(each.path)) for each in own]
            loaded.model.get_submodule(layer).register_forward_hook(_forgetting(whole))
        answer_of(engine, 2)
        before = bytes_read() or 0
        seconds, _answer = answer_of(engine, tokens)
        read = (bytes_read() or 0) - before
        used = sum(loaded.mapped.carried[layer].bytes for layer in experts)
        console.print(
            f"  {1000 * seconds:.0f} ms, {read / tokens / 2**20:.0f} MiB a token", style="dim", highlight=False
        )
        return read / used


def _pair(engine: TorchEngine, theirs: Answer, tokens: int, state: MachineState) -> Pair:
    streamed = _streamed(engine)
    pieces = [piece for layout in streamed.layouts for piece in layout.pieces]
    largest = max(layout.size for layout in streamed.layouts)
    disk_before = _disk_alone(pieces, largest)
    before = _bytes_read(streamed)
    ours, answer = answer_of(engine, 2 * tokens)
    read = (_bytes_read(streamed) - before) / (2 * tokens * sum(piece.length for piece in pieces))
    disk = (disk_before + _disk_alone(pieces, largest)) / 2
    accelerate, expected = theirs(tokens)
    if answer[:tokens] != expected:
        raise RunFailed("The tokens differ from accelerate's.")
    return Pair(ours, accelerate, disk, read, state.others(), state.quiet())


def _streamed(engine: TorchEngine) -> StreamedLayers:
    if engine.loaded is None or engine.loaded.streamed is None:
        raise RunFailed("No layer is read from the disk.")
    return engine.loaded.streamed


def _bytes_read(streamed: StreamedLayers) -> int:
    """Bytes that this process has read from disks, once the ring is full: so much was read ahead before, too."""
    from layerlight.engine.disk_probes import bytes_read

    while not streamed.ring.full:
        time.sleep(0.01)
    return bytes_read() or 0


def _accelerate(folder: Path, engine: TorchEngine, scratch: Path) -> Answer:
    """Answers as plain transformers does with these layers on disk, whose pages are let go after each of their
    passes."""
    import torch
    from transformers import AutoModelForCausalLM

    streamed = _streamed(engine)
    loaded = engine.loaded
    places = {each.layer: each.rests_on for each in loaded.placed} if loaded else {}
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, device_map=places, offload_folder=str(scratch), attn_implementation="eager"
    ).eval()
    for layer, layout in zip(streamed.carried, streamed.layouts, strict=True):
        model.get_submodule(layer).register_forward_hook(
            _forgetting([(piece.path, piece.offset, piece.length) for piece in layout.pieces])
        )
    return answering(model, folder)


def _forgetting(ranges: Sequence[tuple[str, int, int]]) -> Callable[..., None]:
    """Has the system let go of what a layer's pass has brought into its cache: (path, offset, bytes)."""
    files = {path: os.open(path, os.O_RDONLY) for path in {path for path, _, _ in ranges}}

    def forget(*_unused: object) -> None:
        for path, offset, length in ranges:
            os.posix_fadvise(files[path], offset, length, os.POSIX_FADV_DONTNEED)

    return forget


def _disk_alone(pieces: Sequence[Piece], largest: int) -> float:
    """Seconds to read the same bytes with as many threads and nothing else to do.

    Into memory as large as a ring's: bytes that land where the last ones did never leave the processor's cache, which
    is a third faster here, and no weights can.
    """
    from layerlight.core.planning.runtime import RING_BUFFERS
    from layerlight.engine.ring.layer_ring import READERS
    from layerlight.engine.ring.page_buffer import PageBuffer
    from layerlight.engine.ring.source_file import SourceFile
    from layerlight.engine.ring.unit_layout import PIECE

    files = {path: SourceFile(path) for path in {piece.path for piece in pieces}}
    left = deque(pieces)
    room = PIECE * max(2, RING_BUFFERS * largest // (READERS * PIECE))
    buffers = [PageBuffer(room) for _ in range(READERS)]
    for buffer in buffers:
        buffer.tensor.zero_()

    def read(buffer: PageBuffer) -> None:
        at = 0
        while left:
            try:
                piece = left.popleft()
            except IndexError:
                return
            files[piece.path].read(piece.offset, buffer.bytes[at : at + piece.length])
            at = (at + PIECE) % room

    threads = [threading.Thread(target=read, args=(buffer,)) for buffer in buffers]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    for file in files.values():
        file.close()
    return seconds


def _on_disk(model: Model, share: float) -> frozenset[str]:
    decoders = [layer.name for layer in model.layers if layer.kind is LayerKind.DECODER]
    return frozenset(decoders[round(len(decoders) * (1 - share)) :])


def _request(model: Model, there: frozenset[str]) -> LoadRequest:
    from layerlight.engine.survey import survey_machine

    wishes = Wishes(
        dtype="bfloat16",
        attention="eager",
        map=tuple((layer.name, DISK if layer.name in there else CPU) for layer in model.layers),
    )
    machine = survey_machine()
    here = tuple((device.id, 0) for device in machine.accelerators)
    return load_request(make_plan(model, machine, Budget.of(here, CONTEXT), wishes))


def _line(pair: Pair) -> str:
    return (
        f"{1000 * pair.ours:.0f} ms, accelerate {1000 * pair.accelerate:.0f} ms, the disk alone "
        f"{1000 * pair.disk:.0f} ms; others kept {pair.others:.1f} cores busy"
    )
