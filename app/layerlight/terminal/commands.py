"""What each command does, from what was asked to what is given."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass, field, replace

from layerlight.core.errors import LayerlightError, Stopped
from layerlight.core.folders import expanded
from layerlight.core.inspection import inspect_folder
from layerlight.core.job import Job
from layerlight.core.load_request import load_request
from layerlight.core.machines.machine_files import write_machine
from layerlight.core.messages import (
    ChatMessage,
    Event,
    ModelInspected,
    ModelLoaded,
    Planned,
    StarterReady,
    StarterRequest,
    TextProduced,
    TextRequest,
)
from layerlight.core.placing import ENGINE_STRATEGIES, require_fit
from layerlight.core.plan import Plan
from layerlight.core.state import State, apply
from layerlight.terminal import measured, report, tables
from layerlight.terminal.planning import make
from layerlight.terminal.screens import Screen, screen_for
from layerlight.terminal.source import find_runnable
from layerlight.terminal.surroundings import Terminal
from layerlight.terminal.wishes import PlanWishes

DEMO_QUESTION = "What is the capital of France?"


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


def devices(terminal: Terminal, save: str | None = None) -> int:
    """Prints this machine; with `save` it is written to that file too, for `plan --machine`."""
    place = None if save is None else expanded(save, "file")
    machine = terminal.machine()
    if save is not None and place is not None:
        write_machine(machine, place)
        terminal.console.say(f"This machine was saved. Plan for it anywhere: plan MODEL --machine {shlex.quote(save)}")
    terminal.console.give(report.of_machine(machine), tables.of_machine(machine))
    return 0


def inspect(terminal: Terminal, folder: str) -> int:
    model = inspect_folder(folder)
    terminal.console.give(report.of_model(model), tables.of_model(model))
    return 0


def run(terminal: Terminal, wishes: PlanWishes, request: TextRequest) -> int:
    """Plans, loads and answers. A stop while answering gives what was written by then, with exit code 130."""
    source = find_runnable(wishes.folder)
    wishes.asked(source.model)
    console = terminal.console
    following = _Following(terminal, screen_for(console.err, console.out, streams=not console.as_json))
    machine = terminal.machine(wishes.offload_folder)
    found = require_fit(measured.corrected(make(terminal, wishes, source, machine)))
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
        engine.check(load, job)
        if found.wishes.strategy not in ENGINE_STRATEGIES:  # accelerate knows nothing of what was told
            told = replace(source, model=following.state.model or source.model)
            found = require_fit(measured.corrected(make(terminal, wishes, told, machine)))
            following(Planned(found))
        engine.load(load_request(found, wishes.offload_folder), job)
        engine.generate(request, job)
    except LayerlightError as error:
        following.screen.close()
        if following.printed:
            console.answer("")
        failure = terminal.told(error)
        console.fail(failure, _found(found, request, following))
        return failure.exit_code
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
