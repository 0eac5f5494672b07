"""Graphics cards that this build of torch can't see, and the command that mends it."""

from __future__ import annotations

import logging
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

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
    return f"{card} is in this machine, but torch {torch_build} can't use it. The build that can: {command}{also}"


def _ask_nvidia(program: str) -> tuple[str, str]:
    """(name of the first card, problem), one of them empty."""
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "", f"nvidia-smi gave no answer within {PROBE_SECONDS:.0f} seconds"
    except OSError as error:
        return "", f"nvidia-smi can't be started ({error.strerror or error})"
    words = answer.stdout.decode("utf-8", errors="replace").strip()
    first = words.splitlines()[0].strip() if words else ""
    if answer.returncode != 0:
        return "", f"nvidia-smi ended with code {answer.returncode}"
    if (
        not first.isprintable()
        or not any(letter.isalpha() for letter in first)
        or "\ufffd" in first
        or len(first) > 100
    ):
        return "", "nvidia-smi's answer can't be read"
    return first, ""


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
