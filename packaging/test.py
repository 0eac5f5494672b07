"""Sets up the test tools too, then runs every check: python3 packaging/test.py [--torch …] [pytest arguments…]"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - said before any newer syntax is read
    sys.exit("Layerlight needs Python 3.11 or newer; this is Python " + sys.version.split()[0] + ".")

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from environment import ROOT, Environment
from run import BadUsage, parse, say
from steps import StepFailed, run_steps

MOST_WORKERS = 4
"""Beside each an engine process with a gigabyte of weights may run."""
CHOSEN = ("-n", "--numprocesses", "-d", "--dist", "--tx", "no:xdist", "-pno:xdist")
"""How a person's own choice of processes begins."""
WATCHED = ("-s", "--capture=no", "--pdb", "--trace", "--sw", "--stepwise", "--co", "--collect-only")
"""What pytest does in one process only, or shows better from one."""


@dataclass(frozen=True)
class Check:
    """One check: what people call it, and its command."""

    name: str
    argv: tuple[str, ...]


def checks(environment: Environment, pytest_arguments: Sequence[str]) -> list[Check]:
    """All checks, the cheap ones first, pytest last."""
    python = str(environment.python)
    scripts = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "packaging").glob("*.py"))
    return [
        Check("ruff check", (python, "-m", "ruff", "check", ".")),
        Check("ruff format", (python, "-m", "ruff", "format", "--check", ".")),
        Check("mypy", (python, "-m", "mypy")),
        Check("mypy packaging", (python, "-m", "mypy", *scripts)),
        Check("import contracts", (str(environment.scripts / "lint-imports"),)),
        Check("pytest", (python, "-m", "pytest", *in_workers(pytest_arguments, usable_cores()))),
    ]


def in_workers(pytest_arguments: Sequence[str], cores: int) -> list[str]:
    """pytest's arguments with those that spread the files over processes, one a core, where that makes it quicker.

    A file stays in one process, so that what its tests share is made once. A single file, what needs a terminal and
    what a person has chosen stay as they are.
    """
    workers = min(cores, MOST_WORKERS)
    own = any(each.startswith(CHOSEN) or each in WATCHED for each in pytest_arguments)
    named = {ROOT / each.partition("::")[0] for each in pytest_arguments if not each.startswith("-")}
    places = [each for each in named if each.exists()]
    if workers < 2 or own or (len(places) == 1 and places[0].is_file()):
        return list(pytest_arguments)
    # In the folders' order the long files come early; xdist's own, most tests first, leaves some for one to end alone.
    return ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder", *pytest_arguments]


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_checks(wanted: Sequence[Check]) -> list[str]:
    """Runs every check, also after one has failed, and returns the names of those that failed."""
    env = {"QT_QPA_PLATFORM": "offscreen", **os.environ, "HF_HUB_OFFLINE": "1"}
    failed = []
    for check in wanted:
        print(f"== {check.name}", flush=True)
        begin = time.monotonic()
        code = subprocess.run(check.argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, check=False).returncode
        if code != 0:
            failed.append(check.name)
        verdict = "passed" if code == 0 else f"FAILED (exit code {code})"
        print(f"== {check.name}: {verdict}, {time.monotonic() - begin:.1f} s", flush=True)
    return failed


def main(arguments: Sequence[str]) -> int:
    try:
        wish, pytest_arguments = parse(arguments)
    except BadUsage as error:
        say(str(error))
        return 2
    environment = Environment(ROOT / ".venv", say)
    try:
        run_steps(environment.steps(wish, tests=True, window=False), environment.ledger, say)
    except StepFailed as failure:
        say(f"\n{failure.reason}")
        say(failure.hint or "Run the same command again once that is mended: it goes on with this step.")
        return 1
    wanted = checks(environment, pytest_arguments)
    failed = run_checks(wanted)
    print(f"Failed: {', '.join(failed)}." if failed else f"All {len(wanted)} checks passed.")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        say("\nStopped. The same command goes on from here.")
        sys.exit(130)
