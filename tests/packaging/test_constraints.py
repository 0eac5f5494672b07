"""The pins: everything that is installed is pinned, and nothing is pinned to a version that can't be had."""

import re
import sys
from importlib import metadata

import torch_build
from environment import CONSTRAINTS, ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

# What only torch's GPU builds bring; they pin these themselves.
NOT_PINNED = re.compile(r"nvidia-|cuda-|triton|intel-|pytorch-triton|onemkl|tcmlib|umf|mkl|tbb|impi|dpcpp|oneccl")


def pins() -> dict[str, str]:
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(each.name): str(each.specifier).removeprefix("==") for each in requirements}


def closure(name: str, extras: frozenset[str]) -> set[str]:
    """Names of all that `name` with its extras pulls in on this machine, without itself."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(canonicalize_name(name), extras)]
    while waiting:
        item = waiting.pop()
        if item in seen:
            continue
        seen.add(item)
        for text in metadata.requires(item[0]) or []:
            wanted = Requirement(text)
            if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in (item[1] or {""})):
                waiting.append((canonicalize_name(wanted.name), frozenset(wanted.extras)))
    return {each for each, _ in seen} - {canonicalize_name(name)}


def test_all_that_the_project_pulls_in_is_pinned() -> None:
    needed = closure("layerlight", frozenset({"", "test"})) | {"hatchling", "editables"}
    unpinned = {name for name in needed - pins().keys() if not NOT_PINNED.match(name)}
    assert not unpinned, f"add these to packaging/constraints.txt: {sorted(unpinned)}"


def test_what_is_installed_is_what_is_pinned() -> None:
    different = []
    for name in closure("layerlight", frozenset({"", "test"})) & pins().keys():
        installed = Version(metadata.version(name)).public
        if installed != pins()[name]:
            different.append(f"{name} {installed}, pinned {pins()[name]}")
    assert not different


def test_pins_are_exact_and_carry_no_local_version() -> None:
    for name, version in pins().items():
        assert re.fullmatch(r"\d[\w.]*", version), f"{name}=={version}"


def test_the_pinned_torch_is_the_one_the_starter_asks_for() -> None:
    assert pins()["torch"] == torch_build.TORCH_VERSION


def test_the_pins_satisfy_the_projects_own_bounds() -> None:
    for text in metadata.requires("layerlight") or []:
        wanted = Requirement(text)
        if wanted.marker is None or wanted.marker.evaluate({"extra": "test"}):
            version = pins()[canonicalize_name(wanted.name)]
            assert wanted.specifier.contains(version), f"{wanted} does not allow the pinned {version}"


def test_qt_is_held_back_where_it_loses_references() -> None:
    """PySide6 6.12.0 on Python 3.11 aborts after some hundred signals."""
    assert Version(pins()["pyside6-essentials"]) < Version("6.12") or sys.version_info >= (3, 12)
    assert pins()["pyside6-essentials"] == pins()["shiboken6"]
    assert "<6.12; python_version < '3.12'" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
