"""Builds the backend once per source and torch, and keeps the library in a cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import platformdirs
import torch
from filelock import FileLock

from tests.simulated_accelerator import NoCompiler

SOURCE = Path(__file__).with_name("simulated_accelerator.cpp")
CACHE_VARIABLE = "LAYERLIGHT_TEST_CACHE"
COMPILERS = ("c++", "g++", "clang++")


def library() -> Path:
    """The built library. Builds it when the cache has none (about 12 s of CPU time); safe for several builders."""
    command = [*_compiler(), *_flags()]
    key = hashlib.sha256("\0".join([SOURCE.read_text("utf-8"), torch.__version__, _abi(), *command]).encode())
    folder = _cache_folder()
    built = folder / f"simulated_accelerator-{key.hexdigest()[:16]}.so"
    if built.exists():
        return built
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(built.with_suffix(".lock")):  # the system gives it back even when its holder is killed
        if not built.exists():
            _build(command, built)
    return built


def _build(command: list[str], built: Path) -> None:
    unfinished = built.with_suffix(f".{os.getpid()}.part")
    try:
        done = subprocess.run(
            [*command, str(SOURCE), "-o", str(unfinished), *_libraries()], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"The simulated accelerator does not compile:\n{done.stderr[-4000:]}")
        os.replace(unfinished, built)
    finally:
        unfinished.unlink(missing_ok=True)


def _compiler() -> list[str]:
    """`$CXX`, with its arguments if it has any, else the first compiler that is there."""
    if sys.platform == "win32":
        raise NoCompiler(
            "the simulated accelerator is built with g++ or clang++, which Windows' torch can't be linked by"
        )
    wanted = os.environ.get("CXX", "").split()
    if wanted and shutil.which(wanted[0]):
        return wanted
    for name in COMPILERS:
        if path := shutil.which(name):
            return [path]
    raise NoCompiler("the simulated accelerator needs a C++ compiler, and neither c++, g++ nor clang++ is here")


def _flags() -> list[str]:
    include = _torch_folder() / "include"
    abi = int(torch.compiled_with_cxx11_abi())
    headers = [f"-I{include}", f"-I{include / 'torch/csrc/api/include'}"]
    shared = ["-shared"] if sys.platform != "darwin" else ["-dynamiclib", "-undefined", "dynamic_lookup"]
    return ["-std=c++20", "-O1", "-fPIC", *shared, f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *headers]


def _libraries() -> list[str]:
    return [f"-L{_torch_folder() / 'lib'}", "-ltorch_cpu", "-lc10"]


def _torch_folder() -> Path:
    return Path(torch.__file__).parent


def _abi() -> str:
    return f"{sysconfig.get_config_var('SOABI')} {torch.__config__.show()}"


def _cache_folder() -> Path:
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen) if chosen else platformdirs.user_cache_path("layerlight-tests")
