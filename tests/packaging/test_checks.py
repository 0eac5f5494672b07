"""test.py: every check is run and reported, and one failure is a failure."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace

import pytest
from environment import ROOT, Environment


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("checks_script", ROOT / "packaging" / "test.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def python(script: ModuleType, name: str, code: str) -> object:
    return script.Check(name, (sys.executable, "-c", code))


def test_a_failed_check_does_not_hide_the_others(script: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    wanted = [
        python(script, "one", "raise SystemExit(1)"),
        python(script, "two", "print('two was here')"),
        python(script, "three", "raise SystemExit(4)"),
    ]
    assert script.run_checks(wanted) == ["one", "three"]
    said = capfd.readouterr().out
    assert "== one: FAILED (exit code 1)" in said
    assert "two was here\n== two: passed" in said
    assert "== three: FAILED (exit code 4)" in said


@pytest.mark.parametrize(("failed", "code", "words"), [([], 0, "All 6 checks passed."), (["mypy"], 1, "Failed: mypy.")])
def test_the_exit_code_is_that_of_all_checks(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failed: list[str],
    code: int,
    words: str,
) -> None:
    monkeypatch.setattr(script, "run_steps", lambda steps, ledger, say: 0)
    monkeypatch.setattr(script, "run_checks", lambda wanted: failed)
    assert script.main([]) == code
    assert words in capsys.readouterr().out


def test_the_checks_are_the_projects_and_pytest_comes_last(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "usable_cores", lambda: 1)
    wanted = script.checks(Environment(ROOT / ".venv", print), ["tests/core", "-x"])
    assert [check.name for check in wanted] == [
        "ruff check", "ruff format", "mypy", "mypy packaging", "import contracts", "pytest",
    ]  # fmt: skip
    assert wanted[-1].argv[-3:] == ("pytest", "tests/core", "-x")


@pytest.mark.parametrize(("cores", "workers"), [(1, None), (2, "2"), (3, "3"), (64, "4")])
def test_the_files_are_spread_over_the_cores(script: ModuleType, cores: int, workers: str | None) -> None:
    expected = ["-n", workers, "--dist", "loadfile", "--no-loadscope-reorder"] if workers else []
    assert script.in_workers(["-x"], cores) == [*expected, "-x"]


@pytest.mark.parametrize(
    ("arguments", "spread"),
    [
        ("", True),
        ("tests/core tests/packaging/test_checks.py", True),
        ("tests/core", True),
        ("-k test_checks --durations=5 --no-header", True),
        ("tests/packaging/test_checks.py -x", False),
        ("tests/packaging/test_checks.py::test_a tests/packaging/test_checks.py::test_b[1]", False),
        ("-n 3", False),
        ("-n0 tests", False),
        ("--numprocesses=logical", False),
        ("--dist=load", False),
        ("-p no:xdist", False),
        ("tests --pdb", False),
        ("-s tests", False),
        ("--co", False),
    ],
)
def test_a_single_file_and_a_person_s_own_choice_stay(script: ModuleType, arguments: str, spread: bool) -> None:
    given = arguments.split()
    found = script.in_workers(given, 2)
    assert found[len(found) - len(given) :] == given
    assert (len(found) > len(given)) is spread


def test_a_process_held_to_one_core_runs_one(script: ModuleType) -> None:
    assert 1 <= script.usable_cores() <= (os.cpu_count() or 1)
    if not hasattr(os, "sched_setaffinity"):
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert script.usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(("given", "platform"), [({}, "offscreen"), ({"QT_QPA_PLATFORM": "xcb"}, "xcb")])
def test_the_tests_run_without_screen_or_network(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], platform: str
) -> None:
    seen: list[dict[str, str]] = []

    def fake(argv: Sequence[str], *, env: dict[str, str], **_: object) -> SimpleNamespace:
        seen.append(env)
        return SimpleNamespace(returncode=0)

    monkeypatch.delenv("QT_QPA_PLATFORM", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(subprocess, "run", fake)
    script.run_checks([script.Check("pytest", ("pytest",))])
    assert seen[0]["QT_QPA_PLATFORM"] == platform
    assert seen[0]["HF_HUB_OFFLINE"] == "1"
    assert seen[0]["CI"] == "true"


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
def test_ci_starts_the_same_checks() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "python3 packaging/test.py" in lines
    assert subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")], check=False).returncode == 0
