"""RAM while loading and after: no more than rests there and one shard, and all of it back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.memory_probe import SHARD
from tests.engine.tiny_models import write_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these figures come from /proc")

MIB = 2**20
SLACK = 12 * MIB
SIZES = {"hidden_size": 512, "intermediate_size": 2048, "head_dim": 128, "num_hidden_layers": 6}
MIXTURE = {"hidden_size": 512, "intermediate_size": 1536, "head_dim": 128, "num_local_experts": 8}
"""Four layers, whose experts take 36 and 18 MB merged in bf16."""


def _misshape(model: Any) -> None:
    model.model.norm.weight = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, model_folder: Callable[[str], Path]) -> dict[str, int]:
    """What memory did in a fresh process, with 48 MiB of bf16 in shards of 8."""
    root = tmp_path_factory.mktemp("memory")
    model = write_model(root / "model", "llama", shard="8MB", **SIZES)
    broken = write_model(root / "broken", "llama", change=_misshape, **SIZES)
    mixture = write_model(root / "mixture", "mixtral", shard="8MB", **MIXTURE)
    folders = map(str, (model, broken, model_folder("mixtral"), mixture))
    ran = subprocess.run(
        [sys.executable, "-m", "tests.engine.memory_probe", *folders],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    read: dict[str, int] = json.loads(ran.stdout.splitlines()[-1])
    return read


def test_a_cast_needs_the_result_and_one_shard(found: dict[str, int]) -> None:
    """float32 from bf16 files: the source's pages go while the result grows."""
    assert found["cast rests"] > 90 * MIB
    assert found["cast peak"] <= found["cast rests"] + SHARD + SLACK


def test_merging_experts_needs_the_result_and_one_shard(found: dict[str, int]) -> None:
    """Part by part: stacked and put side by side by the library they would take three times a layer's experts."""
    assert found["merged rests"] > 140 * MIB
    assert found["merged peak"] <= found["merged rests"] + SHARD + SLACK


def test_unchanged_weights_are_views_of_their_files(found: dict[str, int]) -> None:
    """In the files' own dtype nothing is copied; the probe ends with an error unless each layer says so."""
    assert found["views"] > 0
    assert found["views held"] < SLACK


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cancelled_memory_comes_back(dtype: str, found: dict[str, int]) -> None:
    """H16: cancelled at half; what had been read ahead goes too, though the error is still held."""
    assert found[f"{dtype} cancelled 1"] < SLACK
    assert found[f"{dtype} views"] == 0
    assert found[f"{dtype} context"] == 0


def test_many_cancelled_loads_leave_no_more_than_one(found: dict[str, int]) -> None:
    """H16: threads that read weights leave nothing in arenas of their own, however often they are made."""
    assert found["float32 most"] > 32 * MIB
    assert found["float32 cancelled 8"] < SLACK


def test_failed_memory_comes_back(found: dict[str, int]) -> None:
    """H16: the norm has another shape; the other weights had been loaded."""
    assert found["failed"] < SLACK


def test_unloading_says_what_came_back(found: dict[str, int]) -> None:
    """B10: measured, and all of it."""
    assert found["cast returned"] == pytest.approx(found["cast rests"], rel=0.2)
    assert found["cast left"] < SLACK
