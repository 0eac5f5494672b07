"""`layerlight bench paint`: how long the layer map takes to move its light, and to be painted anew, at scale 2."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from layerlight.bench.window import percentile
from layerlight.core.errors import RunFailed

LAYERS = ("32", "100", "1000")
JUDGED = "100"
"""So many layers the bounds are meant for."""
MOVING, WHOLE = 8.0, 16.0
"""ms: bounds of what moves (p99) and of a whole repaint (median)."""


def main(argv: Sequence[str]) -> int:
    """Prints a table and a line that sums it up; 1 when a bound is missed."""
    argparse.ArgumentParser(prog="layerlight bench paint", description=__doc__).parse_args(argv)
    console = Console()
    found = _probe()
    table = Table("layers", "moving, median ms", "p99 ms", "whole, median ms", "p99 ms")
    for layers, times in found.items():
        pairs = (times["moving"], times["whole"])
        table.add_row(layers, *(f"{figure(each):.1f}" for each in pairs for figure in (median, _p99)))
    console.print(table)
    moving, whole = _p99(found[JUDGED]["moving"]), median(found[JUDGED]["whole"])
    missed = [f"what moves takes {moving:.1f} > {MOVING:.0f} ms (p99)"] if moving > MOVING else []
    missed += [f"a whole repaint takes {whole:.1f} > {WHOLE:.0f} ms (median)"] if whole > WHOLE else []
    if missed:
        console.print(f"MISSED with {JUDGED} layers: {'; '.join(missed)}")
        return 1
    console.print(
        f"With {JUDGED} layers at scale 2 what moves takes ≤ {MOVING:.0f} ms (p99), a whole repaint ≤ {WHOLE:.0f} ms."
    )
    return 0


def _p99(times: Sequence[float]) -> float:
    return percentile(times, 0.99)


def _probe() -> dict[str, dict[str, list[float]]]:
    """Raises RunFailed when the probe printed nothing."""
    environment = {**os.environ, "QT_SCALE_FACTOR": "2"}
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        environment.setdefault("QT_QPA_PLATFORM", "offscreen")
    command = [sys.executable, "-m", "layerlight.bench.paint_probe", *LAYERS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunFailed(f"The map ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    found: dict[str, dict[str, list[float]]] = json.loads(done.stdout.splitlines()[-1])
    return found
