"""The program as a process: it starts without torch, ends with code 0 and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("fake_engine.py")

START = """
import json, os, sys, threading
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from layerlight.ui import app, program
from layerlight.ui.window import Window
from tests import fakes

mode, when = sys.argv[1], sys.argv[2]
model = fakes.starter()
assemble = program.assemble

def told(what):
    sys.stdout.write(json.dumps(what) + "\\n")
    sys.stdout.flush()

def assembled(*parts):
    made = yield from assemble(*parts)
    session = made.session
    session._inspector._inspect_model = lambda folder: model
    def heard(state, event):
        name = type(event).__name__
        told({"event": name, "engine": made.link.pid})
        if name == "DevicesSurveyed" and state.engine_warm and state.model is None:
            session.open_folder(model.folder)
        if name == "Planned" and state.engine_warm and not session.busy and state.loaded is None:
            QTimer.singleShot(0, session.load)
        if name == when:
            QTimer.singleShot(0, made.window.close)
        if name == "ModelLoaded" and when == "TextProduced":
            session.ask("Where?")
    session.changed.connect(heard)
    return made

program.assemble = assembled
watchdog = threading.Timer(40, lambda: os._exit(9))  # a hang is a failure, not a wait
watchdog.daemon = True
watchdog.start()
code = app.main((), [sys.executable, os.environ["FAKE_ENGINE"], mode])
told({"code": code, "modules": sorted(name for name in ("torch", "transformers", "pyqtgraph") if name in sys.modules)})
sys.exit(code)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


class Child:
    """The program in a process of its own, on the fake engine."""

    def __init__(self, home: Path, mode: str, when: str) -> None:
        environment = {
            **os.environ, "QT_QPA_PLATFORM": "offscreen", "LAYERLIGHT_HOME": str(home), "FAKE_ENGINE": str(FAKE),
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", START, mode, when],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True, cwd=ROOT,
        )  # fmt: skip
        self.engines: set[int] = set()

    def wait_for(self, event: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            if told.get("engine"):
                self.engines.add(told["engine"])
            if told.get("event") == event:
                return
        raise AssertionError(f"{event} never came: {self.process.stderr.read() if self.process.stderr else ''}")

    def finish(self) -> tuple[int, dict[str, object], str]:
        """(exit code, its last word, what it wrote to stderr)."""
        out, errors = self.process.communicate(timeout=60)
        told = [json.loads(line) for line in out.splitlines()]
        self.engines |= {each["engine"] for each in told if each.get("engine")}
        return self.process.returncode, told[-1] if told else {}, errors

    def assert_no_process_left(self) -> None:
        assert self.engines
        end = time.monotonic() + 5
        while any(psutil.pid_exists(pid) for pid in self.engines) and time.monotonic() < end:
            time.sleep(0.02)  # other processes: nothing tells us of their end
        assert not [pid for pid in self.engines if psutil.pid_exists(pid)]


@pytest.fixture
def children() -> Iterator[list[Child]]:
    made: list[Child] = []
    yield made
    for child in made:
        if child.process.poll() is None:
            child.process.kill()
            child.process.communicate()


@pytest.mark.parametrize(
    ("mode", "when"),
    [("good", "EngineWarmed"), ("slow", "LoadProgressed"), ("deaf", "LoadProgressed"), ("good", "TextProduced")],
)
def test_closing_at_any_moment_ends_with_code_0_and_no_process(
    home: Path, children: list[Child], mode: str, when: str
) -> None:
    """H01, H02: at rest, in the middle of a load, with a deaf engine, in the middle of an answer."""
    child = Child(home, mode, when)
    children.append(child)
    code, last, errors = child.finish()
    assert (code, errors) == (0, "")
    assert last["modules"] == []
    child.assert_no_process_left()
    assert (home / "config" / "settings.json").exists()


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_signal_closes_the_window(home: Path, children: list[Child]) -> None:
    child = Child(home, "slow", "never")
    children.append(child)
    child.wait_for("LoadProgressed")
    child.process.send_signal(signal.SIGTERM)
    code, _, errors = child.finish()
    assert (code, errors) == (0, "")
    child.assert_no_process_left()


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_killed_window_leaves_no_engine(home: Path, children: list[Child]) -> None:
    child = Child(home, "slow", "never")
    children.append(child)
    child.wait_for("LoadProgressed")
    child.process.kill()
    child.process.communicate()
    child.assert_no_process_left()


@pytest.mark.parametrize("text", ["", "{", '{"theme": 3, "temperature": "hot"}', "[]"])
def test_broken_settings_do_not_keep_it_from_starting(home: Path, children: list[Child], text: str) -> None:
    """H08."""
    (home / "config").mkdir(parents=True)
    (home / "config" / "settings.json").write_text(text)
    child = Child(home, "good", "EngineWarmed")
    children.append(child)
    code, _, errors = child.finish()
    assert (code, errors) == (0, "")
    assert list((home / "config").glob("settings.json.broken-*"))
    assert isinstance(json.loads((home / "config" / "settings.json").read_text()), dict)


SOAK = """
import sys
from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtWidgets import QApplication
app = QApplication([])
from layerlight.ui.chat_panel import Entry
from layerlight.ui.controls import label
from layerlight.ui.prose import Prose

class Teller(QObject):
    told = Signal(object)

class Hearer(QObject):
    count = 0
    @Slot(object)
    def hear(self, _event):
        self.count += 1

teller, hearer = Teller(), Hearer()
teller.told.connect(hearer.hear)
before = [sys.getrefcount(each) for each in (None, True, False)]
for n in range(20_000):
    teller.told.emit(n)
words, prose, entry = label("x"), Prose(), Entry()
for n in range(40_000):
    words.setText(str(n % 7)); words.setVisible(False); words.setObjectName("x"); entry.setEnabled(True); prose.update()
after = [sys.getrefcount(each) for each in (None, True, False)]
lost = [a - b for a, b in zip(before, after) if b < 10**9]
assert hearer.count == 20_000
assert all(each < 1_000 for each in lost), lost
"""


def test_20000_signals_and_200000_widget_calls_lose_no_reference() -> None:
    """X01: a Qt binding that loses a reference with each call ends the process after some thousand of them."""
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    ended = subprocess.run(
        [sys.executable, "-c", SOAK],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_importing_the_program_does_nothing_and_pulls_no_heavy_library() -> None:
    code = (
        "import sys, layerlight.ui.app; from PySide6.QtWidgets import QApplication;"
        "assert QApplication.instance() is None;"
        "print(sorted({name.partition('.')[0] for name in sys.modules} &"
        " {'torch','transformers','accelerate','numpy','pyqtgraph','rich','safetensors'}))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.strip() == "[]"


def test_the_program_is_imported_in_small_pieces() -> None:
    """Each piece brings in few modules of ours beside itself, so that the window answers between them."""
    check = """
import importlib, sys
from layerlight.ui.parts import PARTS
from layerlight.ui import app
def ours():
    return {name for name in sys.modules if name.startswith("layerlight.")}
known = ours()
for part in PARTS:
    importlib.import_module(part)
    new, known = ours() - known, ours()
    if len(new) > 5:
        print(part, "brings in", sorted(new))
"""
    done = subprocess.run(
        [sys.executable, "-c", check],
        capture_output=True,
        text=True,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_all_that_opening_needs_is_among_the_pieces() -> None:
    check = """
import importlib, sys
from layerlight.ui import app
from layerlight.ui.parts import PARTS
for part in PARTS:
    importlib.import_module(part)
known = set(sys.modules)
from PySide6.QtWidgets import QApplication
from layerlight.core.folders import own_folders
program = QApplication([])
opening = app.Opening(program, own_folders(), [sys.executable, "-c", "pass"])
opening.hurry()
print(sorted(name for name in set(sys.modules) - known if name.startswith("layerlight.")))
opening.window.close()
opening.finish()
"""
    done = subprocess.run(
        [sys.executable, "-c", check],
        capture_output=True,
        text=True,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


@pytest.mark.parametrize("shown", [True, False], ids=["seen", "opened minimised"])
def test_the_rest_is_put_together_after_the_first_paint_or_when_nobody_looks(shown: bool) -> None:
    check = f"""
import sys
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from layerlight.core.folders import own_folders
from layerlight.ui import app
program = QApplication([])
opening = app.Opening(program, own_folders(), [sys.executable, "-c", "pass"])
told = []
gather = app.gather
def end():
    opening.window.close()
    program.quit()
def gathered():
    told.append("imports")
    gather()
app.gather = gathered
opening.window.seen.connect(lambda: told.append("painted"))
opening.ready.connect(lambda _program: QTimer.singleShot(0, end))
if {shown}:
    opening.window.show()
opening.start()
program.exec()
print(told)
opening.finish()
"""
    done = subprocess.run(
        [sys.executable, "-c", check],
        capture_output=True,
        text=True,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
        timeout=60,
    )
    expected = ["painted", "imports"] if shown else ["imports"]
    assert (done.stdout.strip(), done.returncode) == (str(expected), 0), done.stderr
