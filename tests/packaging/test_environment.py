"""The steps of a set-up with a fake pip: what is asked of it, what a failure says, what a second start costs."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import command
import environment
import pytest
import system_libraries
import torch_build
from environment import CONSTRAINTS, ROOT, Environment
from steps import StepFailed, run_steps

LINUX = torch_build.SystemFacts("Linux", "x86_64")


class FakeCommands:
    """Stands in for every command: makes a python for venv, and fails where a word of `fails` appears."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[list[str]] = []
        self.fails: dict[str, str] = {}

    def run(self, argv: list[str], env: object = None) -> command.Outcome:
        self.calls.append(argv)
        if "venv" in argv:
            python = Environment(self.folder, print).python
            python.parent.mkdir(parents=True, exist_ok=True)
            python.touch()
        for word, error in self.fails.items():
            if word in argv:
                return command.Outcome(1, ("Collecting things", f"ERROR: {error}"))
        return command.Outcome(0, ())

    def pip(self) -> list[list[str]]:
        """What pip was asked for, without the arguments that are always there."""
        return [argv[argv.index("--progress-bar") + 2 :] for argv in self.calls if "pip" in argv]


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCommands:
    fake = FakeCommands(tmp_path / ".venv")
    monkeypatch.setattr(command, "run_command", fake.run)
    monkeypatch.setattr(torch_build, "read_facts", lambda: LINUX)
    monkeypatch.setattr(system_libraries, "missing_for", lambda files: ())
    monkeypatch.setattr(system_libraries, "missing_for_tests", lambda: ())
    monkeypatch.setattr(Environment, "_check_disk", lambda self, name, gib: None)
    monkeypatch.setattr(Environment, "_is_sound", lambda self: False)
    return fake


def set_up(commands: FakeCommands, wish: str | None = None, tests: bool = False, window: bool = True) -> int:
    made = Environment(commands.folder, print)
    return run_steps(made.steps(wish, tests, window), made.ledger, print)


def test_a_first_start_makes_everything_in_order(commands: FakeCommands) -> None:
    assert set_up(commands) == 4
    assert commands.calls[0] == [sys.executable, "-m", "venv", "--clear", str(commands.folder)]
    assert commands.pip() == [
        ["torch==2.13.0+cpu"],
        ["hatchling", "editables"],
        ["--no-build-isolation", "-e", str(ROOT)],
    ]


def test_every_install_keeps_to_the_pins_and_to_the_environment(commands: FakeCommands) -> None:
    set_up(commands, tests=True)
    python = str(Environment(commands.folder, print).python)
    for argv in commands.calls[1:]:
        assert argv[:7] == [python, "-I", "-m", "pip", "install", "-c", str(CONSTRAINTS)]


def test_a_second_start_runs_no_command_and_reads_no_gpu(
    commands: FakeCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(commands)

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a second start must start nothing")

    monkeypatch.setattr(command, "run_command", forbidden)
    monkeypatch.setattr(torch_build, "read_facts", forbidden)
    monkeypatch.setattr(system_libraries, "missing_for", forbidden)
    monkeypatch.setattr(subprocess, "Popen", forbidden)
    assert set_up(commands) == 0
    assert set_up(commands, window=False) == 0


@pytest.mark.parametrize(
    ("word", "step", "asked_before"),
    [("venv", "Step 1 of 4", 0), ("hatchling", "Step 3 of 4", 1), (str(ROOT), "Step 3 of 4", 1)],
)
def test_a_failed_step_is_named_and_the_next_run_resumes(
    commands: FakeCommands, word: str, step: str, asked_before: int
) -> None:
    commands.fails = {word: "No space left on device"}
    with pytest.raises(StepFailed, match=step) as raised:
        set_up(commands)
    assert "disk is full" in raised.value.hint
    assert "No space left" in raised.value.reason
    done = len(Environment(commands.folder, print).ledger.read())
    commands.fails, commands.calls = {}, []
    assert set_up(commands) == 4 - done
    assert len(commands.pip()) == 3 - asked_before


def test_the_cpu_build_is_looked_for_until_it_is_found(commands: FakeCommands) -> None:
    commands.fails = {"torch==2.13.0+cpu": "No matching distribution found for torch==2.13.0+cpu"}
    set_up(commands)
    assert [asked[0] for asked in commands.pip()[:3]] == ["torch==2.13.0+cpu", "torch==2.13.0+cpu", "torch==2.13.0"]


def test_without_a_network_the_first_answer_is_enough(commands: FakeCommands) -> None:
    commands.fails = {"torch==2.13.0+cpu": "Temporary failure in name resolution"}
    with pytest.raises(StepFailed, match=r"Step 2 of 4 \(torch 2.13.0\)") as raised:
        set_up(commands)
    assert raised.value.hint == command.NO_NETWORK
    assert len(commands.pip()) == 1


def test_a_gpu_build_that_is_not_to_be_had_stops_there(commands: FakeCommands) -> None:
    commands.fails = {"torch==2.13.0+cu130": "No matching distribution found"}
    with pytest.raises(StepFailed, match="the cuda build"):
        set_up(commands, wish="cuda")
    assert all("cu130" in " ".join(asked) for asked in commands.pip())


def test_a_wished_build_is_kept_until_another_is_wished(commands: FakeCommands) -> None:
    set_up(commands, wish="cuda")
    commands.calls = []
    assert set_up(commands) == 0
    assert set_up(commands, wish="cuda") == 0
    assert set_up(commands, wish="cpu") == 1
    assert commands.pip() == [["torch==2.13.0+cpu"]]
    assert set_up(commands) == 0


def test_a_build_that_does_not_exist_is_a_failed_step(commands: FakeCommands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_build, "read_facts", lambda: torch_build.SystemFacts("Darwin", "x86_64"))
    with pytest.raises(StepFailed, match="Intel Macs"):
        set_up(commands)


def test_the_tests_add_their_tools_to_the_same_environment(commands: FakeCommands) -> None:
    set_up(commands)
    commands.calls = []
    assert set_up(commands, tests=True, window=False) == 2
    assert commands.pip()[-1] == ["--no-build-isolation", "-e", f"{ROOT}[test]"]
    assert set_up(commands, tests=True, window=False) == 0


def test_another_python_makes_the_environment_and_all_in_it_anew(
    commands: FakeCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(commands)
    clear = commands.run

    def cleared(argv: list[str], env: object = None) -> command.Outcome:
        if "--clear" in argv:
            Environment(commands.folder, print).ledger.forget()
        return clear(argv, env)

    monkeypatch.setattr(command, "run_command", cleared)
    monkeypatch.setattr(environment, "python_key", lambda: "3.99")
    assert set_up(commands) == 4


def test_a_lost_interpreter_is_noticed(commands: FakeCommands) -> None:
    set_up(commands)
    Environment(commands.folder, print).python.unlink()
    assert set_up(commands) == 4


@pytest.mark.parametrize("window", [True, False])
def test_missing_libraries_stop_a_window_but_not_a_terminal_command(
    commands: FakeCommands, monkeypatch: pytest.MonkeyPatch, window: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(system_libraries, "missing_for", lambda files: ("libxcb-cursor.so.0",))
    monkeypatch.setattr(system_libraries, "this_distribution", lambda: system_libraries.Distribution("apt-get"))
    monkeypatch.setattr(system_libraries, "is_root", lambda: False)
    line = "sudo apt-get install -y --no-install-recommends libxcb-cursor0"
    if window:
        with pytest.raises(StepFailed, match=line):
            set_up(commands)
    else:
        assert set_up(commands, window=False) == 3
        assert line in capsys.readouterr().out
        assert set_up(commands, window=False) == 0


@pytest.mark.parametrize("root", [True, False])
def test_a_python_without_ensurepip_gets_it_or_the_command_for_it(
    commands: FakeCommands, monkeypatch: pytest.MonkeyPatch, root: bool
) -> None:
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else name)
    monkeypatch.setattr(system_libraries, "this_distribution", lambda: system_libraries.Distribution("apt-get"))
    monkeypatch.setattr(system_libraries, "is_root", lambda: root)
    package = f"python3.{sys.version_info.minor}-venv"
    if root:
        set_up(commands)
        assert commands.calls[0] == ["apt-get", "install", "-y", "--no-install-recommends", package]
    else:
        with pytest.raises(StepFailed, match=f"sudo apt-get install -y --no-install-recommends {package}"):
            set_up(commands)


def test_a_disk_too_small_is_said_before_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = SimpleNamespace(free=1 << 30)
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(StepFailed, match=r"1\.0 GiB free"):
        Environment(tmp_path, print)._check_disk("cpu", torch_build.CPU_BUILD_GIB)
