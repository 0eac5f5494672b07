"""RAM and disk as places: control groups from fake files, absurd figures clamped (H14)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from layerlight.core.device import Device
from layerlight.core.machines import local_memory
from layerlight.core.machines.local_memory import MemoryGroup, believable, disk, memory_group, ram, within

GIB = 2**30


def write(files: dict[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("total", "free", "expected"),
    [
        (8 * GIB, 3 * GIB, (8 * GIB, 3 * GIB)),
        (2**64 - 1, 3 * GIB, (None, 3 * GIB)),
        (8 * GIB, 2**64 - 1, (8 * GIB, None)),
        (None, None, (None, None)),
        ("N/A", "N/A", (None, None)),
        (8 * GIB, 9 * GIB, (8 * GIB, 8 * GIB)),
        (8 * GIB, -GIB, (8 * GIB, 0)),
        (0, 0, (None, 0)),
        (8 * GIB, -1, (8 * GIB, None)),
        (8 * GIB, -9 * GIB, (8 * GIB, None)),
        (-1, -1, (None, None)),
        (True, False, (None, None)),
        (8.5, 1.0, (None, None)),
    ],
)
def test_absurd_sizes_are_unknown_or_clamped(total: object, free: object, expected: tuple[int | None, ...]) -> None:
    """H14: 2**64-1, None, N/A, more in use than there is."""
    assert believable(total, free) == expected


def test_version_2_takes_the_tightest_limit_on_the_way_up(tmp_path: Path) -> None:
    """H14: a control group's limit below RAM."""
    mount, membership = tmp_path / "cgroup", tmp_path / "self"
    write(
        {
            membership: "0::/user.slice/app.scope\n",
            mount / "user.slice/app.scope/memory.max": "max\n",
            mount / "user.slice/app.scope/memory.high": "max\n",
            mount / "user.slice/app.scope/memory.current": f"{GIB}\n",
            mount / "user.slice/memory.max": f"{4 * GIB}\n",
            mount / "user.slice/memory.current": f"{3 * GIB}\n",
            mount / "user.slice/memory.stat": f"anon 5\ninactive_file {GIB // 2}\nactive_file {GIB // 4}\n",
        }
    )
    assert memory_group(membership, mount) == MemoryGroup(4 * GIB, GIB + GIB // 2 + GIB // 4)


def test_version_2_counts_the_soft_limit(tmp_path: Path) -> None:
    mount, membership = tmp_path / "cgroup", tmp_path / "self"
    write({membership: "0::/\n", mount / "memory.max": f"{4 * GIB}", mount / "memory.high": f"{2 * GIB}"})
    assert memory_group(membership, mount) == MemoryGroup(2 * GIB, 2 * GIB)


def test_version_1_in_a_container_that_sees_its_hosts_path(tmp_path: Path) -> None:
    mount, membership = tmp_path / "cgroup", tmp_path / "self"
    write(
        {
            membership: "9:cpu,cpuacct:/docker/abc\n5:memory:/docker/abc\n0::/system.slice\n",
            mount / "memory/memory.limit_in_bytes": f"{2 * GIB}\n",
            mount / "memory/memory.usage_in_bytes": f"{GIB}\n",
            mount / "memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB // 2}\ntotal_active_file 0\n",
        }
    )
    assert memory_group(membership, mount) == MemoryGroup(2 * GIB, GIB + GIB // 2)


@pytest.mark.parametrize("limit", ["max", "9223372036854771712", "0", "", "rubbish"])
def test_no_limit_is_no_group(tmp_path: Path, limit: str) -> None:
    mount, membership = tmp_path / "cgroup", tmp_path / "self"
    write(
        {membership: "0::/\n5:memory:/\n", mount / "memory.max": limit, mount / "memory/memory.limit_in_bytes": limit}
    )
    assert memory_group(membership, mount) is None


def test_no_control_groups_at_all(tmp_path: Path) -> None:
    assert memory_group(tmp_path / "absent", tmp_path / "absent too") is None


def test_a_path_that_climbs_out_is_not_followed(tmp_path: Path) -> None:
    mount, membership = tmp_path / "inner/cgroup", tmp_path / "self"
    write({membership: "0::/../../x\n", tmp_path / "x/memory.max": f"{GIB}", mount / "memory.max": f"{2 * GIB}"})
    assert memory_group(membership, mount) == MemoryGroup(2 * GIB, 2 * GIB)


def test_used_beyond_the_limit_is_none_left(tmp_path: Path) -> None:
    mount, membership = tmp_path / "cgroup", tmp_path / "self"
    write({membership: "0::/\n", mount / "memory.max": f"{GIB}", mount / "memory.current": f"{2 * GIB}"})
    assert memory_group(membership, mount) == MemoryGroup(GIB, 0)


@pytest.mark.parametrize(
    ("total", "free", "group", "expected"),
    [
        (8 * GIB, 6 * GIB, None, (8 * GIB, 6 * GIB)),
        (8 * GIB, 6 * GIB, MemoryGroup(16 * GIB, GIB), (8 * GIB, 6 * GIB)),
        (8 * GIB, 6 * GIB, MemoryGroup(4 * GIB, GIB), (4 * GIB, GIB)),
        (8 * GIB, GIB, MemoryGroup(4 * GIB, 4 * GIB), (4 * GIB, GIB)),
        (None, None, MemoryGroup(4 * GIB, GIB), (4 * GIB, GIB)),
    ],
)
def test_the_lower_of_machine_and_group_counts(
    total: int | None, free: int | None, group: MemoryGroup | None, expected: tuple[int, int]
) -> None:
    device = within(Device("cpu", "cpu", "RAM", total, free), group)
    assert (device.total, device.free) == expected
    assert bool(device.note) == (device.total != total)


def test_ram_is_read_here() -> None:
    device = ram()
    assert (device.id, device.kind, device.name) == ("cpu", "cpu", "RAM")
    assert device.total is not None
    assert device.free is not None
    assert 0 < device.free <= device.total <= psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (SimpleNamespace(total=2**64 - 1, available=2**64 - 1), (None, None)),
        (SimpleNamespace(total=4 * GIB, available=5 * GIB), (4 * GIB, 4 * GIB)),
        (OSError("no /proc"), (None, None)),
        (RuntimeError("sysctl failed"), (None, None)),
    ],
)
def test_ram_that_lies_or_fails(
    monkeypatch: pytest.MonkeyPatch, answer: Any, expected: tuple[int | None, int | None]
) -> None:
    """H14: a probe's answer that can't be true is unknown, never shown."""

    def read() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(psutil, "virtual_memory", read)
    monkeypatch.setattr(local_memory, "memory_group", lambda: None)
    device = ram()
    assert (device.total, device.free) == expected


def test_disk_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    there, later = disk(tmp_path), disk(tmp_path / "a" / "b")
    assert (there.id, there.kind) == ("disk", "disk")
    assert there.total is not None
    assert there.total == later.total


def test_disk_that_can_not_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(_: object) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(local_memory.shutil, "disk_usage", refuse)
    device = disk(tmp_path)
    assert (device.total, device.free) == (None, None)
    assert device.note
