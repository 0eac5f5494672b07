"""Makes Layerlight ready to run, then starts it: python3 packaging/run.py [--torch cpu|cuda|rocm|xpu] [command…]"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - said before any newer syntax is read
    sys.exit("Layerlight needs Python 3.11 or newer; this is Python " + sys.version.split()[0] + ".")

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence

import torch_build
from environment import ROOT, Environment
from steps import StepFailed, run_steps

USAGE = """usage: python3 packaging/run.py [--torch cpu|cuda|rocm|xpu] [terminal command…]

Sets Layerlight up in .venv on the first start, then starts its window. With a terminal command (devices, inspect,
plan, run, image, bench, starter, demo) it runs that instead; "run.py COMMAND --help" explains one.
--torch chooses torch's build; without it the one that fits this machine is taken, and later the one chosen last."""


class BadUsage(Exception):
    """The command line makes no sense; the text says why."""


def say(words: str) -> None:
    # On stderr, so that the answer of a terminal command is alone on stdout.
    print(words, file=sys.stderr, flush=True)


def parse(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Splits (wished torch build, everything that is for Layerlight itself). Raises BadUsage."""
    rest = list(arguments)
    wish = None
    while rest and rest[0].split("=")[0] == "--torch":
        first, *rest = rest
        value = first.partition("=")[2]
        if "=" not in first and rest:
            value, *rest = rest
        if value not in torch_build.CHOICES:
            raise BadUsage(f"--torch takes one of {', '.join(torch_build.CHOICES)}, not {value or 'nothing'}.")
        wish = value
    return wish, rest


def no_display(environ: Mapping[str, str], platform: str = sys.platform) -> str:
    """Why no window can be shown here, in words; "" where one can."""
    if not platform.startswith("linux") or environ.get("QT_QPA_PLATFORM") or environ.get("WAYLAND_DISPLAY"):
        return ""
    display = environ.get("DISPLAY", "")
    if not display:
        return "There is no display here (neither DISPLAY nor WAYLAND_DISPLAY is set)."
    number = display.removeprefix("unix").removeprefix(":").split(".")[0]
    if display.startswith(("unix:", ":")) and number.isdecimal() and not _answers(f"/tmp/.X11-unix/X{number}"):
        return f"DISPLAY is {display}, but nothing answers there."
    return ""


def _answers(path: str) -> bool:
    for address in (path, f"\0{path}"):  # X servers listen on a file and, on Linux, on an abstract name
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(1)
            try:
                connection.connect(address)
            except OSError:
                continue
            return True
    return False


def start(environment: Environment, arguments: Sequence[str]) -> int:
    """Becomes Layerlight (on Windows: waits for it) and passes its exit code through."""
    # -P: a file called torch.py in the folder a person stands in must not be taken for torch.
    argv = [str(environment.python), "-P", "-m", "layerlight", *arguments]
    if os.name == "posix":
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(argv[0], argv)
    with subprocess.Popen(argv) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # Layerlight hears it too and ends in its own way
                continue


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    try:
        wish, rest = parse(arguments)
    except BadUsage as error:
        say(f"{error}\n\n{USAGE}")
        return 2
    reason = "" if rest else no_display(os.environ)
    environment = Environment(ROOT / ".venv", say)
    try:
        done = run_steps(environment.steps(wish, tests=False, window=not rest and not reason), environment.ledger, say)
    except StepFailed as failure:
        say(f"\n{failure.reason}")
        say(failure.hint or "Run the same command again once that is mended: it goes on with this step.")
        return 1
    if done:
        say("Layerlight is ready; the next start skips all this.")
    if reason:
        say(f"{reason} So instead of the window, this runs the demo in the terminal.")
        rest = ["demo"]
    return start(environment, rest)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        say("\nStopped. The same command goes on from here.")
        sys.exit(130)
