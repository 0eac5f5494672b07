"""Fixtures that tests of several wings share."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import platformdirs
import pytest
from filelock import FileLock
from hypothesis import settings

from layerlight.core.environment import engine_environment
from layerlight.core.errors import DownloadFailed
from layerlight.core.job import Job
from tests.simulated_accelerator import NoCompiler

os.environ.update(engine_environment(os.environ))  # before any test imports torch, as the engine process does
if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
    # the workers share the cores: threads beyond that wait for each other (the engine process chooses for itself)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))

settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI", "").lower() in ("true", "1"):
    settings.load_profile("ci")  # the same examples every time; people's machines try new ones


@contextmanager
def making_what_is_kept() -> Iterator[Path]:
    """The folder of what is kept between runs, for one process at a time: the others find it made."""
    kept = Path(os.environ.get("LAYERLIGHT_TEST_CACHE") or platformdirs.user_cache_path("layerlight-tests"))
    kept.mkdir(parents=True, exist_ok=True)
    with FileLock(kept / "making.lock"):
        yield kept


@pytest.fixture(scope="session")
def simulator_built() -> None:
    """Skips where the simulated accelerator can't be built; with CI=true that is a failure instead."""
    from tests.simulated_accelerator.build import library

    try:
        library()
    except NoCompiler as error:
        if os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail(f"CI must run every test, but {error}")
        pytest.skip(f"Skipped: {error}")


@pytest.fixture
def simulated(simulator_built: None) -> Iterator[Callable[..., ModuleType]]:
    """`simulated(devices=[64 << 20], unified=False)` gives `torch.sim` with these devices, until the test ends."""
    from tests.simulated_accelerator import install

    yield install
    from tests.simulated_accelerator import backend

    if any(backend.memory_allocated(index) for index in range(backend.device_count())):
        gc.collect()
    backend.uninstall()


@pytest.fixture(scope="session")
def starter_folder() -> Path:
    """The real starter model, fetched once and kept between runs below LAYERLIGHT_TEST_CACHE or the person's cache.

    Skips where it can't be fetched; with CI=true that is a failure instead.
    """
    from layerlight.engine.starter import SMOLLM2, make_starter

    try:
        with making_what_is_kept() as kept:
            return Path(make_starter(SMOLLM2, kept / "models", kept / "starter", Job(lambda event: None)))
    except DownloadFailed as failure:
        if os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail(f"CI must run every test, but {failure}")
        pytest.skip(f"Skipped: {failure}")


@pytest.fixture(scope="session")
def gigabyte_folder() -> Path:
    """A random model with 1 GB of bf16 weights, made once and kept between runs as the starter model is."""
    from layerlight.bench.random_model import random_llama

    with making_what_is_kept() as kept:
        return random_llama(kept / "models" / "llama-1gb")
