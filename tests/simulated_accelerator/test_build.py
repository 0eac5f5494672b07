"""The build: once per source and torch, by one builder at a time, and a clear word where there is no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulated_accelerator import NoCompiler, build

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(sys.platform == "win32", reason="the simulated accelerator is not built on Windows"),
]
ROOT = Path(__file__).parents[2]
COMPILER = """#!/bin/sh
echo x >> {log}
while [ "$1" != -o ]; do shift; done
{then}
"""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the compiler that writes a line for each time it is run; the cache is empty."""
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", f"{tmp_path / 'c++'} -stand-in")
    _write(tmp_path, 'echo built > "$2"')
    return tmp_path / "log"


def _write(folder: Path, then: str) -> None:
    program = folder / "c++"
    program.write_text(COMPILER.format(log=folder / "log", then=then))
    program.chmod(0o755)


def test_it_is_built_once(compiler: Path) -> None:
    first, again = build.library(), build.library()
    assert first == again
    assert first.read_text() == "built\n"
    assert compiler.read_text().count("x") == 1


def test_another_source_is_built_anew(compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build.library()
    changed = tmp_path / "changed.cpp"
    changed.write_text(build.SOURCE.read_text("utf-8") + "\n")
    monkeypatch.setattr(build, "SOURCE", changed)
    assert build.library() != first
    assert compiler.read_text().count("x") == 2


def test_builders_at_the_same_time_build_once(compiler: Path) -> None:
    words = [sys.executable, "-c", "from tests.simulated_accelerator.build import library; print(library())"]
    builders = [subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert len({each.communicate(timeout=60)[0] for each in builders}) == 1
    assert [each.returncode for each in builders] == [0, 0, 0]
    assert compiler.read_text().count("x") == 1


def test_a_failed_build_is_told_and_leaves_nothing(compiler: Path, tmp_path: Path) -> None:
    _write(tmp_path, 'echo half > "$2"; echo "error: no such operator" >&2; exit 1')
    with pytest.raises(RuntimeError, match="no such operator"):
        build.library()
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".lock"]


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompiler, match=r"needs a C\+\+ compiler"):
        build.library()


@pytest.mark.parametrize(("ci", "word", "code"), [("", "1 skipped", 0), ("true", "1 error", 1)])
def test_tests_skip_without_a_compiler_but_not_in_ci(tmp_path: Path, ci: str, word: str, code: int) -> None:
    one = "tests/simulated_accelerator/test_memory.py::test_the_peak_stays_until_it_is_reset"
    plain = {name: value for name, value in os.environ.items() if name not in ("CXX", "CI")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", one],
        env=plain | {"PATH": str(tmp_path), "CI": ci, build.CACHE_VARIABLE: str(tmp_path)},
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    assert word in done.stdout
    assert "the simulated accelerator needs a C++ compiler" in done.stdout
