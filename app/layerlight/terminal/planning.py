"""`layerlight plan`: a plan for this machine or another, beside accelerate's, exported, or many in a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from layerlight.core.advice import advise
from layerlight.core.comparison import Compared, compared
from layerlight.core.device import Machine
from layerlight.core.errors import BadRequest, LayerlightError
from layerlight.core.machines.machine_files import machine_names, read_machine_file
from layerlight.core.machines.public_models import public_model, public_model_names
from layerlight.core.placing import ENGINE_STRATEGIES, STRATEGIES, make_plan, require_fit
from layerlight.core.plan import Plan
from layerlight.core.plan_table import Cell, table
from layerlight.core.planning.kv_choice import why_not
from layerlight.core.unused_room import unused_words
from layerlight.terminal import fix_options, measured, plan_tables, report, tables
from layerlight.terminal.exporting import Export
from layerlight.terminal.source import Source, find_source
from layerlight.terminal.surroundings import Terminal
from layerlight.terminal.wishes import PlanWishes


@dataclass(frozen=True, slots=True)
class Show:
    """What of a plan is asked for beside itself."""

    table: bool = False
    compare: bool = False
    export: Export | None = None


def plan(terminal: Terminal, wishes: PlanWishes, show: Show = Show()) -> int:
    """Prints the plan; one that does not fit is shown too, and is a bad request."""
    if show.table:
        return _table(terminal, wishes)
    source = find_source(wishes.folder)
    wishes.asked(source.model)
    title, machine = _machine(terminal, wishes)
    found = make(terminal, wishes, source, machine)
    if title is None:
        found = measured.corrected(found)
    if show.compare:
        return _compare(terminal, wishes, source, found, title)
    if show.export is not None:
        return _export(terminal, source, found, show.export)
    return _show(terminal, wishes, source, found, title)


def make(terminal: Terminal, wishes: PlanWishes, source: Source, machine: Machine) -> Plan:
    """The plan that is asked for; accelerate's own strategies are worked out by accelerate."""
    model, asked = source.model, wishes.asked(source.model)
    budget = wishes.budget(model)
    if asked.strategy in ENGINE_STRATEGIES:
        ours = make_plan(model, machine, budget, replace(asked, strategy=STRATEGIES[0]))
        maps = terminal.strategy_maps(ours, (asked.strategy,), source.config)
        asked = replace(asked, map=maps[asked.strategy])
    return make_plan(model, machine, budget, asked)


def _machine(terminal: Terminal, wishes: PlanWishes) -> tuple[str | None, Machine]:
    """(title of another machine, the machine to plan for)."""
    if wishes.machine is None:
        return None, terminal.machine(wishes.offload_folder)
    file = read_machine_file(wishes.machine)
    return file.title or wishes.machine, file.machine


def _show(terminal: Terminal, wishes: PlanWishes, source: Source, found: Plan, title: str | None) -> int:
    fixes = advise(found).fixes
    content = _content(wishes, source, found, title)
    content["fixes"] = [fix_options.of_fix(found, fix) for fix in fixes]
    content["unused"] = unused = _unused(found)
    head = [f"On another machine, {title}, it would be:"] if title else []
    told = [tables.of_plan(found), *unused.values(), *fix_options.in_words(found, fixes)]
    words = "\n".join([*head, *_noted(source), *told])
    try:
        require_fit(found)
    except LayerlightError as error:
        if not terminal.console.as_json:
            terminal.console.say(words)
        terminal.console.fail(error, content)
        return error.exit_code
    terminal.console.give(content, words)
    return 0


def _unused(found: Plan) -> dict[str, str]:
    """Why accelerators hold no more than they do, by place."""
    told = {device.id: unused_words(found, device.id) for device in found.machine.accelerators if found.fits}
    return {place: words for place, words in told.items() if words}


def _content(wishes: PlanWishes, source: Source, found: Plan, title: str | None) -> dict[str, Any]:
    workload = found.wishes.workload.within(found.budget.context)
    return {
        **report.of_plan(found),
        "source": source.kind,
        "machine": {"name": wishes.machine, "title": title} if title else None,
        "strategy": found.wishes.strategy,
        "pins": dict(found.wishes.pins),
        "workload": {"prompt": workload.prompt, "answer": workload.answer},
    }


def _noted(source: Source) -> list[str]:
    """What is to be said of a model whose weights are not here."""
    return list(source.model.notes) if source.kind != "folder" else []


# -- for elsewhere -----------------------------------------------------------------------------------------------------


def _export(terminal: Terminal, source: Source, found: Plan, export: Export) -> int:
    require_fit(found)
    text = export.text(found, source.loads_from)
    export.write(text)
    content = {"format": export.format, "file": export.file, "text": text}
    if terminal.console.as_json:
        terminal.console.give(content, "")
    elif export.file is None:
        terminal.console.answer(text, end="")
    else:
        terminal.console.say(f"The plan was written to {export.file}.")
    return 0


# -- beside accelerate's -----------------------------------------------------------------------------------------------


def _compare(terminal: Terminal, wishes: PlanWishes, source: Source, found: Plan, title: str | None) -> int:
    if found.wishes.map or found.wishes.pins:
        raise BadRequest("--compare lets each strategy choose every place.", hint="Leave --map and --pin out of it.")
    terminal.console.say("Asking accelerate …")
    rows = [compared(found, name) for name in STRATEGIES]
    rows += _by_accelerate(terminal, found, source)
    content = {
        **{key: value for key, value in _content(wishes, source, found, title).items() if key in _COMPARED},
        "strategies": [plan_tables.of_compared(row.strategy, row.plan, row.trouble) for row in rows],
    }
    head = [f"On another machine, {title}, it would be:"] if title else []
    shown = plan_tables.compared([(row.strategy, row.plan, row.trouble) for row in rows])
    terminal.console.give(content, "\n".join([*head, *_noted(source), tables.title(found), "", shown]))
    return 0


_COMPARED = (
    "folder", "model", "limits", "context", "dtype", "quantization", "kv_cache", "source", "machine", "workload",
)  # fmt: skip


def _by_accelerate(terminal: Terminal, found: Plan, source: Source) -> list[Compared]:
    try:
        maps = terminal.strategy_maps(found, ENGINE_STRATEGIES, source.config)
    except LayerlightError as error:
        return [Compared(name, None, error.message) for name in ENGINE_STRATEGIES]
    return [compared(found, name, maps[name]) for name in ENGINE_STRATEGIES]


# -- models on machines ------------------------------------------------------------------------------------------------


def _table(terminal: Terminal, wishes: PlanWishes) -> int:
    if wishes.pins or wishes.map_file or wishes.strategy in ENGINE_STRATEGIES:
        raise BadRequest(
            "A table has many machines: --map, --pin and accelerate's strategies belong to one.",
            hint="Leave them out, or leave --table out.",
        )
    sources = [find_source(wishes.folder)] if wishes.folder else []
    machines = [(name, read_machine_file(name).machine) for name in _names(wishes)]
    models = [source.model for source in sources] or [public_model(name) for name in public_model_names()]
    terminal.console.say(f"Planning {_counted(len(models), 'model')} on {_counted(len(machines), 'machine')} …")
    cells: list[Cell] = []
    for model in models:
        terminal.check()
        asked = wishes.asked(model)
        if model.quantization:  # as it is: one such model is no reason to refuse a table of many
            asked = replace(asked, quantization=None)
        if model.shape is not None and why_not(model.shape, Machine(())):  # likewise one whose cache can't be
            asked = replace(asked, kv="")
        cells += table([model], machines, wishes.budget(model), asked)
    _give_table(terminal, wishes, cells, one=bool(sources))
    return 0


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _names(wishes: PlanWishes) -> Sequence[str]:
    return machine_names() if wishes.machine is None else [wishes.machine]


def _give_table(terminal: Terminal, wishes: PlanWishes, cells: list[Cell], one: bool) -> None:
    console = terminal.console
    content = {
        "context": wishes.context,
        "quantization": wishes.quantization,
        "kv_cache": wishes.kv or None,
        "dtype": wishes.dtype,
        "cells": [plan_tables.of_cell(cell) for cell in cells],
    }
    if console.as_json or not console.out.isatty():
        console.give(content, plan_tables.plain(cells))
        return
    from layerlight.terminal.drawn_table import draw_machines, draw_matrix  # a drawing library: only where one can draw

    (draw_machines if one else draw_matrix)(console.out, cells)
