"""What tests keep between runs is made by one process at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import making_what_is_kept

ANOTHER = """
import sys
from filelock import FileLock, Timeout
try:
    with FileLock(sys.argv[1], timeout=0):
        print("enters")
except Timeout:
    print("waits")
"""


def another(lock: Path) -> str:
    """What another process can do while this one is where it is."""
    done = subprocess.run([sys.executable, "-c", ANOTHER, str(lock)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_while_one_makes_it_the_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYERLIGHT_TEST_CACHE", str(tmp_path / "cache"))
    with making_what_is_kept() as kept:
        (lock,) = kept.iterdir()
        assert another(lock) == "waits"
    assert another(lock) == "enters"


def test_one_that_fails_lets_the_others_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYERLIGHT_TEST_CACHE", str(tmp_path))
    with pytest.raises(OSError, match="full"), making_what_is_kept():
        raise OSError("disk full")
    assert another(tmp_path / "making.lock") == "enters"
