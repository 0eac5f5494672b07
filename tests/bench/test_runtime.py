"""`bench runtime` says which state it found, and misses a bound aloud."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from layerlight.bench.disk_pairs import Pair
from layerlight.bench.finding import Finding, at_least, at_most
from layerlight.bench.machine_state import MachineState
from layerlight.bench.runtime import CASES, PARTS, Case, judge, main

GOOD = Pair(ours=0.5, accelerate=2.0, disk=0.48, read=1.0, others=0.1, quiet=True)


def _said(found: dict[Case, list[Pair]], of_ram: tuple[float, ...] = (1.0,), of_used: float = 1.0) -> tuple[int, str]:
    written = io.StringIO()
    code = judge(Console(file=written, width=300), found, of_ram, of_used)
    return code, written.getvalue()


def test_all_bounds_hold() -> None:
    code, said = _said({case: [GOOD] * 5 for case in CASES})
    assert code == 0
    assert "4.00 (4.00–4.00)" in said
    assert "quiet" in said
    assert "All bounds hold." in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ours": 0.6}, "3.33 × accelerate < 3.5"),
        ({"accelerate": 1.2, "ours": 0.6}, "2.00 × accelerate < 2.2"),
        ({"disk": 0.4}, "0.80 of the disk < 0.9"),
        ({"read": 0.95}, "only 95.0% of the bytes due came from the disk"),
        ({"ours": 0.7, "quiet": False, "disk": 0.4}, "2.86 × accelerate < 3.0"),
        ({"disk": 0.3, "quiet": False}, "0.60 of the disk < 0.65"),
    ],
)
def test_each_bound_is_held(change: dict[str, float], words: str) -> None:
    """On a quiet machine by its own bounds, on a shared one by those for that."""
    code, said = _said({CASES[0]: [replace(GOOD, **change)] * 5})  # type: ignore[arg-type]
    assert code == 1
    assert f"MISSED: {CASES[0].name}: {words}" in said


def test_a_disk_that_is_little_faster_than_accelerate_is_held_to_its_own_part() -> None:
    code, said = _said({CASES[0]: [replace(GOOD, accelerate=1.2)] * 5})
    assert code == 0
    assert "2.50" in said


def test_a_shared_machine_is_held_to_less() -> None:
    """One disturbed pair makes it one."""
    pairs = [replace(GOOD, accelerate=1.6, disk=0.4)] * 4
    code, said = _said({CASES[0]: [*pairs, replace(pairs[0], quiet=False)]})
    assert code == 0
    assert "shared" in said


def test_mapped_layers_are_held_to_ram() -> None:
    code, said = _said({}, (0.90, 0.96, 1.0))
    assert code == 1
    assert "mapped: 0.96 of RAM < 0.97" in said


def test_experts_are_held_to_what_is_used() -> None:
    code, said = _said({}, of_used=1.2)
    assert code == 1
    assert "experts: 1.20 of the used ones' bytes > 1.15" in said


@pytest.mark.parametrize(
    ("finding", "missed"),
    [
        (at_most("load", [0.9, 1.1, 1.3], 1.1, "of theirs"), ""),
        (at_most("load", [0.9, 1.2, 1.3], 1.1, "of theirs"), "load: 1.20 of theirs > 1.1"),
        (at_least("decode", [0.9, 0.97, 1.3], 0.97, "of theirs"), ""),
        (at_least("decode", [0.9, 0.95, 1.3], 0.97, "of theirs"), "decode: 0.95 of theirs < 0.97"),
        (Finding("memory: 2 GiB.", "memory: 1 GiB too much"), "memory: 1 GiB too much"),
    ],
)
def test_what_is_found_in_ram_is_held_to_its_bound(finding: Finding, missed: str) -> None:
    """By its middle, told with its spread."""
    written = io.StringIO()
    code = judge(Console(file=written, width=300), {}, others=[finding])
    assert finding.missed == missed
    assert finding.words in written.getvalue()
    assert (code, f"MISSED: {missed}" in written.getvalue()) == ((1, True) if missed else (0, False))


def test_only_known_parts_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "everything"])
    said = capsys.readouterr().err
    assert all(part in said for part in PARTS)


def test_a_process_of_ours_is_none_of_the_others() -> None:
    """What this process computes itself is left out."""
    state = MachineState()
    sum(number * number for number in range(2_000_000))
    assert state.others() >= 0
    assert 0 <= state.stolen() <= 1
