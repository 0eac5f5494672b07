"""Files are read past the system's cache where that can be had, and through it where it can't."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from layerlight.engine.ring.page_buffer import PAGE, PageBuffer
from layerlight.engine.ring.source_file import CutShort, SourceFile

CONTENT = bytes(range(251)) * 200
"""Of no whole number of pages."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "weights"
    made.write_bytes(CONTENT)
    return made


def _refused_at_open(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = os.open

    def opened(path: Any, flags: int, *rest: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return plain(path, flags, *rest)

    monkeypatch.setattr(os, "open", opened)


def _refused_at_read(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = os.preadv
    import fcntl

    def read(number: int, into: Any, offset: int) -> int:
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return plain(number, into, offset)

    monkeypatch.setattr(os, "preadv", read)


def _not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, which has neither."""
    monkeypatch.delattr(os, "O_DIRECT", raising=False)
    monkeypatch.delattr(os, "preadv", raising=False)
    monkeypatch.delattr(os, "posix_fadvise", raising=False)


def _little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read may bring less than was asked for."""
    plain = os.preadv
    monkeypatch.setattr(os, "preadv", lambda number, into, offset: plain(number, [into[0][:PAGE]], offset))


WAYS = {
    "direct": lambda monkeypatch: None,
    "refused at open": _refused_at_open,
    "refused at the first read": _refused_at_read,
    "not known here": _not_known,
    "little by little": _little_by_little,
}
needs_direct = pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="no direct reads on this system")


@needs_direct
@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("offset", [0, 3 * PAGE, len(CONTENT) // PAGE * PAGE])
def test_the_bytes_are_the_files(offset: int, way: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its beginning, inside and to its end, past the cache or through it."""
    WAYS[way](monkeypatch)
    file = SourceFile(str(path))
    buffer = PageBuffer(4 * PAGE)
    file.read(offset, buffer.bytes)
    wanted = CONTENT[offset : offset + 4 * PAGE]
    assert bytes(buffer.bytes[: len(wanted)]) == wanted
    file.close()


@needs_direct
@pytest.mark.parametrize("way", ["refused at open", "refused at the first read"])
def test_a_refusal_is_told_once(
    way: str, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    WAYS[way](monkeypatch)
    buffer = PageBuffer(PAGE)
    with caplog.at_level(logging.WARNING):
        file = SourceFile(str(path))
        for _ in range(3):
            file.read(0, buffer.bytes)
    assert not file.direct
    assert [record.getMessage() for record in caplog.records] == [
        "weights can't be read past the system's cache (Invalid argument): it is read through it"
    ]
    file.close()


@needs_direct
@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_file_cut_short_is_a_fault(way: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    WAYS[way](monkeypatch)
    file = SourceFile(str(path))
    os.truncate(path, PAGE)
    assert file.changed()
    with pytest.raises(CutShort):
        file.read(0, PageBuffer(3 * PAGE).bytes)
    file.close()


@needs_direct
def test_a_fault_of_the_disk_is_no_refusal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SourceFile(str(path))

    def broken(*_unused: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(OSError, match="Input/output error"):
        file.read(0, PageBuffer(PAGE).bytes)
    assert file.direct
    file.close()


def test_what_was_opened_stays(path: Path) -> None:
    """A file that is replaced by another of its name goes on as it was."""
    file = SourceFile(str(path))
    path.unlink()
    path.write_bytes(b"other" * 1000)
    buffer = PageBuffer(PAGE)
    file.read(0, buffer.bytes)
    assert bytes(buffer.bytes) == CONTENT[:PAGE]
    assert not file.changed()
    file.close()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="/proc lists what is open")
def test_nothing_stays_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/proc/self/fd"))
    _refused_at_read(monkeypatch)
    file = SourceFile(str(path))
    file.read(0, PageBuffer(PAGE).bytes)
    file.close()
    file.close()
    assert len(os.listdir("/proc/self/fd")) == before
