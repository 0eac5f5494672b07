"""What each command does, from what was asked to what is given."""

from __future__ import annotations

import shlex
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from layerlight.core.device import Budget, Machine
from layerlight.core.errors import BadRequest, LayerlightError, Stopped
from layerlight.core.inspection import inspect_folder, require_runnable
from layerlight.core.job import Engine, Job
from layerlight.core.load_request import load_request
from layerlight.core.messages import (
    ChatMessage,
    Event,
    LoadRequest,
    ModelInspected,
    ModelLoaded,
    Planned,
    StarterReady,
    StarterRequest,
    TextProduced,
    TextRequest,
)
from layerlight.core.placement_map import read_map
from layerlight.core.placing import default_context, make_plan, require_fit
from layerlight.core.plan import Plan, Wishes
from layerlight.core.state import State, apply
from layerlight.terminal import measured, report, tables
from layerlight.terminal.console import Console
from layerlight.terminal.screens import Screen, screen_for

DEMO_QUESTION = "What is the capital of France?"


class OwnEngine(Engine, Protocol):
    """An engine in this process, which leaves no file behind when it is closed."""

    def count(self, request: TextRequest, load: LoadRequest, job: Job, /) -> None:
        """Raises what is wrong with the prompt, before a weight is read."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PlanWishes:
    """What `plan` and `run` ask of a plan."""

    folder: str
    limits: tuple[tuple[str, int], ...] = ()
    context: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    attention: str = "sdpa"
    map_file: str | None = None
    offload_folder: str | None = None


@dataclass(slots=True)
class Terminal:
    """One command's surroundings: where words go, what it may ask, and the stop flag of Ctrl-C."""

    console: Console
    survey: Callable[[str | None], Machine]
    """The machine, with the disk of this offload folder as its disk."""
    new_engine: Callable[[], OwnEngine]
    fetch: Callable[[StarterRequest, Job], str]
    stop: threading.Event = field(default_factory=threading.Event)
    at_work: bool = False
    """While a job runs that hears `stop` by itself; before and after it nothing is lost by ending at once."""

    def check(self) -> None:
        if self.stop.is_set():
            raise Stopped()


@dataclass(slots=True)
class _Following:
    """Folds events into the state, shows them, and keeps what the report needs."""

    terminal: Terminal
    screen: Screen
    state: State = field(default_factory=State)
    loaded: ModelLoaded | None = None
    printed: str = ""

    def __call__(self, event: Event) -> None:
        self.state = apply(self.state, event)
        self.screen.show(self.state, event)
        match event:
            case ModelLoaded():
                self.loaded = event
            case TextProduced(text=text) if not (self.terminal.console.as_json or self.screen.shows_answer):
                self.printed += text
                self.terminal.console.answer(text, end="")
            case _:
                return


def devices(terminal: Terminal) -> int:
    machine = _survey(terminal)
    terminal.console.give(report.of_machine(machine), tables.of_machine(machine))
    return 0


def inspect(terminal: Terminal, folder: str) -> int:
    model = inspect_folder(folder)
    terminal.console.give(report.of_model(model), tables.of_model(model))
    return 0


def plan(terminal: Terminal, wishes: PlanWishes) -> int:
    """Prints the plan; one that does not fit is shown too, and is a bad request."""
    require_runnable(inspect_folder(wishes.folder))
    _read_map_file(wishes)
    found = _plan(wishes, _survey(terminal, wishes.offload_folder))
    try:
        require_fit(found)
    except LayerlightError as error:
        if not terminal.console.as_json:
            terminal.console.say(tables.of_plan(found))
        terminal.console.fail(error, report.of_plan(found))
        return error.exit_code
    terminal.console.give(report.of_plan(found), tables.of_plan(found))
    return 0


def run(terminal: Terminal, wishes: PlanWishes, request: TextRequest) -> int:
    """Plans, loads and answers. A stop while answering gives what was written by then, with exit code 130."""
    require_runnable(inspect_folder(wishes.folder))
    _read_map_file(wishes)
    console = terminal.console
    following = _Following(terminal, screen_for(console.err, console.out, streams=not console.as_json))
    found = require_fit(_plan(wishes, _survey(terminal, wishes.offload_folder)))
    console.say("Starting the engine …")
    engine = terminal.new_engine()
    try:
        following(ModelInspected(found.model))
        following(Planned(found))
        job = Job(following, terminal.stop)
        terminal.at_work = True
        terminal.check()
        load = load_request(found, wishes.offload_folder)
        engine.count(request, load, job)
        engine.load(load, job)
        engine.generate(request, job)
    except LayerlightError as error:
        following.screen.close()
        if following.printed:
            console.answer("")
        console.fail(error, _found(found, request, following))
        return error.exit_code
    finally:
        following.screen.close()
        engine.close()
        terminal.at_work = False
    return _finish(terminal, found, request, following)


def starter(terminal: Terminal, kind: str) -> int:
    folder, licence = _fetch(terminal, kind)
    terminal.console.say(f"The starter model is ready, under the licence {licence}. Ask it something:")
    terminal.console.say(f'  {_command()} run {shlex.quote(folder)} --prompt "{DEMO_QUESTION}"')
    terminal.console.give({"folder": folder, "licence": licence}, folder)
    return 0


def demo(terminal: Terminal) -> int:
    """The first minute without a window: fetch, plan, load, ask one question, and say how to go on."""
    folder, _ = _fetch(terminal, "text")
    terminal.console.say(f"The question: {DEMO_QUESTION}")
    request = TextRequest((ChatMessage("user", DEMO_QUESTION),), seed=0, max_new_tokens=64, temperature=0.0)
    code = run(terminal, PlanWishes(folder), request)
    if code == 0:
        command, where = _command(), shlex.quote(folder)
        terminal.console.say(_HOW_TO_GO_ON.format(command=command, folder=where))
    return code


_HOW_TO_GO_ON = """
How to go on:
  Ask it something else
    {command} run {folder} --prompt "Why is the sky blue?"
  See what a machine with less memory would do
    {command} plan {folder} --limit cpu=300MiB
  Look into a model of your own, then run it
    {command} inspect FOLDER
  Open the window, where there is a display
    {command}"""


def _command() -> str:
    """What a person types to start this program: its name where the shell would find it."""
    if shutil.which("layerlight"):
        return "layerlight"
    return f"{shlex.quote(sys.executable)} -m layerlight"


# -- the steps ---------------------------------------------------------------------------------------------------------


def _survey(terminal: Terminal, offload_folder: str | None = None) -> Machine:
    terminal.check()
    terminal.console.say("Looking for devices …")
    machine = terminal.survey(offload_folder)
    terminal.check()
    return measured.rated(machine)


def _plan(wishes: PlanWishes, machine: Machine) -> Plan:
    model = require_runnable(inspect_folder(wishes.folder))
    context = default_context(model) if wishes.context is None else wishes.context
    by_hand = _read_map_file(wishes)
    asked = Wishes(wishes.dtype, wishes.quantization, wishes.attention, by_hand)
    return measured.corrected(make_plan(model, machine, Budget.of(wishes.limits, context), asked))


def _read_map_file(wishes: PlanWishes) -> tuple[tuple[str, str], ...]:
    if wishes.map_file is None:
        return ()
    try:
        text = Path(wishes.map_file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(
            f"The map {wishes.map_file} can't be read: {getattr(error, 'strerror', None) or error}.",
            hint="Take one from “layerlight plan FOLDER --json”.",
        ) from error
    pairs = read_map(text)
    if not pairs:
        raise BadRequest(f"The map {wishes.map_file} is empty.", hint="It must name every layer of the model.")
    return pairs


def _fetch(terminal: Terminal, kind: str) -> tuple[str, str]:
    """(folder, licence) of the starter model."""
    console = terminal.console
    screen = screen_for(console.err, console.out, streams=False)
    ready: list[StarterReady] = []
    state = State()

    def listen(event: Event) -> None:
        nonlocal state
        state = apply(state, event)
        screen.show(state, event)
        if isinstance(event, StarterReady):
            ready.append(event)

    terminal.at_work = True
    try:
        folder = terminal.fetch(StarterRequest(kind), Job(listen, terminal.stop))
    except Stopped as stopped:
        raise Stopped(
            "The starter model is not complete, and no half of it was left.",
            hint="Run the same command again. A download that had ended is kept; one in its middle begins anew.",
        ) from stopped
    finally:
        screen.close()
        terminal.at_work = False
    return folder, ready[-1].licence if ready else ""


def _found(plan: Plan, request: TextRequest, following: _Following) -> dict[str, object]:
    return report.of_plan(plan) | report.of_run(
        request, following.state.checked, following.loaded, following.state.result
    )


def _finish(terminal: Terminal, plan: Plan, request: TextRequest, following: _Following) -> int:
    console, result = terminal.console, following.state.result
    if result is None:
        raise LayerlightError("The engine ended the run without a result.")
    if console.as_json:
        console.give(_found(plan, request, following), "")
    else:
        console.answer(result.text[len(following.printed) :])
    console.say(tables.of_result(result))
    console.say(tables.of_pace(plan, result))
    notice = measured.remember(plan, following.loaded, result)
    if notice:
        console.say(notice)
    return Stopped.exit_code if result.ended == "stopped" else 0
