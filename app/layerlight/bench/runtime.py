"""`layerlight bench runtime`: layers on disk and carried to a device beside accelerate's, the disk and the bus alone;
loads, prompts and tokens in RAM beside transformers'."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from layerlight.bench.device_pairs import measure_device
from layerlight.bench.disk_pairs import Pair, measure, measure_experts, measure_mapped
from layerlight.bench.finding import Finding, spread
from layerlight.bench.first_token import measure_loads, measure_memory
from layerlight.bench.random_model import random_experts, random_llama
from layerlight.bench.token_pairs import measure_decode, measure_prompts, measure_resident
from layerlight.core.environment import engine_environment
from layerlight.core.folders import own_folders

READ = 0.99
"""The part of the bytes due that must really come from the disk."""
OF_USED = 1.15
"""Bytes read for an answer, as a part of what the experts that it used weigh."""
OF_RAM = 0.97
"""The part of the speed of weights in anonymous memory that views of a file in the system's cache must reach."""


@dataclass(frozen=True, slots=True)
class Case:
    """`share` of the decoder layers rest on disk. Bounds: times accelerate's speed, and parts of the disk's, on a quiet
    machine and on a shared one. A disk that is not so many times faster than accelerate is held to its own part."""

    part: str
    name: str
    share: float
    faster: tuple[float, float]
    of_disk: tuple[float, float] | None = None


OF_DISK = (0.9, 0.65)
CASES = (
    Case("all-disk", "all layers on disk, cold", 1.0, (3.5, 3.0), OF_DISK),
    Case("half-disk", "half the layers on disk, cold", 0.5, (3.0, 3.0)),
)


PARTS = ("all-disk", "half-disk", "mapped", "experts", "device", "load", "memory", "prompt", "decode", "resident")
"""What can be measured alone, in the order in which all of it is."""


def main(argv: Sequence[str]) -> int:
    """Prints a table and a line that sums it up; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(prog="layerlight bench runtime", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=6, help="of accelerate's answer; ours has twice as many")
    parser.add_argument("--model", metavar="FOLDER", help="another model than the random one of 1 GB")
    parser.add_argument("--only", metavar="PART", nargs="+", choices=PARTS, default=PARTS, help=", ".join(PARTS))
    asked = parser.parse_args(argv)
    console = Console(width=max(Console().width, 140))
    os.environ.update(engine_environment(os.environ))
    folder = Path(asked.model) if asked.model else random_llama(own_folders().cache / "bench" / "llama-1gb")
    found = {case: _disk(case, folder, asked, console) for case in CASES if case.part in asked.only}
    of_ram: list[float] = []
    if "mapped" in asked.only:
        console.print("all layers mapped from their files, warm", style="dim")
        of_ram = measure_mapped(folder, asked.pairs, 4 * asked.tokens, console)
    of_used = _experts(2 * asked.tokens, console) if "experts" in asked.only else None
    return judge(console, found, of_ram, of_used, list(_others(folder, asked, console)))


def _disk(case: Case, folder: Path, asked: argparse.Namespace, console: Console) -> list[Pair]:
    console.print(case.name, style="dim", highlight=False)
    return measure(case.share, folder, asked.pairs, asked.tokens, console)


def _experts(tokens: int, console: Console) -> float:
    console.print("experts on disk, 4 of 64 used", style="dim", highlight=False)
    return measure_experts(random_experts(own_folders().cache / "bench" / "experts-1gb"), tokens, console)


def _others(folder: Path, asked: argparse.Namespace, console: Console) -> Iterator[Finding]:
    """What is found of layers carried to a device, of loads and their memory, and of prompts and tokens in RAM."""
    if "device" in asked.only:
        console.print("half the layers carried from RAM to an accelerator", style="dim")
        yield from measure_device(folder, asked.pairs, 4 * asked.tokens, console)
    if "load" in asked.only:
        console.print("from the choice of a model to its first token, warm", style="dim")
        yield from measure_loads(folder, asked.pairs, console)
    if "memory" in asked.only:
        console.print("memory of loads", style="dim")
        yield from measure_memory(folder)
    if "prompt" in asked.only:
        console.print("a prompt in RAM", style="dim")
        yield from measure_prompts(folder, asked.pairs, console)
    if "decode" in asked.only:
        console.print("token by token in RAM", style="dim")
        yield from measure_decode(folder, asked.pairs, 4 * asked.tokens, console)
    if "resident" in asked.only:
        console.print("read into memory, beside pages of files", style="dim")
        yield from measure_resident(folder, asked.pairs, 4 * asked.tokens, console)


def judge(
    console: Console,
    found: dict[Case, list[Pair]],
    of_ram: Sequence[float] = (),
    of_used: float | None = None,
    others: Sequence[Finding] = (),
) -> int:
    """Shows every case; each is held to the bounds of the state that the machine was in. `of_ram`: mapped layers'
    speed as a part of the speed in RAM, pair by pair; `of_used`: bytes read of experts, as a part of the used ones'."""
    table = Table(
        "case", "state", "ours", "accelerate", "disk alone", "× accelerate", "the disk × it", "of the disk", "read"
    )
    missed = []
    for case, pairs in found.items():
        quiet = all(pair.quiet for pair in pairs)
        state = "quiet" if quiet else "shared"
        faster, of_disk = [pair.faster for pair in pairs], [pair.of_disk for pair in pairs]
        table.add_row(
            case.name,
            state,
            *(f"{1000 * median(each):.0f} ms" for each in _columns(pairs)),
            spread(faster),
            f"{median(pair.possible for pair in pairs):.2f}",
            spread(of_disk),
            f"{min(pair.read for pair in pairs):.1%}",
        )
        possible = median(pair.possible for pair in pairs)
        missed += _missed(case, quiet, median(faster), median(of_disk), min(pair.read for pair in pairs), possible)
    if found:
        console.print(table)
    if of_ram:
        console.print(f"Mapped from warm files: {spread(of_ram)} of the speed in RAM.", highlight=False)
        missed += [f"mapped: {median(of_ram):.2f} of RAM < {OF_RAM}"] if median(of_ram) < OF_RAM else []
    if of_used is not None:
        console.print(f"Experts: {of_used:.2f} of what the used ones weigh was read.", highlight=False)
        missed += [f"experts: {of_used:.2f} of the used ones' bytes > {OF_USED}"] if of_used > OF_USED else []
    for each in others:
        console.print(each.words, highlight=False)
        missed += [each.missed] if each.missed else []
    if missed:
        console.print("MISSED: " + "; ".join(missed), highlight=False)
        return 1
    console.print("All bounds hold.")
    return 0


def _missed(case: Case, quiet: bool, faster: float, of_disk: float, read: float, possible: float) -> list[str]:
    missed = []
    part = (OF_DISK if case.of_disk is None else case.of_disk)[0 if quiet else 1]
    wanted = min(case.faster[0 if quiet else 1], part * possible)
    if faster < wanted:
        missed.append(f"{case.name}: {faster:.2f} × accelerate < {wanted:.1f}")
    if case.of_disk is not None and of_disk < case.of_disk[0 if quiet else 1]:
        missed.append(f"{case.name}: {of_disk:.2f} of the disk < {case.of_disk[0 if quiet else 1]}")
    if read < READ:
        missed.append(f"{case.name}: only {read:.1%} of the bytes due came from the disk")
    return missed


def _columns(pairs: Sequence[Pair]) -> tuple[list[float], list[float], list[float]]:
    return [each.ours for each in pairs], [each.accelerate for each in pairs], [each.disk for each in pairs]
