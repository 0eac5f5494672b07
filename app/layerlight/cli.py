"""The terminal's commands: devices · calibrate · inspect · plan · run · starter · demo · bench."""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import logging
import os
import pkgutil
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from layerlight import __version__
from layerlight.core.characters import mended
from layerlight.core.device import Machine
from layerlight.core.environment import engine_environment
from layerlight.core.errors import BadRequest, LayerlightError, Stopped, Unexpected
from layerlight.core.folders import own_folders
from layerlight.core.messages import CalibrateRequest, ChatMessage, StarterRequest, TextRequest
from layerlight.core.sampling import require_sensible
from layerlight.core.settings import read_settings
from layerlight.terminal import commands
from layerlight.terminal.calibrating import calibrate
from layerlight.terminal.console import Console
from layerlight.terminal.plan_options import add_plan_options, add_show_options, show_of, wishes_of
from layerlight.terminal.planning import plan
from layerlight.terminal.surroundings import OwnEngine, StrategyMaps, Terminal
from layerlight.terminal.wishes import PlanWishes

if TYPE_CHECKING:
    from layerlight.core.job import Job
    from layerlight.core.plan import Plan

log = logging.getLogger(__name__)


def main(
    argv: Sequence[str],
    survey: Callable[[str | None], Machine] | None = None,
    new_engine: Callable[[], OwnEngine] | None = None,
    strategy_maps: StrategyMaps | None = None,
) -> int:
    """Carries out one command. The exit code: 0, 1 for a failure, 2 for a bad request, 130 when stopped.

    `survey`, `new_engine` and `strategy_maps` stand in for torch's and accelerate's in tests.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    console = Console(sys.stdout or _nowhere(), sys.stderr or _nowhere(), "--json" in argv)
    terminal = Terminal(
        console,
        survey or survey_with_torch,
        new_engine or torch_engine,
        _fetch_starter,
        strategy_maps or accelerate_maps,
    )
    try:
        with _interruptible(terminal):
            return _carry_out(list(argv), terminal)
    except LayerlightError as error:
        return _failed(terminal, error)
    except KeyboardInterrupt:
        return _failed(terminal, Stopped())
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        path = _log_to_file()
        log.exception("a command failed")
        words = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        return _failed(terminal, Unexpected(words, hint=f"The details are in {path}." if path else ""))


def _failed(terminal: Terminal, error: LayerlightError) -> int:
    """Says it, and gives its exit code."""
    told = terminal.told(error)
    terminal.console.fail(told)
    return told.exit_code


def _carry_out(argv: list[str], terminal: Terminal) -> int:
    options = _parser().parse_args(argv)
    match options.command:
        case "devices":
            return commands.devices(terminal, options.save)
        case "inspect":
            return commands.inspect(terminal, options.folder)
        case "plan":
            show = show_of(options)
            return plan(terminal, _plan_wishes(options, options.model or "", terminal.console), show)
        case "run":
            request = _text_request(options)
            return commands.run(terminal, _plan_wishes(options, options.folder, terminal.console), request)
        case "calibrate":
            return calibrate(terminal, CalibrateRequest(_offload_folder(options), options.seconds))
        case "starter":
            return commands.starter(terminal, options.kind)
        case "bench":
            return _bench(options.name, options.rest, terminal.console)
        case _:
            return commands.demo(terminal)


def survey_with_torch(offload_folder: str | None = None) -> Machine:
    """This machine. Imports torch alone, which is half of what the engine needs."""
    _prepare_torch()
    from layerlight.engine.survey import survey_machine

    return survey_machine(Path(offload_folder) if offload_folder else None)


def torch_engine() -> OwnEngine:
    """The engine, in this process."""
    _prepare_torch()
    from layerlight.engine.warming import warm_up

    warm_up()
    from layerlight.engine.engine import TorchEngine

    return TorchEngine()


def accelerate_maps(
    plan: Plan, strategies: Sequence[str], config: Mapping[str, Any] | None = None
) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """accelerate's own maps for a plan's model, machine and budget."""
    _prepare_torch()
    from layerlight.engine.logs import quiet_libraries
    from layerlight.engine.strategies import strategy_maps

    quiet_libraries()
    return strategy_maps(plan, strategies, config)


def _prepare_torch() -> None:
    """Sets what torch reads at its import, and what becomes of its words and its garbage."""
    if "torch" not in sys.modules:
        settings, _ = read_settings(own_folders().settings)
        os.environ.update(engine_environment(os.environ, settings.engine_environment))
        atexit.register(gc.freeze)  # else Python searches all of torch for garbage at its end: 1.5 s for nothing
    _log_to_file()


def _fetch_starter(request: StarterRequest, job: Job) -> str:
    """Without torch: it is not needed for it."""
    from layerlight.engine.starter import fetch_starter

    return fetch_starter(request, job)


# -- what was asked ----------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Words that can't be parsed are a bad request like any other. Options are written out: `--js` would be half
    heard, as what is to go where is decided before anything is parsed.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise BadRequest(message[:1].upper() + message[1:] + ".", hint=f"“{self.prog} --help” explains it.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="layerlight",
        description="Runs language models on the machine you have, and shows where every layer lives.",
        epilog="Without a command the window opens. Exit codes: 0, 1 failed, 2 bad request, 130 stopped.",
    )
    parser.add_argument("--version", action="version", version=f"layerlight {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    looking = _add(commands, "devices", "the places where layers can rest: accelerators, RAM, disk")
    looking.add_argument("--save", metavar="FILE", help="also write this machine to a file, for plan --machine")
    inspecting = _add(commands, "inspect", "what a model folder holds, without loading it")
    inspecting.add_argument("folder", metavar="FOLDER")
    planning = _add(commands, "plan", "where each layer would rest and run, and what that would cost")
    add_show_options(planning)
    add_plan_options(planning)
    running = _add(commands, "run", "load a model and ask it something")
    running.add_argument("folder", metavar="FOLDER", help="a model folder, or a Hugging Face cache folder")
    add_plan_options(running)
    _add_run_options(running)
    calibrating = _add(commands, "calibrate", "measure how fast this machine is, so that plans can tell seconds")
    calibrating.add_argument("--seconds", type=_seconds, default=15.0, metavar="N", help="at most so long; 15")
    calibrating.add_argument("--offload-folder", metavar="FOLDER", help="the disk that layers would rest on")
    fetching = _add(commands, "starter", "fetch a small model to begin with")
    fetching.add_argument("kind", metavar="KIND", choices=("text",), help="text")
    _add(commands, "demo", "fetch the starter model, load it and ask it one question")
    measuring = commands.add_parser("bench", help="measure Layerlight itself", description="Measures Layerlight.")
    measuring.add_argument("name", metavar="NAME", nargs="?", help="which measurement; without one they are listed")
    measuring.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _add(commands: argparse._SubParsersAction[_Parser], name: str, words: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=words, description=words[0].upper() + words[1:] + ".")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout with everything shown")
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--prompt", metavar="TEXT", help="what to ask; - reads it from stdin")
    add("--system", default="", metavar="TEXT", help="a system message")
    add("--max-new-tokens", type=int, default=512, metavar="N")
    add("--temperature", type=float, default=0.7, metavar="T", help="0 always takes the likeliest token")
    add("--top-p", type=float, default=1.0, metavar="P")
    add("--top-k", type=int, default=0, metavar="K", help="0 is off")
    add("--repetition-penalty", type=float, default=1.0, metavar="R")
    add("--seed", type=int, metavar="N", help="drawn when not given, and told with the answer")
    add(
        "--prompt-lookup",
        type=int,
        default=0,
        metavar="N",
        help="guess N tokens from the text so far and check them in one pass; 0 is off",
    )


def _plan_wishes(options: argparse.Namespace, model: str, console: Console) -> PlanWishes:
    settings, notice = read_settings(own_folders().settings)
    if notice:
        console.say(notice)
    return wishes_of(options, model, settings.offload_folder)


def _offload_folder(options: argparse.Namespace) -> str | None:
    settings, _ = read_settings(own_folders().settings)
    return options.offload_folder or settings.offload_folder


def _seconds(words: str) -> float:
    seconds = float(words)
    if not 1 <= seconds <= 600:
        raise argparse.ArgumentTypeError("give a number from 1 to 600")
    return seconds


def _text_request(options: argparse.Namespace) -> TextRequest:
    """The complete request, refused here when no run could honour it: before anything is loaded."""
    system = [ChatMessage("system", mended(options.system))] if options.system else []
    request = TextRequest(
        messages=(*system, ChatMessage("user", mended(_prompt(options)))),
        seed=secrets.randbelow(2**31) if options.seed is None else options.seed,
        max_new_tokens=options.max_new_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        repetition_penalty=options.repetition_penalty,
        prompt_lookup=options.prompt_lookup,
    )
    require_sensible(request)
    return request


def _prompt(options: argparse.Namespace) -> str:
    if options.prompt == "-" or (options.prompt is None and sys.stdin and not sys.stdin.isatty()):
        return sys.stdin.read() if sys.stdin else ""
    if options.prompt is None:
        raise BadRequest("There is no prompt.", hint='Give one with --prompt "…", or through a pipe.')
    return str(options.prompt)


# -- benchmarks --------------------------------------------------------------------------------------------------------


def _bench(name: str | None, rest: list[str], console: Console) -> int:
    import layerlight.bench

    found = sorted(module.name for module in pkgutil.iter_modules(layerlight.bench.__path__))
    module = importlib.import_module(f"layerlight.bench.{name}") if name in found else None
    if module is not None and hasattr(module, "main"):
        return int(module.main(rest))
    measures = [each for each in found if hasattr(importlib.import_module(f"layerlight.bench.{each}"), "main")]
    listed = f"There are: {', '.join(measures)}." if measures else "None is installed here."
    if name is None:
        console.say(listed)
        return 0
    raise BadRequest(f"There is no benchmark “{name}”.", hint=listed)


# -- the edge ----------------------------------------------------------------------------------------------------------


_ENDS = ("SIGINT", "SIGTERM", "SIGHUP")
"""Ctrl-C, a polite kill and a terminal that was closed. One that was ignored before, as nohup has it, stays so."""


@contextmanager
def _interruptible(terminal: Terminal) -> Iterator[None]:
    """Ctrl-C and its kin ask a job to stop at its next boundary; a second one, or one outside a job, ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        at_once = terminal.stop.is_set() or not terminal.at_work
        terminal.stop.set()
        if at_once:
            raise KeyboardInterrupt

    heard = [each for name in _ENDS if (each := getattr(signal, name, None)) is not None]
    before = {each: signal.getsignal(each) for each in heard if signal.getsignal(each) is not signal.SIG_IGN}
    try:
        for each in before:
            signal.signal(each, interrupt)
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _nowhere() -> TextIO:
    """In place of a stream that was closed before we began."""
    return open(os.devnull, "w", encoding="utf-8")


def _log_to_file() -> str:
    """Libraries speak to a log file, not into the answer; its path, empty where there can be none."""
    try:
        path = own_folders().log / "terminal.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        logging.captureWarnings(True)
        logging.basicConfig(filename=path, level=logging.INFO, force=True, encoding="utf-8", errors="replace")
    except (OSError, BadRequest):
        logging.basicConfig(handlers=[logging.NullHandler()], force=True)
        return ""
    return str(path)
