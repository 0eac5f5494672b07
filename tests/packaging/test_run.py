"""run.py: its own arguments, the display, and how Layerlight is started."""

import ast
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import run
from environment import ROOT

SCRIPTS = ("run.py", "test.py")


@pytest.mark.parametrize(
    ("arguments", "wish", "rest"),
    [
        ([], None, []),
        (["devices"], None, ["devices"]),
        (["--torch", "cuda"], "cuda", []),
        (["--torch=rocm", "plan", "folder", "--json"], "rocm", ["plan", "folder", "--json"]),
        (["run", "folder", "--torch", "cuda"], None, ["run", "folder", "--torch", "cuda"]),
        (["--version"], None, ["--version"]),
        (["--torch", "cpu", "--torch", "xpu"], "xpu", []),
    ],
)
def test_only_what_stands_first_is_for_the_starter(arguments: list[str], wish: str | None, rest: list[str]) -> None:
    assert run.parse(arguments) == (wish, rest)


@pytest.mark.parametrize("arguments", [["--torch"], ["--torch", "metal"], ["--torch="], ["--torch", "devices"]])
def test_an_unknown_build_is_a_bad_request(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(arguments) == 2
    assert "cpu, cuda, rocm, xpu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environ", "platform", "word"),
    [
        ({}, "linux", "neither DISPLAY nor WAYLAND_DISPLAY"),
        ({"DISPLAY": ""}, "linux", "neither"),
        ({"DISPLAY": ":94783"}, "linux", "nothing answers"),
        ({"DISPLAY": "unix:94783.0"}, "linux", "nothing answers"),
        ({"DISPLAY": "far.example:0"}, "linux", ""),
        ({"DISPLAY": "localhost:10.0"}, "linux", ""),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", ""),
        ({"QT_QPA_PLATFORM": "offscreen"}, "linux", ""),
        ({}, "darwin", ""),
        ({}, "win32", ""),
    ],
)
def test_whether_a_window_can_be_shown(environ: dict[str, str], platform: str, word: str) -> None:
    said = run.no_display(environ, platform)
    assert word in said
    assert bool(said) == bool(word)


@pytest.mark.skipif(sys.platform != "linux", reason="X11's abstract sockets are Linux's")
def test_a_display_that_answers_is_one() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind("\0/tmp/.X11-unix/X94784")
        server.listen()
        assert run.no_display({"DISPLAY": ":94784"}, "linux") == ""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would be run; the set-up itself counts as done."""
    calls: list[list[str]] = []
    monkeypatch.setattr(run, "run_steps", lambda steps, ledger, say: 0)
    monkeypatch.setattr(os, "execv", lambda path, argv: calls.append(argv))
    monkeypatch.setattr(subprocess, "Popen", _Nothing)
    return calls


class _Nothing:
    """A process that ends at once, for the way Windows starts."""

    def __init__(self, argv: list[str]) -> None: ...

    def __enter__(self) -> "_Nothing":
        return self

    def __exit__(self, *_: object) -> None: ...

    def wait(self) -> int:
        return 0


posix = pytest.mark.skipif(os.name != "posix", reason="execv replaces the process on POSIX only")


@posix
@pytest.mark.parametrize("arguments", [["devices", "--json"], ["--version"], ["run", "a folder", "--prompt", "x y"]])
def test_a_command_is_passed_on_word_for_word(started: list[list[str]], arguments: list[str]) -> None:
    run.main(arguments)
    python = str(ROOT / ".venv" / "bin" / "python")
    assert started == [[python, "-P", "-m", "layerlight", *arguments]]


@posix
def test_without_a_display_the_demo_runs_and_says_why(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "no_display", lambda environ: "There is no display here.")
    run.main([])
    assert started[0][-1] == "demo"
    captured = capsys.readouterr()
    assert "There is no display here." in captured.err
    assert captured.out == ""


@posix
def test_with_a_display_the_window_starts(started: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "no_display", lambda environ: "")
    run.main([])
    assert started[0][-1] == "layerlight"


def test_a_failed_set_up_starts_nothing_and_says_how_to_go_on(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> int:
        raise run.StepFailed("Step 2 of 4 (torch 2.13.0) failed: no wheel")

    monkeypatch.setattr(run, "run_steps", fail)
    assert run.main(["devices"]) == 1
    said = capsys.readouterr().err
    assert "Step 2 of 4" in said
    assert "goes on with this step" in said
    assert started == []


@posix
@pytest.mark.parametrize("script", SCRIPTS)
def test_ctrl_c_is_130_and_one_sentence(script: str) -> None:
    code = (
        "import runpy, sys, steps\n"
        "def stop(*_): raise KeyboardInterrupt\n"
        "steps.run_steps = stop\n"
        f"sys.argv = [{script!r}, 'x']\n"
        f"runpy.run_path({str(ROOT / 'packaging' / script)!r}, run_name='__main__')\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "packaging")}
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 130
    assert "Stopped" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_old_python_reads_far_enough_to_say_so(script: str) -> None:
    source = (ROOT / "packaging" / script).read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 7))
    first = [node for node in tree.body if not isinstance(node, ast.Expr)][:2]
    assert isinstance(first[0], ast.Import)
    assert isinstance(first[1], ast.If), "the version must be checked before anything else is imported"
    assert "3.11" in ast.unparse(first[1])


def test_the_set_up_needs_nothing_but_the_standard_library() -> None:
    own = {path.stem for path in (ROOT / "packaging").glob("*.py")} - {"screenshots"}  # drives the window itself
    for path in (ROOT / "packaging" / f"{stem}.py" for stem in own):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in own | sys.stdlib_module_names, f"{path.name} imports {name}"


def test_packaging_stays_a_folder_and_no_package() -> None:
    # With an __init__.py it would hide the library called packaging from everything started in the checkout.
    assert not (ROOT / "packaging" / "__init__.py").exists()
    with tempfile.TemporaryDirectory() as elsewhere:
        code = "import packaging; print(packaging.__file__)"
        for folder in (str(ROOT), elsewhere):
            where = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
            assert "site-packages" in Path(where.stdout.strip()).parts
