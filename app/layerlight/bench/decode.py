"""`layerlight bench decode`: seconds a token as predicted from calibration, and after one run, beside the real ones."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from layerlight.bench.answers import running_engine
from layerlight.core.device import CPU, DISK, Budget, Machine
from layerlight.core.environment import engine_environment
from layerlight.core.errors import RunFailed
from layerlight.core.folders import own_folders
from layerlight.core.inspection import inspect_folder, require_runnable
from layerlight.core.job import Job
from layerlight.core.load_request import load_request
from layerlight.core.messages import CalibrateRequest, ChatMessage, Event, RunFinished, RunResult, TextRequest
from layerlight.core.model import LayerKind, Model
from layerlight.core.pacing.correction import corrected, run_of
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan, Wishes
from layerlight.core.planning.workload import Workload

if TYPE_CHECKING:
    from layerlight.engine.engine import TorchEngine

BY_CALIBRATION, AFTER_A_RUN = 0.25, 0.10
"""How far a prediction may be off, as a part of what was measured."""
DRIFT = 0.15
"""A round in which the bandwidth of RAM changed by more than this is thrown away."""
QUESTION = "Tell me a long story about a river that wanted to see the sea."
CONTEXT = 512
PROBES = 60
"""Samples of the bandwidth, about a second of them: fewer differ by 15 % on a machine where nothing else runs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One placement in one round, in seconds a token: predicted, measured, predicted by that, measured again."""

    predicted: float
    measured: float
    corrected: float
    again: float

    @property
    def first_error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def second_error(self) -> float:
        return self.corrected / self.again - 1


@dataclass(frozen=True, slots=True)
class Round:
    """Outcomes by placement, and bytes/s of the bandwidth probe at the round's begin, in its middle and at its end."""

    outcomes: dict[str, Outcome]
    bandwidths: tuple[float, ...]

    @property
    def drift(self) -> float:
        return max(self.bandwidths) / min(self.bandwidths) - 1

    @property
    def quiet(self) -> bool:
        return self.drift <= DRIFT


def main(argv: Sequence[str]) -> int:
    """Prints a table and a line that sums it up; 1 when a bound is missed, or when no round was quiet."""
    parser = argparse.ArgumentParser(prog="layerlight bench decode", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each calibration")
    parser.add_argument("--model", metavar="FOLDER", help="another model than the starter")
    asked = parser.parse_args(argv)
    console = Console()
    os.environ.update(engine_environment(os.environ))
    with running_engine() as engine:
        model = require_runnable(inspect_folder(asked.model or _starter(console)))
        rounds = []
        for number in range(asked.rounds):
            console.print(f"round {number + 1} of {asked.rounds}, load {_load()}", style="dim", highlight=False)
            rounds.append(_round(engine, model, asked.tokens, asked.seconds))
            console.print(_line(rounds[-1]), style="dim", highlight=False)
    return judge(console, rounds)


def judge(console: Console, rounds: Sequence[Round]) -> int:
    """Shows every round; only quiet ones count."""
    table = Table("round", "layers", "predicted", "real", "off", "after a run", "real", "off")
    for number, each in enumerate(rounds, 1):
        for name, outcome in each.outcomes.items():
            table.add_row(
                f"{number}" if each.quiet else f"({number})",
                name,
                *(f"{1000 * seconds:.0f} ms" for seconds in (outcome.predicted, outcome.measured)),
                f"{outcome.first_error:+.0%}",
                *(f"{1000 * seconds:.0f} ms" for seconds in (outcome.corrected, outcome.again)),
                f"{outcome.second_error:+.0%}",
            )
    console.print(table)
    for number, each in enumerate(rounds, 1):
        if not each.quiet:
            console.print(
                f"Round {number} is thrown away: the bandwidth of RAM moved by {each.drift:.0%} in it.", highlight=False
            )
    quiet = [each for each in rounds if each.quiet]
    if not quiet:
        console.print(f"MISSED: in all {len(rounds)} rounds the bandwidth moved by more than {DRIFT:.0%}: none counts.")
        return 1
    missed = []
    for name in quiet[0].outcomes:
        first = [abs(each.outcomes[name].first_error) for each in quiet]
        second = [abs(each.outcomes[name].second_error) for each in quiet]
        console.print(
            f"{name}: off by {median(first):.0%} by calibration alone (worst {max(first):.0%}),"
            f" by {median(second):.0%} after one run (worst {max(second):.0%}).",
            highlight=False,
        )
        missed += (
            [f"{name} by calibration {max(first):.0%} > {BY_CALIBRATION:.0%}"] if max(first) > BY_CALIBRATION else []
        )
        missed += [f"{name} after a run {max(second):.0%} > {AFTER_A_RUN:.0%}"] if max(second) > AFTER_A_RUN else []
    console.print(f"{len(quiet)} of {len(rounds)} rounds were quiet.", highlight=False)
    if missed:
        console.print("MISSED: " + "; ".join(missed), highlight=False)
        return 1
    console.print("All predictions hold.")
    return 0


def _round(engine: TorchEngine, model: Model, tokens: int, seconds: float) -> Round:
    from layerlight.engine.calibration import calibrate

    bandwidths = [_bandwidth()]
    machine = calibrate(CalibrateRequest(seconds=seconds), Job(lambda _event: None)).machine
    outcomes = {}
    for name, wishes in (("in RAM", Wishes()), ("half on disk", Wishes(map=_half_on_disk(model)))):
        bandwidths.append(_bandwidth())
        outcomes[name] = _outcome(engine, model, machine, wishes, tokens)
    bandwidths.append(_bandwidth())
    return Round(outcomes, tuple(bandwidths))


def _outcome(engine: TorchEngine, model: Model, machine: Machine, wishes: Wishes, tokens: int) -> Outcome:
    wishes = replace(wishes, workload=Workload(prompt=32, answer=tokens))
    plan = make_plan(model, machine, Budget.of(_only_here(machine), CONTEXT), wishes)
    engine.load(load_request(plan), Job(lambda _event: None))
    _settle(engine)
    measured = _answer(engine, tokens)
    better = corrected(plan, [run_of(plan, None, measured, time.time())])
    again = _answer(engine, tokens)
    return Outcome(_predicted(plan), _took(measured), _predicted(better), _took(again))


def _settle(engine: TorchEngine) -> None:
    """Until the weights lie as they will: in the first seconds after a load the engine still reads layers anew, and an
    answer amid that is some percent slower than those that follow."""
    if engine.resident is not None:
        engine.resident.wait()
        _answer(engine, 2)  # takes them


def _only_here(machine: Machine) -> tuple[tuple[str, int], ...]:
    """RAM and disk are compared; accelerators are left out."""
    return tuple((device.id, 0) for device in machine.accelerators)


def _half_on_disk(model: Model) -> tuple[tuple[str, str], ...]:
    """The second half of the decoder layers on disk."""
    decoders = [layer.name for layer in model.layers if layer.kind is LayerKind.DECODER]
    there = frozenset(decoders[len(decoders) // 2 :])
    return tuple((layer.name, DISK if layer.name in there else CPU) for layer in model.layers)


def _answer(engine: TorchEngine, tokens: int) -> RunResult:
    told: list[Event] = []
    request = TextRequest((ChatMessage("user", QUESTION),), seed=0, max_new_tokens=tokens, temperature=0.0)
    engine.generate(request, Job(told.append))
    return next(event.result for event in told if isinstance(event, RunFinished))


def _predicted(plan: Plan) -> float:
    return plan.prediction.seconds_per_token


def _took(result: RunResult) -> float:
    if not result.tokens_per_second:
        raise RunFailed("The answer was too short to be timed.", hint="Use another model, or more --tokens.")
    return 1 / result.tokens_per_second


def _bandwidth() -> float:
    """Bytes per second at which all threads multiply a token by weights in RAM: the middle of a few samples."""
    import torch
    from torch.nn import functional

    weights = [torch.ones(2048, 2048, dtype=torch.bfloat16) for _ in range(16)]
    token = torch.ones(1, 2048, dtype=torch.bfloat16)
    found = []
    with torch.inference_mode():
        for _ in range(PROBES):
            started = time.perf_counter()
            for weight in weights:
                functional.linear(token, weight)
            found.append(len(weights) * weights[0].nbytes / (time.perf_counter() - started))
    return median(found)


def _starter(console: Console) -> str:
    from layerlight.engine.starter import SMOLLM2, make_starter

    folders = own_folders()
    if not (folders.models / SMOLLM2.name).is_dir():
        console.print("fetching the starter model", style="dim")
    return make_starter(SMOLLM2, folders.models, folders.cache / "starter", Job(lambda _event: None))


def _line(each: Round) -> str:
    told = (
        f"{name} {outcome.first_error:+.0%}, then {outcome.second_error:+.0%}"
        for name, outcome in each.outcomes.items()
    )
    return f"  off by: {'; '.join(told)}; the bandwidth moved by {each.drift:.0%}"


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
