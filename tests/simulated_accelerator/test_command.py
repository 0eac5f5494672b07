"""`python -m tests.simulated_accelerator`: terminal commands and the engine process on simulated devices."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layerlight.core.messages import (
    DevicesSurveyed,
    EngineStarted,
    QuitRequest,
    SurveyRequest,
    decode_event,
    encode,
)
from tests.engine.conftest import model_folder  # noqa: F401  (a fixture)
from tests.engine.tiny_models import plain_tokens
from tests.simulated_accelerator.__main__ import main

pytestmark = [pytest.mark.engine, pytest.mark.simulated, pytest.mark.usefixtures("simulator_built")]
MIB = 1 << 20
COMMAND = [sys.executable, "-m", "tests.simulated_accelerator"]
ROOT = Path(__file__).parents[2]


def _json(*words: str) -> Any:
    done = subprocess.run([*COMMAND, *words], capture_output=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_terminal_command_sees_the_devices() -> None:
    answer = _json("--devices", "64MiB,48MiB", "--unified", "--", "devices", "--json")
    found = [(each["id"], each["total"], each["shares_memory_with"]) for each in answer["devices"]]
    assert found[:2] == [("sim:0", 64 * MIB, "cpu"), ("sim:1", 48 * MIB, "cpu")]


def test_a_model_is_run_over_two_devices(model_folder: Callable[[str], Path]) -> None:  # noqa: F811
    folder = str(model_folder("llama"))
    run = [
        "run",
        folder,
        "--prompt",
        "Hello",
        "--max-new-tokens",
        "4",
        "--temperature",
        "0",
        "--context",
        "64",
        "--json",
    ]
    limits = ["--limit", "cpu=0", "--limit", "disk=0", "--dtype", "fp32"]
    answer = _json("--devices", "600KiB,600KiB", "--", *run, *limits)
    assert {placement["rests_on"] for placement in answer["placements"]} == {"sim:0", "sim:1"}
    assert answer["tokens"] == plain_tokens(model_folder("llama"), "Hello", "float32", 4)


def test_accelerate_s_own_map_is_run_over_two_devices(model_folder: Callable[[str], Path]) -> None:  # noqa: F811
    """accelerate knows no such device: its map comes back in our names, and is loaded as it says."""
    folder = str(model_folder("llama"))
    run = [
        "run",
        folder,
        "--prompt",
        "Hello",
        "--max-new-tokens",
        "4",
        "--temperature",
        "0",
        "--context",
        "64",
        "--json",
    ]
    answer = _json("--devices", "2MiB,2MiB", "--", *run, "--dtype", "fp32", "--strategy", "balanced")
    assert {placement["rests_on"] for placement in answer["measured"]["placements"]} == {"sim:0", "sim:1"}
    assert answer["measured"]["bytes"] == {place: size for place, size in answer["predicted"]["bytes"].items() if size}
    assert answer["tokens"] == plain_tokens(model_folder("llama"), "Hello", "float32", 4)


def test_the_engine_process_answers_with_the_devices() -> None:
    with subprocess.Popen(
        [*COMMAND, "--devices", "64MiB", "--", "--engine-host"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as engine:
        assert engine.stdin is not None
        assert engine.stdout is not None
        engine.stdin.write(encode(SurveyRequest()))
        engine.stdin.flush()
        events = map(decode_event, engine.stdout)
        assert isinstance(next(events), EngineStarted)
        surveyed = next(event for event in events if isinstance(event, DevicesSurveyed))
        engine.stdin.write(encode(QuitRequest()))
        engine.stdin.flush()
        assert engine.wait(timeout=30) == 0
    (device,) = surveyed.machine.accelerators
    assert (device.id, device.total, device.shares_memory_with) == ("sim:0", 64 * MIB, None)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--", "devices"], "--devices"),
        (["--devices", "6Gb", "--", "devices"], "names bits"),
        (["--devices", "", "--", "devices"], "can't be read as a size"),
        (["--devices", ",".join(["1MiB"] * 17), "--", "devices"], "17 devices are more than 16"),
        (["--devices", "1MiB", "--surprise", "--", "devices"], "--surprise"),
    ],
)
def test_a_bad_request_of_its_own_ends_with_2(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err
