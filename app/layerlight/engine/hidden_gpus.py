"""Graphics cards that this build of torch can't see, and the command that mends it."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

PROBE_SECONDS = 5.0
LONGEST_NAME = 100
NVIDIA_SIGNS = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"), Path("/usr/lib/wsl/lib/libcuda.so.1"))
AMD_SIGNS = (Path("/dev/kfd"),)
DISPLAY_ADAPTERS = Path("/sys/bus/pci/devices")
MEND = "python3 packaging/run.py --torch {build}"
_VENDORS = {"0x10de": "nvidia", "0x1002": "amd"}


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What the system says of its cards, without torch."""

    nvidia: bool = False
    """An NVIDIA card or its driver is there."""
    nvidia_name: str = ""
    nvidia_problem: str = ""
    """Why nvidia-smi gave no name, in words; empty when it did or wasn't there to ask."""
    amd: bool = False
    """An AMD card with the compute driver that ROCm needs."""


def hidden_gpu_warning(facts: GpuFacts, torch_build: str, built_for: str, seen: frozenset[str]) -> str:
    """One sentence or two about a card that torch doesn't see, empty when there is none.

    `torch_build` is torch's version (`2.13.0+cpu`), `built_for` is `cpu`, `cuda`, `rocm` or `xpu`, `seen` the kinds of
    accelerators that torch found.
    """
    if seen & {"cuda", "rocm"}:
        return ""
    if facts.nvidia:
        card = facts.nvidia_name or "An NVIDIA card"
        if built_for != "cuda":
            return _mended(card, torch_build, "cuda", facts.nvidia_problem)
        reason = facts.nvidia_problem or "its driver may be missing or too old"
        return f"{card} is in this machine, but torch can't use it: {reason}. Until then models run on the CPU."
    if facts.amd and built_for != "rocm":
        return _mended("An AMD card", torch_build, "rocm", "")
    return ""


def gpu_facts() -> GpuFacts:
    """Asks the system for its cards. Never raises, and never takes longer than PROBE_SECONDS."""
    vendors = _pci_vendors()
    nvidia = "nvidia" in vendors or any(sign.exists() for sign in NVIDIA_SIGNS)
    program = shutil.which("nvidia-smi")
    name, problem = _ask_nvidia(program) if program else ("", "")
    amd = "amd" in vendors and any(sign.exists() for sign in AMD_SIGNS)
    return GpuFacts(nvidia or bool(name), name, problem, amd)


def _mended(card: str, torch_build: str, build: str, problem: str) -> str:
    also = f" Its driver gives trouble too: {problem}." if problem else ""
    command = MEND.format(build=build)
    return f"{card} is in this machine, but torch {torch_build} can't use it.{also} The build that can: {command}"


def _ask_nvidia(program: str) -> tuple[str, str]:
    """(name of the first card, problem), one of them empty."""
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        probe = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError as error:
        return "", f"nvidia-smi can't be started ({error.strerror or error})"
    try:
        answer, _ = probe.communicate(timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        _give_up(probe)
        return "", f"nvidia-smi gave no answer within {PROBE_SECONDS:g} seconds"
    if probe.returncode != 0:
        return "", f"nvidia-smi ended with code {probe.returncode}"
    first = answer.decode("utf-8", errors="replace").strip().partition("\n")[0].strip()
    return (first, "") if _looks_like_a_name(first) else ("", "nvidia-smi's answer can't be read")


def _give_up(probe: subprocess.Popen[bytes]) -> None:
    """Kills the probe; one that is stuck inside its driver survives that, and is not waited for."""
    probe.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        probe.wait(timeout=1)
    if probe.stdout is not None:
        probe.stdout.close()


def _looks_like_a_name(words: str) -> bool:
    letters = any(letter.isalpha() for letter in words)
    return letters and words.isprintable() and "\ufffd" not in words and len(words) <= LONGEST_NAME


def _pci_vendors() -> set[str]:
    """`nvidia`, `amd`: the makers of this machine's display adapters and accelerators (Linux only)."""
    found = set()
    try:
        folders = list(DISPLAY_ADAPTERS.iterdir())
    except OSError:
        return set()
    for folder in folders:
        if _read(folder / "class").startswith(("0x03", "0x12")):
            found.add(_VENDORS.get(_read(folder / "vendor"), "other"))
    return found - {"other"}


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip().lower()
    except OSError:
        return ""
