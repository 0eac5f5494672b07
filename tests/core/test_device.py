"""Sizes as people type them, and the places of a machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerlight.core.device import Budget, format_size, parse_limit, parse_size
from layerlight.core.errors import BadSize, UnknownPlace
from tests.core.models import accelerator, machine, ram


@pytest.mark.parametrize(
    ("words", "size"),
    [
        ("64000MiB", 64000 * 2**20),
        ("64000", 64000),
        ("10G", 10 * 2**30),
        ("10GiB", 10 * 2**30),
        ("10GB", 10**10),
        ("10TiB", 10 * 2**40),
        (" 1.5 gib ", 3 * 2**29),
        ("0", 0),
        ("512 MB", 512 * 10**6),
    ],
)
def test_sizes_are_read_as_bytes(words: str, size: int) -> None:
    """A01, A02: what is typed becomes one byte count; GB and GiB differ by 7 %."""
    assert parse_size(words) == size


@pytest.mark.parametrize(
    "words", ["10,5GiB", "-5GiB", "", "  ", "MiB", "10 GiB GiB", "64000MiBMiB", "nan", "1e9", "9999999TiB", "9" * 400]
)
def test_what_is_no_size_is_refused_in_words(words: str) -> None:
    """A01: refused at once, with a hint, not deep inside a library."""
    with pytest.raises(BadSize) as refused:
        parse_size(words)
    assert refused.value.hint
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("words", ["10Gb", "10Gib", "8Mb", "1Tib", "9Kib", "3Kb"])
def test_bits_are_refused_and_spelled_out(words: str) -> None:
    """A02: a bit unit would be off by eight; the hint names the byte unit."""
    with pytest.raises(BadSize) as refused:
        parse_size(words)
    assert words[:-1] + "B" in refused.value.hint


@given(st.integers(0, 2**50))
def test_a_number_of_bytes_is_read_back(size: int) -> None:
    assert parse_size(str(size)) == size


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (None, "unknown"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (10 * 2**30 + 2**29, "10.5 GiB"),
        (2**41, "2.0 TiB"),
        (-(2**20), "-1.0 MiB"),
    ],
)
def test_sizes_are_written_for_people(size: int | None, words: str) -> None:
    assert format_size(size) == words


@pytest.mark.parametrize("words", ["cpu", "=8GiB", "8GiB", ""])
def test_a_limit_names_its_place(words: str) -> None:
    with pytest.raises(UnknownPlace):
        parse_limit(words)


def test_limits_keep_no_order() -> None:
    """A04: the same limits in any order are the same budget."""
    limits = [("cuda:1", 5), ("cpu", 7), ("cuda:0", 3)]
    assert Budget.of(limits) == Budget.of(reversed(limits))


@pytest.mark.parametrize("place", ["gpu", "-1", "cuda:0", "CPU", "0"])
def test_a_place_of_another_machine_is_named(place: str) -> None:
    """A19: one sentence that lists the places there are."""
    with pytest.raises(UnknownPlace) as refused:
        machine(ram()).device(place)
    assert place in refused.value.message
    assert "cpu" in refused.value.hint


def test_accelerators_are_told_from_ram() -> None:
    assert [device.id for device in machine(accelerator(), ram()).accelerators] == ["cuda:0"]
