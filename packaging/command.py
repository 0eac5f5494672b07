"""Runs one long command: its output is kept, and a line now and then says that it is alive."""

import re
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

HEARTBEAT_SECONDS = 10.0
KEPT_LINES = 60
ACTIVITY_WIDTH = 68


@dataclass(frozen=True)
class Outcome:
    """A finished command: exit code and the last lines it printed."""

    code: int
    tail: tuple[str, ...]


def run_command(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Outcome:
    """Runs a command without stdin. Ctrl-C ends it and is raised again; a missing program is exit code 127."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else None,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        return Outcome(127, (str(error),))
    lines: deque[str] = deque(maxlen=KEPT_LINES)
    reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        _watch(process, lines)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    reader.join()
    return Outcome(process.returncode, tuple(line for line in lines if not line.startswith("Progress ")))


def _read(output: IO[str], lines: "deque[str]") -> None:
    with output:
        for line in output:
            if line.strip():
                lines.append(line.rstrip())


def _watch(process: "subprocess.Popen[str]", lines: "deque[str]") -> None:
    """Waits for the end; on a terminal one line is rewritten each second, elsewhere a line comes at each heartbeat."""
    live = sys.stderr.isatty()
    pause = 1.0 if live else HEARTBEAT_SECONDS
    width = shutil.get_terminal_size().columns - 1
    start = time.monotonic()
    while True:
        try:
            process.wait(timeout=pause)
        except subprocess.TimeoutExpired:
            words = f"  {time.monotonic() - start:4.0f} s  {activity(tuple(lines))}"
            shown, end = (f"\r{words[:width]:<{width}}", "") if live else (words, "\n")
            print(shown, end=end, file=sys.stderr, flush=True)
        else:
            if live:
                print(f"\r{'':<{width}}\r", end="", file=sys.stderr, flush=True)
            return


def activity(lines: Sequence[str]) -> str:
    """What the command is at, from its last lines: pip's raw progress is read as megabytes of the file before it."""
    if not lines:
        return "working"
    progress = re.fullmatch(r"Progress (\d+) of (\d+)", lines[-1].strip())
    said = (line.strip() for line in reversed(lines) if not line.startswith(("Progress ", "WARNING")))
    words = next(said, "working")
    words = words if len(words) <= ACTIVITY_WIDTH else words[: ACTIVITY_WIDTH - 1] + "…"
    if progress:
        done, total = (int(number) / 1e6 for number in progress.groups())
        return f"{words} - {done:.0f} of {total:.0f} MB"
    return words


def likely_cause(tail: Sequence[str]) -> str:
    """A hint for a failed download or installation, from what it printed; "" where nothing is recognised."""
    text = "\n".join(tail).lower()
    for pattern, hint in _CAUSES:
        if re.search(pattern, text):
            return hint
    return ""


NO_NETWORK = "The network could not be reached. Check the connection or the proxy, then run the same command again."
_CAUSES = (
    (r"no space left|errno 28", "The disk is full. Free some space, then run the same command again."),
    (
        r"name or service not known|name resolution|getaddrinfo|failed to resolve|could not resolve|newconnectionerror"
        r"|network is unreachable|connection refused|timed out|max retries",
        NO_NETWORK,
    ),
    (
        r"certificate verify failed|ssl",
        "A certificate was refused. Behind a company proxy, set PIP_CERT to its certificate, then run this again.",
    ),
    (
        r"permission denied|errno 13",
        "A file could not be written. Check who owns the folder, then run the command again.",
    ),
    (
        r"could not get lock|is another process using it",
        "Another program is installing packages. Wait for it to end, then run the same command again.",
    ),
    (
        r"no matching distribution|could not find a version",
        "No package fits this Python or system. Python 3.11 to 3.13 on x86_64 or arm64 is known to work.",
    ),
)
