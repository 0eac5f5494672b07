"""This machine's RAM and disk as places, read without torch; a container's limit counts where it is lower."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from layerlight.core.device import CPU, DISK, LARGEST_SIZE, Device, format_size

CGROUP_MEMBERSHIP = Path("/proc/self/cgroup")
CGROUP_MOUNT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """What the control groups around this process allow, in bytes."""

    limit: int
    free: int


def ram() -> Device:
    """RAM: total and free bytes, both no more than the control group allows; None where they can't be read."""
    try:
        memory = psutil.virtual_memory()
    except (OSError, RuntimeError, ValueError):
        total, free = None, None
    else:
        total, free = believable(memory.total, memory.available)
    return within(Device(CPU, CPU, "RAM", total, free), memory_group())


def disk(folder: str | Path) -> Device:
    """The disk that holds `folder`, or would hold it: of a path not there yet the nearest parent is asked."""
    try:
        usage = shutil.disk_usage(_nearest_existing(Path(folder)))
    except (OSError, ValueError):
        return Device(DISK, DISK, "Disk", note="Its free space can't be read.")
    total, free = believable(usage.total, usage.free)
    return Device(DISK, DISK, "Disk", total, free)


def believable(total: object, free: object) -> tuple[int | None, int | None]:
    """(total, free) bytes as a probe gave them, made fit to show: None for what can't be true, free at most total.

    Probes say 2**64 - 1, 0, -1, None or "N/A" when they don't know, and some count more in use than there is.
    """
    known_total = _size(total) or None
    known_free = _size(free)
    if known_total is None:
        return None, known_free
    if isinstance(free, int) and -known_total <= free < -1:
        return known_total, 0
    return known_total, None if known_free is None else min(known_free, known_total)


def within(device: Device, group: MemoryGroup | None) -> Device:
    """The device, no larger and no freer than its control group allows."""
    if group is None or (device.total is not None and group.limit >= device.total):
        return device
    free = group.free if device.free is None else min(device.free, group.free)
    note = f"This process may use {format_size(group.limit)} (a limit of its container or session)."
    return Device(device.id, device.kind, device.name, group.limit, min(free, group.limit), note=note)


def memory_group(membership: Path = CGROUP_MEMBERSHIP, mount: Path = CGROUP_MOUNT) -> MemoryGroup | None:
    """The tightest limit of the control groups (version 1 or 2) this process is in; None without one."""
    groups = [group for folder in _group_folders(membership, mount) if (group := _read_group(folder)) is not None]
    if not groups:
        return None
    return MemoryGroup(min(group.limit for group in groups), min(group.free for group in groups))


def _group_folders(membership: Path, mount: Path) -> list[Path]:
    """Folders of the memory controller from the process's own group up to the mount.

    A container may see its host's path here but only its own group mounted: folders that aren't there don't count.
    """
    found: list[Path] = []
    for line in _read(membership).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        top = mount / "memory" if controllers else mount
        folder = top / path.strip().lstrip("/")
        if ".." in folder.parts:
            folder = top
        found += [folder, *(parent for parent in folder.parents if parent == top or top in parent.parents)]
    return list(dict.fromkeys(found))


def _read_group(folder: Path) -> MemoryGroup | None:
    """Version 2 writes `memory.max`, version 1 `memory.limit_in_bytes`; `max` and near 2**63 mean no limit."""
    limits = [
        limit
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes")
        if (limit := _number(_read(folder / name))) is not None and 0 < limit <= LARGEST_SIZE
    ]
    if not limits:
        return None
    limit = min(limits)
    used = _number(_read(folder / "memory.current")) or _number(_read(folder / "memory.usage_in_bytes")) or 0
    return MemoryGroup(limit, max(0, min(limit, limit - used + _reclaimable(folder))))


def _reclaimable(folder: Path) -> int:
    """Bytes of cached files: counted as used, but given back on demand, as in the system's own “available”."""
    found = dict(line.split(maxsplit=1) for line in _read(folder / "memory.stat").splitlines() if " " in line)
    prefix = "total_" if "total_inactive_file" in found else ""
    return sum(_number(found.get(prefix + name, "")) or 0 for name in ("inactive_file", "active_file"))


def _nearest_existing(folder: Path) -> Path:
    return next((each for each in (folder, *folder.absolute().parents) if each.exists()), Path.cwd())


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(words: str) -> int | None:
    return int(words) if words.strip().isdecimal() else None


def _size(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_SIZE else None
