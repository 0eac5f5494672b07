"""A gigabyte in bf16, loaded as float32 and cancelled: the memory is back within two seconds."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from layerlight.core.device import Budget, Device, Machine
from layerlight.core.inspection import inspect_folder
from layerlight.core.load_request import load_request
from layerlight.core.messages import Failed, LoadProgressed, ModelLoaded, StopRequest
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
from tests.engine.engine_process import EngineProcess

pytestmark = [pytest.mark.engine, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

MB = 10**6
GIB = 2**30


def anonymous(pid: int) -> int:
    """Bytes of a process's RAM that are no view of a file."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon"))


def test_a_cancelled_gigabyte_comes_back(gigabyte_folder: Path, tmp_path: Path) -> None:
    """H16, F13: cancelled once 500 MB have risen; after that the same model loads."""
    machine = Machine((Device("cpu", "cpu", "RAM", 16 * GIB, 16 * GIB),))
    model = inspect_folder(gigabyte_folder)
    request = load_request(make_plan(model, machine, Budget(context=64), Wishes(dtype="float32")))
    engine = EngineProcess(tmp_path).warmed()
    try:
        pid = engine.process.pid
        warmed = anonymous(pid)
        engine.send(request)
        while anonymous(pid) < warmed + 500 * MB:
            assert isinstance(engine.wait_for(LoadProgressed, ModelLoaded), LoadProgressed), "loaded before the cancel"
        stopped_at = time.monotonic()
        engine.send(StopRequest())
        assert engine.wait_for(Failed).failure.stopped
        heard = time.monotonic() - stopped_at
        while anonymous(pid) > warmed + 50 * MB and time.monotonic() < stopped_at + 2:
            time.sleep(0.02)  # the kernel sends no word when memory has come back
        assert anonymous(pid) <= warmed + 50 * MB, f"cancel heard after {heard:.2f} s"
        engine.send(request)
        engine.wait_for(ModelLoaded)
    finally:
        engine.end()
