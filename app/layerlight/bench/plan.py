"""`layerlight bench plan`: bytes as predicted and as measured, for every kind of model and every kind of place."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from layerlight.bench.plan_models import CONTEXT, SHAPES, Shape, write_shape
from layerlight.core.device import CPU, DISK, Budget, Machine, format_size
from layerlight.core.environment import engine_environment
from layerlight.core.errors import RunFailed
from layerlight.core.folders import HOME_VARIABLE
from layerlight.core.inspection import inspect_folder
from layerlight.core.job import Job
from layerlight.core.load_request import load_request
from layerlight.core.messages import ChatMessage, DevicesSurveyed, Event, TextRequest
from layerlight.core.placing import make_plan, require_fit
from layerlight.core.plan import Plan, Wishes

if TYPE_CHECKING:
    from layerlight.engine.engine import TorchEngine

WEIGHTS, CACHE, PEAK, ANONYMOUS = 0.01, 0.01, 0.05, 0.10
"""How far a prediction may be off, as a part of what was measured."""

LARGE = (("float32", None), ("bfloat16", "nf4"), ("bfloat16", "int8"))
"""(dtype, quantisation) in which the large model leaves its files: then its weights are memory that no file backs."""

LARGE_CONTEXT = 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One run. Bytes as predicted and as measured; a peak of 0 was not measured."""

    shape: str
    place: str
    attention: str
    weights: tuple[int, int]
    cache: tuple[int, int]
    peak: tuple[int, int]

    def missed(self) -> list[str]:
        """The bounds that this run misses, in words."""
        parts = (("weights", self.weights, WEIGHTS), ("cache", self.cache, CACHE), ("peak", self.peak, PEAK))
        return [
            f"{self.shape} on {self.place}, {self.attention}: {name} {off(pair):+.1%}"
            for name, pair, bound in parts
            if pair[1] and abs(off(pair)) > bound
        ]


def off(pair: tuple[int, int]) -> float:
    """How far the predicted bytes lie from the measured, as a part of these."""
    return pair[0] / pair[1] - 1 if pair[1] else 0.0


def main(argv: Sequence[str]) -> int:
    """Prints a table and a line that sums it up; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(prog="layerlight bench plan", description=__doc__)
    parser.add_argument("--only", help="measure only shapes whose name holds this")
    parser.add_argument("--without-large", action="store_true", help="leave out the models of 300 MB and more")
    parser.add_argument("--large", nargs=3, metavar=("FOLDER", "DTYPE", "QUANTIZATION"), help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    os.environ.update(engine_environment(os.environ))
    if asked.large:
        folder, dtype, quantization = asked.large
        sys.stdout.write(json.dumps(anonymous_rise(Path(folder), dtype, quantization or None)) + "\n")
        return 0
    console = Console()
    shapes = [shape for shape in SHAPES if not asked.only or asked.only.lower() in shape.name.lower()]
    rows = []
    for shape in shapes:
        console.print(shape.name, style="dim")
        rows += measure_shape(shape)
    large = [] if asked.without_large or asked.only else _measure_large(console)
    return _judge(console, rows, large)


# -- one shape ---------------------------------------------------------------------------------------------------------


def measure_shape(shape: Shape) -> list[Row]:
    """One row for each place and attention this shape runs with here."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="layerlight-bench-") as folder, _engine() as (engine, machine):
        write_shape(shape, Path(folder))
        for place in _places(machine, shape):
            for attention in ("eager", "sdpa"):
                wishes = Wishes(attention=attention, quantization=shape.quantization, kv=shape.kv)
                plan = plan_on(Path(folder), machine, place, wishes)
                if plan.attention == attention:
                    rows.append(_measure(engine, shape.name, plan, place))
    return rows


def plan_on(folder: Path, machine: Machine, place: str, wishes: Wishes) -> Plan:
    """The plan that keeps all of it on one place. Raises DoesNotFit where it has no room."""
    others = tuple((device.id, 0) for device in machine.devices if device.id not in (place, DISK))
    model = inspect_folder(folder)
    return require_fit(make_plan(model, machine, Budget((*others, (DISK, 0)), context=CONTEXT), wishes))


def _places(machine: Machine, shape: Shape) -> list[str]:
    """RAM, and the first accelerator; bitsandbytes knows no simulated one."""
    accelerators = [device for device in machine.accelerators if not shape.quantization or device.kind != "sim"]
    return [CPU, *(device.id for device in accelerators[:1])]


def _measure(engine: TorchEngine, name: str, plan: Plan, place: str) -> Row:
    from layerlight.engine.device_memory import reset_peaks

    use = plan.prediction.use(place)
    job = _silent()
    engine.load(load_request(plan), job)
    loaded = engine.loaded
    if loaded is None:
        raise RunFailed(f"{name} was not loaded.")
    weights = weight_bytes(loaded.model)
    reset_peaks()
    with _cache_watched(loaded.model) as largest:
        engine.generate(whole_context(plan.budget.context), job)
    peak = next(memory.peak for memory in engine.memory() if memory.place == place) if place != CPU else 0
    engine.unload(job)
    told = (use.weights, weights), (use.kv, largest[0]), (use.used, peak or 0)
    return Row(name, place, plan.attention, *told)


def _silent() -> Job:
    events: list[Event] = []
    return Job(events.append)


def whole_context(context: int) -> TextRequest:
    """A prompt that leaves room for two tokens."""
    return TextRequest((ChatMessage("user", "x" * (context - 2)),), seed=1, max_new_tokens=2, temperature=0)


def weight_bytes(model: Any) -> int:
    """Memory of all parameters, each once, with what bitsandbytes keeps beside them."""
    found: dict[int, int] = {}
    for parameter in model.parameters():
        state = getattr(parameter, "quant_state", None)
        inner = getattr(state, "state2", None)
        kept = [getattr(state, "absmax", None), getattr(state, "code", None), getattr(state, "offset", None)]
        kept += [getattr(inner, "absmax", None), getattr(inner, "code", None), getattr(parameter, "SCB", None)]
        for tensor in (parameter.data, *(each for each in kept if hasattr(each, "untyped_storage"))):
            found[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
    return sum(found.values())


@contextmanager
def _cache_watched(model: Any) -> Iterator[list[int]]:
    """The most bytes that the cache held after any pass."""
    from layerlight.engine.empty_pass import storages_of

    largest = [0]

    def see(_module: Any, _taken: Any, out: Any) -> None:
        held = {id(each): each.nbytes() for layer in out.cache.layers for each in storages_of(layer)}
        largest[0] = max(largest[0], sum(held.values()))

    hook = model.register_forward_hook(see)
    try:
        yield largest
    finally:
        hook.remove()


@contextmanager
def _engine() -> Iterator[tuple[TorchEngine, Machine]]:
    """An engine whose files lie in a folder that is gone afterwards, and the machine it finds."""
    from layerlight.engine.engine import TorchEngine

    events: list[Event] = []
    with tempfile.TemporaryDirectory(prefix="layerlight-bench-") as home:
        before = os.environ.get(HOME_VARIABLE)
        os.environ[HOME_VARIABLE] = home
        engine = TorchEngine()
        try:
            engine.survey(Job(events.append))
            yield engine, next(event.machine for event in events if isinstance(event, DevicesSurveyed))
        finally:
            engine.close()
            if before is None:
                del os.environ[HOME_VARIABLE]
            else:
                os.environ[HOME_VARIABLE] = before


# -- large models ------------------------------------------------------------------------------------------------------


def _measure_large(console: Console) -> list[tuple[str, tuple[int, int]]]:
    """(what, (predicted, measured rise of anonymous memory)), each in a process of its own."""
    from layerlight.bench.random_model import random_llama

    found = []
    with tempfile.TemporaryDirectory(prefix="layerlight-bench-") as root:
        folder = random_llama(
            Path(root) / "llama", hidden=1536, intermediate=4096, layers=12, heads=12, context=LARGE_CONTEXT
        )
        for dtype, quantization in LARGE:
            name = f"random llama of 600 MB in {quantization or dtype}"
            console.print(name, style="dim")
            command = [
                sys.executable,
                "-m",
                "layerlight",
                "bench",
                "plan",
                "--large",
                str(folder),
                dtype,
                quantization or "",
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RunFailed(f"{name} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
            predicted, measured = json.loads(done.stdout.splitlines()[-1])
            if measured is not None:
                found.append((name, (predicted, measured)))
    return found


def anonymous_rise(folder: Path, dtype: str, quantization: str | None) -> tuple[int, int | None]:
    """(predicted, measured) bytes in RAM over the warmed engine; None where the system does not tell."""
    from layerlight.engine.device_memory import process_memory
    from layerlight.engine.warming import warm_up

    with _engine() as (engine, machine):
        warm_up()
        if quantization:
            import bitsandbytes  # noqa: F401
        before = process_memory().anonymous
        wishes = Wishes(dtype=dtype, quantization=quantization)
        plan = plan_on(folder, machine, CPU, wishes)
        with _sampled_anonymous() as most:
            engine.load(load_request(plan), _silent())
            engine.generate(whole_context(plan.budget.context), _silent())
        rise = None if before is None or not most else max(most) - before
        return plan.prediction.use(CPU).used, rise


@contextmanager
def _sampled_anonymous() -> Iterator[list[int]]:
    """Looks at this process's anonymous memory a thousand times a second: some peaks last a few milliseconds."""
    from layerlight.engine.device_memory import process_memory

    seen: list[int] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.001):
            seen.append(process_memory().anonymous or 0)

    looking = threading.Thread(target=look, name="anonymous memory", daemon=True)
    looking.start()
    try:
        yield seen
    finally:
        ended.set()
        looking.join()


# -- the judgement -----------------------------------------------------------------------------------------------------


def _judge(console: Console, rows: list[Row], large: list[tuple[str, tuple[int, int]]]) -> int:
    table = Table("shape", "place", "attention", "weights", "cache", "peak", "measured peak")
    for row in rows:
        table.add_row(
            row.shape,
            row.place,
            row.attention,
            f"{off(row.weights):+.2%}",
            f"{off(row.cache):+.2%}",
            f"{off(row.peak):+.2%}" if row.peak[1] else "",
            format_size(row.peak[1]) if row.peak[1] else "",
        )
    for name, pair in large:
        table.add_row(name, CPU, "sdpa", "", "", f"{off(pair):+.2%}", format_size(pair[1]))
    console.print(table)
    missed = [each for row in rows for each in row.missed()]
    missed += [f"{name}: anonymous memory {off(pair):+.1%}" for name, pair in large if abs(off(pair)) > ANONYMOUS]
    if not rows:
        missed.append("no shape was measured")
    places = ", ".join(dict.fromkeys(row.place for row in rows))
    if missed:
        console.print("MISSED: " + "; ".join(missed))
        return 1
    console.print(
        f"{len({row.shape for row in rows})} shapes on {places}: weights within {WEIGHTS:.0%}, cache within {CACHE:.0%}"
        f"{f', peak within {PEAK:.0%}' if any(row.peak[1] for row in rows) else ''}"
        f"{f', anonymous memory of {len(large)} large models within {ANONYMOUS:.0%}' if large else ''}."
    )
    return 0
