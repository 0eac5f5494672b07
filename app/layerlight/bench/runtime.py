"""`layerlight bench runtime`: layers on disk beside accelerate's and the disk alone, mapped ones beside RAM."""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from layerlight.bench.machine_state import MachineState
from layerlight.bench.random_model import random_llama
from layerlight.core.device import CPU, DISK, Budget
from layerlight.core.environment import engine_environment
from layerlight.core.errors import RunFailed
from layerlight.core.folders import own_folders
from layerlight.core.inspection import inspect_folder
from layerlight.core.job import Job
from layerlight.core.load_request import load_request
from layerlight.core.messages import ChatMessage, Event, LoadRequest, RunFinished, TextRequest
from layerlight.core.model import LayerKind, Model
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes

if TYPE_CHECKING:
    from layerlight.engine.engine import TorchEngine
    from layerlight.engine.ring.unit_layout import Piece
    from layerlight.engine.streamed_layers import StreamedLayers

QUESTION = "A river"
CONTEXT = 128
READ = 0.99
"""The part of the bytes due that must really come from the disk."""
OF_RAM = 0.97
"""The part of the speed of weights in anonymous memory that views of a file in the system's cache must reach."""


@dataclass(frozen=True, slots=True)
class Case:
    """`share` of the decoder layers rest on disk. Bounds: times accelerate's speed, and parts of the disk's, on a quiet
    machine and on a shared one."""

    name: str
    share: float
    faster: tuple[float, float]
    of_disk: tuple[float, float] | None = None


CASES = (
    Case("all layers on disk, cold", 1.0, (3.5, 3.0), (0.9, 0.65)),
    Case("half the layers on disk, cold", 0.5, (3.0, 3.0)),
)


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
    def of_disk(self) -> float:
        return self.disk / self.ours


def main(argv: Sequence[str]) -> int:
    """Prints a table and a line that sums it up; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(prog="layerlight bench runtime", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=6, help="of accelerate's answer; ours has twice as many")
    parser.add_argument("--model", metavar="FOLDER", help="another model than the random one of 1 GB")
    asked = parser.parse_args(argv)
    console = Console(width=max(Console().width, 140))
    os.environ.update(engine_environment(os.environ))
    folder = Path(asked.model) if asked.model else random_llama(own_folders().cache / "bench" / "llama-1gb")
    found = {}
    for case in CASES:
        console.print(f"{case.name}", style="dim", highlight=False)
        found[case] = measure(case, folder, asked.pairs, asked.tokens, console)
    console.print("all layers mapped from their files, warm", style="dim")
    return judge(console, found, measure_mapped(folder, asked.pairs, 4 * asked.tokens, console))


def judge(console: Console, found: dict[Case, list[Pair]], of_ram: Sequence[float] = ()) -> int:
    """Shows every case; each is held to the bounds of the state that the machine was in. `of_ram`: mapped layers'
    speed as a part of the speed in RAM, pair by pair."""
    table = Table("case", "state", "ours", "accelerate", "disk alone", "× accelerate", "of the disk", "read")
    missed = []
    for case, pairs in found.items():
        quiet = all(pair.quiet for pair in pairs)
        state = "quiet" if quiet else "shared"
        faster, of_disk = [pair.faster for pair in pairs], [pair.of_disk for pair in pairs]
        table.add_row(
            case.name,
            state,
            *(f"{1000 * median(each):.0f} ms" for each in _columns(pairs)),
            _spread(faster),
            _spread(of_disk),
            f"{min(pair.read for pair in pairs):.1%}",
        )
        missed += _missed(case, quiet, median(faster), median(of_disk), min(pair.read for pair in pairs))
    console.print(table)
    if of_ram:
        console.print(f"Mapped from warm files: {_spread(of_ram)} of the speed in RAM.", highlight=False)
        missed += [f"mapped: {median(of_ram):.2f} of RAM < {OF_RAM}"] if median(of_ram) < OF_RAM else []
    if missed:
        console.print("MISSED: " + "; ".join(missed), highlight=False)
        return 1
    console.print("All bounds hold.")
    return 0


def _missed(case: Case, quiet: bool, faster: float, of_disk: float, read: float) -> list[str]:
    missed = []
    wanted = case.faster[0 if quiet else 1]
    if faster < wanted:
        missed.append(f"{case.name}: {faster:.2f} × accelerate < {wanted}")
    if case.of_disk is not None and of_disk < case.of_disk[0 if quiet else 1]:
        missed.append(f"{case.name}: {of_disk:.2f} of the disk < {case.of_disk[0 if quiet else 1]}")
    if read < READ:
        missed.append(f"{case.name}: only {read:.1%} of the bytes due came from the disk")
    return missed


def _columns(pairs: Sequence[Pair]) -> tuple[list[float], list[float], list[float]]:
    return [each.ours for each in pairs], [each.accelerate for each in pairs], [each.disk for each in pairs]


def _spread(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


# -- measuring ---------------------------------------------------------------------------------------------------------


def measure(case: Case, folder: Path, pairs: int, tokens: int, console: Console) -> list[Pair]:
    """Pairs of ours and accelerate's, each after the disk alone. Raises RunFailed when their tokens differ."""
    model = inspect_folder(folder)
    there = _on_disk(model, case.share)
    found = []
    with _engine() as engine, tempfile.TemporaryDirectory() as scratch:
        engine.load(_request(model, there), Job(lambda _event: None))
        theirs = _accelerate(folder, engine, Path(scratch))
        for number in range(pairs):
            state = MachineState()
            found.append(_pair(engine, theirs, tokens, state))
            console.print(f"  {number + 1}: {_line(found[-1])}", style="dim", highlight=False)
        del theirs
    return found


Answer = Callable[[int], tuple[float, list[int]]]
"""Seconds a token and the tokens of an answer of so many."""


def measure_mapped(folder: Path, pairs: int, tokens: int, console: Console) -> list[float]:
    """Speeds of layers that are views of their files, as parts of plain transformers' with copies in RAM."""
    import torch
    from transformers import AutoModelForCausalLM

    found = []
    with _engine() as engine:
        engine.load(_request(inspect_folder(folder), frozenset()), Job(lambda _event: None))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager").eval()
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
        theirs = _answering(model, folder)
        _ours(engine, 2)  # brings the file's pages in
        for number in range(pairs):
            ours, answer = _ours(engine, tokens)
            in_ram, expected = theirs(tokens)
            if answer != expected:
                raise RunFailed("The tokens differ from those in RAM.")
            found.append(in_ram / ours)
            console.print(
                f"  {number + 1}: {1000 * ours:.0f} ms, in RAM {1000 * in_ram:.0f} ms", style="dim", highlight=False
            )
    return found


def _pair(engine: TorchEngine, theirs: Answer, tokens: int, state: MachineState) -> Pair:
    streamed = _streamed(engine)
    pieces = [piece for layout in streamed.layouts for piece in layout.pieces]
    disk_before = _disk_alone(pieces)
    before = _bytes_read(streamed)
    ours, answer = _ours(engine, 2 * tokens)
    read = (_bytes_read(streamed) - before) / (2 * tokens * sum(piece.length for piece in pieces))
    disk = (disk_before + _disk_alone(pieces)) / 2
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


def _ours(engine: TorchEngine, tokens: int) -> tuple[float, list[int]]:
    told: list[Event] = []
    request = TextRequest((ChatMessage("user", QUESTION),), seed=0, max_new_tokens=tokens, temperature=0.0)
    engine.kept.drop()
    engine.generate(request, Job(told.append))
    result = next(event.result for event in told if isinstance(event, RunFinished))
    if not result.tokens_per_second:
        raise RunFailed("The answer was too short to be timed.")
    return 1 / result.tokens_per_second, list(result.tokens)


class _Clock:
    """What generate() hands tokens to: the prompt, then each with its time."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, _value: Any) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is held back."""


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
        model.get_submodule(layer).register_forward_hook(_forgetting(layout.pieces))
    return _answering(model, folder)


def _answering(model: Any, folder: Path) -> Answer:
    """Greedy answers of plain transformers."""
    import torch
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(folder)(QUESTION, return_tensors="pt")["input_ids"]

    def answer(tokens: int) -> tuple[float, list[int]]:
        clock = _Clock()
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                do_sample=False,
                pad_token_id=0,
                streamer=clock,
            )
        told = out[0, ids.shape[1] :].tolist()
        return (clock.times[-1] - clock.times[1]) / (len(told) - 1), told

    return answer


def _forgetting(pieces: Sequence[Piece]) -> Callable[..., None]:
    """Has the system let go of what a layer's pass has brought into its cache."""
    files = {path: os.open(path, os.O_RDONLY) for path in {piece.path for piece in pieces}}

    def forget(*_unused: object) -> None:
        for piece in pieces:
            os.posix_fadvise(files[piece.path], piece.offset, piece.length, os.POSIX_FADV_DONTNEED)

    return forget


def _disk_alone(pieces: Sequence[Piece]) -> float:
    """Seconds to read the same bytes with as many threads and nothing else to do."""
    from layerlight.engine.ring.layer_ring import READERS
    from layerlight.engine.ring.page_buffer import PageBuffer
    from layerlight.engine.ring.source_file import SourceFile
    from layerlight.engine.ring.unit_layout import PIECE

    files = {path: SourceFile(path) for path in {piece.path for piece in pieces}}
    left = deque(pieces)
    buffers = [PageBuffer(PIECE) for _ in range(READERS)]
    for buffer in buffers:
        buffer.tensor.zero_()

    def read(buffer: PageBuffer) -> None:
        while left:
            try:
                piece = left.popleft()
            except IndexError:
                return
            files[piece.path].read(piece.offset, buffer.bytes[: piece.length])

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


@contextmanager
def _engine() -> Iterator[TorchEngine]:
    from layerlight.engine.warming import warm_up

    warm_up()
    from layerlight.engine.engine import TorchEngine

    engine = TorchEngine()
    try:
        yield engine
    finally:
        engine.close()
