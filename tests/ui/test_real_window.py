"""End to end: the real window, the real engine process, a gigabyte of weights, and kills in the middle of a load."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.engine, pytest.mark.skipif(sys.platform == "win32", reason="kills by POSIX signals")]

PATIENCE = 120.0


class RealWindow:
    """The child, and what it tells."""

    def __init__(self, folder: Path, story: str, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.ui.real_window", str(folder), story],
            stdout=subprocess.PIPE,
            env={**os.environ, "LAYERLIGHT_HOME": str(home), "QT_QPA_PLATFORM": "offscreen"},
        )

    def told(self) -> Iterator[dict[str, object]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()


Start = Callable[[str], RealWindow]


@pytest.fixture
def start(tmp_path: Path, gigabyte_folder: Path) -> Iterator[Start]:
    started: list[RealWindow] = []

    def begin(story: str) -> RealWindow:
        started.append(RealWindow(gigabyte_folder, story, tmp_path))
        return started[-1]

    yield begin
    for each in started:
        each.end()


def gone(pid: object, within: float = 5.0) -> bool:
    """Whether this process ends within so many seconds."""
    try:
        psutil.Process(int(str(pid))).wait(within)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True


def test_an_engine_killed_while_loading_is_replaced_and_the_window_answers(start: Start) -> None:
    """F13, H16, D06: one clear word, then the same window loads and answers; it ends with 0 and leaves no process."""
    window = start("engine-killed")
    told = list(window.told())
    assert [key for each in told for key in each if key in ("loading", "died", "loaded", "tokens")] == [
        "loading", "died", "loaded", "loaded", "tokens",
    ]  # fmt: skip
    first, death, loaded, answer = told
    assert death["loaded"] is None
    assert death["title"]
    assert loaded["engine"] != first["loading"]
    assert answer["tokens"] == 3
    assert window.process.wait(PATIENCE) == 0
    assert gone(first["loading"])
    assert gone(loaded["engine"])


def test_a_window_killed_while_loading_leaves_no_engine(start: Start) -> None:
    window = start("left-loading")
    engine = next(window.told())["loading"]
    window.process.send_signal(signal.SIGKILL)
    window.process.wait(PATIENCE)
    assert gone(engine)


def test_a_window_closed_while_loading_ends_with_zero(start: Start) -> None:
    """H01."""
    window = start("closed")
    told = list(window.told())
    assert window.process.wait(PATIENCE) == 0
    assert list(told[0]) == ["loading"]
    assert gone(told[0]["loading"])
