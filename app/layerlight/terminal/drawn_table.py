"""Tables of models and machines, drawn in a terminal of 80 characters or more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from layerlight.core.advice import Verdict
from layerlight.core.device import format_size
from layerlight.core.plan_table import Cell
from layerlight.terminal.plan_tables import bytes_in_words, seconds

COLOURS = {Verdict.FITS: "green3", Verdict.SLOW: "orange3", Verdict.FAILED: "red3"}
CELL = 9
"""Characters of a cell of the matrix, and of the widest word in a machine's name."""
_GAP = 1
"""Between two columns, as the box draws it."""

LEGEND = Text.assemble(
    "Tokens a second (/s) or seconds a token (s). ",
    ("All of it where it runs", COLOURS[Verdict.FITS]),
    ", ",
    ("~ layers carried for every token", COLOURS[Verdict.SLOW]),
    ", ",
    ("− does not fit, by so much", COLOURS[Verdict.FAILED]),
    ".",
)


def draw_matrix(out: TextIO, cells: Sequence[Cell]) -> None:
    """Models down, machines across, in as many pieces as the width needs."""
    console = Console(file=out, highlight=False)
    models = list(dict.fromkeys(cell.model for cell in cells))
    machines = list(dict.fromkeys(cell.machine for cell in cells))
    found = {(cell.model, cell.machine): cell for cell in cells}
    name = max(len(model) for model in models)
    at_once = max(1, (console.width - name) // (CELL + _GAP))
    for start in range(0, len(machines), at_once):
        piece = machines[start : start + at_once]
        table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
        table.add_column("", no_wrap=True)
        for machine in piece:
            table.add_column(machine.replace("-", "\n"), justify="right", width=CELL, vertical="bottom")
        for model in models:
            table.add_row(model, *(_short(found[model, machine]) for machine in piece))
        console.print(table)
        console.print()
    console.print(LEGEND)


def draw_machines(out: TextIO, cells: Sequence[Cell]) -> None:
    """One model: a line for each machine."""
    console = Console(file=out, highlight=False)
    table = Table(title=cells[0].model, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title_justify="left")
    table.add_column("machine", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("s/token", justify="right", no_wrap=True)
    table.add_column("bytes at the peak")
    for cell in cells:
        verdict = Text(cell.verdict.value, style=COLOURS[cell.verdict])
        table.add_row(cell.machine, verdict, seconds(cell), bytes_in_words(cell))
    console.print(table)


def _short(cell: Cell) -> Text:
    """`25/s`, `~3.2 s`, `−11GiB` or `no`."""
    colour = COLOURS[cell.verdict]
    if cell.verdict is Verdict.FAILED or cell.seconds_per_token is None:
        return Text("−" + format_size(cell.shortfall, 0).replace(" ", "") if cell.shortfall else "no", style=colour)
    carried = "~" if cell.verdict is Verdict.SLOW else ""
    each = cell.seconds_per_token
    return Text(carried + (f"{1 / each:.0f}/s" if 0 < each < 0.5 else f"{_rounded(each)} s"), style=colour)


def _rounded(number: float) -> str:
    return f"{number:.1f}" if number < 10 else f"{number:.0f}"
