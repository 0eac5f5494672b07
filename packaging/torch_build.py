"""Which build of torch fits this machine: the facts, the choice, and where pip finds it."""

import ctypes.util
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TORCH_VERSION = "2.13.0"
TORCH_INDEX = "https://download.pytorch.org/whl/"
CHOICES = ("cpu", "cuda", "rocm", "xpu")
# The whole environment with room for the downloads; measured without them: 1.6 GiB (CPU) and 5.3 GiB (CUDA 13).
CPU_BUILD_GIB = 2.5
GPU_BUILD_GIB = 12.0
CUDA_13_DRIVER = (580,)
CUDA_12_DRIVER = (525, 60)
# GPU families torch's ROCm 7.2 wheels carry kernels for; on others they install and then fail at the first kernel.
ROCM_TARGETS = frozenset(
    f"gfx{target}"
    for target in (
        "900",
        "906",
        "908",
        "90a",
        "942",
        "950",
        "1030",
        "1100",
        "1101",
        "1102",
        "1150",
        "1151",
        "1200",
        "1201",
    )
)


@dataclass(frozen=True)
class SystemFacts:
    """What the choice depends on; `system` and `machine` as the platform module says them."""

    system: str
    machine: str
    nvidia: bool = False
    nvidia_driver: tuple[int, ...] | None = None
    compute_capability: tuple[int, int] | None = None
    amd_targets: tuple[str, ...] = ()
    intel_gpu: bool = False


@dataclass(frozen=True)
class TorchBuild:
    """One build: `name` as in --torch, `label` its local version on PyTorch's index ("": PyPI's), `note` for people."""

    name: str
    label: str
    note: str = ""

    @property
    def requirement(self) -> str:
        return f"torch=={TORCH_VERSION}+{self.label}" if self.label else f"torch=={TORCH_VERSION}"

    @property
    def words(self) -> str:
        """The build named for people."""
        kind = f"CUDA {self.label[2:4]}" if self.name == "cuda" else self.name.upper()
        return f"This machine gets torch's {kind} build." if self.label else "This machine gets torch's usual build."

    @property
    def needs_gib(self) -> float:
        """Disk the whole set-up takes, in GiB, with room for the downloads."""
        return CPU_BUILD_GIB if self.name == "cpu" else GPU_BUILD_GIB


class NoTorchBuild(Exception):
    """torch has no build for this machine, or not of the wished kind; the text says what to do."""


def choose_torch_build(facts: SystemFacts, wish: str | None = None) -> TorchBuild:
    """The build for these facts; `wish` (one of CHOICES) overrides what was found. Raises NoTorchBuild."""
    if facts.system == "Darwin":
        return _mac_build(facts, wish)
    name = wish or _fitting(facts)
    if name == "cuda":
        return TorchBuild("cuda", *_cuda_label(facts))
    if name == "rocm":
        if facts.system != "Linux" or facts.machine != "x86_64":
            raise NoTorchBuild("PyTorch makes its ROCm build for Linux on x86_64 only. Use --torch cpu here.")
        return TorchBuild("rocm", "rocm7.2")
    if name == "xpu":
        if facts.machine.lower() not in ("x86_64", "amd64"):
            raise NoTorchBuild("PyTorch makes its XPU build for x86_64 only. Use --torch cpu here.")
        return TorchBuild("xpu", "xpu")
    return _cpu_build(facts, wish)


def _fitting(facts: SystemFacts) -> str:
    if facts.nvidia and not _too_old_for_cuda(facts):
        return "cuda"
    x86 = facts.machine.lower() in ("x86_64", "amd64")
    if facts.system == "Linux" and x86 and ROCM_TARGETS.intersection(facts.amd_targets):
        return "rocm"
    if facts.intel_gpu and x86:
        return "xpu"
    return "cpu"


def _too_old_for_cuda(facts: SystemFacts) -> bool:
    old_driver = facts.nvidia_driver is not None and facts.nvidia_driver < CUDA_12_DRIVER
    old_gpu = facts.compute_capability is not None and facts.compute_capability < (5, 0)
    return old_driver or old_gpu


def _cuda_label(facts: SystemFacts) -> tuple[str, str]:
    """CUDA 13 where GPU and driver carry it; CUDA 12.6 for older drivers and for GPUs before Turing."""
    if facts.compute_capability is not None and facts.compute_capability < (7, 5):
        return "cu126", "This GPU is older than CUDA 13 supports, so the CUDA 12.6 build is taken."
    if facts.nvidia_driver is None or facts.nvidia_driver >= CUDA_13_DRIVER:
        return "cu130", ""
    if facts.compute_capability is not None and facts.compute_capability >= (10, 0):
        return "cu130", "This GPU needs NVIDIA's driver 580 or newer; until it is updated, Layerlight runs on the CPU."
    return "cu126", "The NVIDIA driver is older than 580, so the CUDA 12.6 build is taken."


def _mac_build(facts: SystemFacts, wish: str | None) -> TorchBuild:
    if facts.machine != "arm64":
        raise NoTorchBuild(
            f"torch {TORCH_VERSION} has no build for Python on Intel Macs. "
            "On a Mac with Apple silicon, install the arm64 Python from python.org and start again with it."
        )
    if wish not in (None, "cpu"):
        raise NoTorchBuild(f"There is no {wish} build of torch for Macs. Leave --torch out: the Mac's GPU is included.")
    return TorchBuild("cpu", "", "On a Mac one build holds both the CPU and the GPU.")


def _cpu_build(facts: SystemFacts, wish: str | None) -> TorchBuild:
    note = ""
    if wish is None and facts.nvidia:
        note = (
            "The NVIDIA GPU or its driver is too old for this torch; update the driver, then start with --torch cuda."
        )
    elif wish is None and facts.amd_targets:
        note = f"torch's ROCm build has no kernels for this AMD GPU ({', '.join(facts.amd_targets)}), or not here."
    # PyPI's Windows wheel is the CPU build already; on Linux PyPI's wheel brings several GB of CUDA.
    windows_on_x86 = facts.system == "Windows" and facts.machine.lower() in ("amd64", "x86_64")
    return TorchBuild("cpu", "" if windows_on_x86 else "cpu", note)


@dataclass(frozen=True)
class Attempt:
    """One way to ask pip for the build, with the words said before it is tried ("" = nothing)."""

    arguments: tuple[str, ...]
    words: str = ""


def attempts(build: TorchBuild) -> tuple[Attempt, ...]:
    """The ways to install a build, in order: where pip already looks, PyTorch's index, and for the CPU PyPI's wheel."""
    if not build.label:
        return (Attempt((build.requirement,)),)
    # The local version is asked for by name, so that no index can slip in another build.
    index = TORCH_INDEX + build.label
    ways = [Attempt((build.requirement,)), Attempt((build.requirement, "--extra-index-url", index))]
    if build.name == "cpu":
        words = (
            f"PyTorch's own index ({index}) gave no CPU build. Taking the wheel from the usual index instead: "
            "it works on a CPU too, but on Linux it is several GB."
        )
        ways.append(Attempt((f"torch=={TORCH_VERSION}",), words))
    return tuple(ways)


def read_facts() -> SystemFacts:
    """This machine's facts. Starts nvidia-smi where there is an NVIDIA driver; never raises."""
    system, machine = platform.system(), platform.machine()
    nvidia = _has_nvidia(system)
    driver, capability = _ask_nvidia() if nvidia else (None, None)
    return SystemFacts(
        system=system,
        machine=machine,
        nvidia=nvidia,
        nvidia_driver=driver,
        compute_capability=capability,
        amd_targets=_amd_targets() if system == "Linux" else (),
        intel_gpu=_has_intel_gpu(system),
    )


def _has_nvidia(system: str) -> bool:
    if system == "Windows":
        return any("nvidia" in name.lower() for name in _windows_adapters())
    return any(
        os.path.exists(path)
        for path in ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
    )


def _ask_nvidia() -> tuple[tuple[int, ...] | None, tuple[int, int] | None]:
    program = shutil.which("nvidia-smi") or "/usr/lib/wsl/lib/nvidia-smi"
    try:
        answer = subprocess.run(
            [program, "--query-gpu=driver_version,compute_cap", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    return parse_nvidia(answer.stdout)


def parse_nvidia(text: str) -> tuple[tuple[int, ...] | None, tuple[int, int] | None]:
    """Driver and best compute capability from nvidia-smi's "580.65.06, 8.9" lines; None for what it did not say."""
    rows = re.findall(r"^\s*(\d+(?:\.\d+)+)\s*,\s*(\d+)\.(\d+)\s*$", text, re.MULTILINE)
    if not rows:
        return None, None
    driver = tuple(int(part) for part in rows[0][0].split("."))
    return driver, max((int(major), int(minor)) for _, major, minor in rows)


def _amd_targets(topology: str = "/sys/class/kfd/kfd/topology/nodes") -> tuple[str, ...]:
    targets = []
    for properties in sorted(Path(topology).glob("*/properties")):
        try:
            found = re.search(r"^gfx_target_version (\d+)$", properties.read_text(), re.MULTILINE)
        except OSError:
            continue
        if found and int(found[1]):  # CPU nodes say 0
            targets.append(gfx_name(int(found[1])))
    return tuple(targets)


def gfx_name(version: int) -> str:
    """The kernel's number as the field writes it: 110001 → gfx1101, 90010 → gfx90a."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _has_intel_gpu(system: str) -> bool:
    if system == "Windows":
        return any("intel" in name.lower() and "arc" in name.lower() for name in _windows_adapters())
    # Almost every Intel laptop has a small GPU; it is worth gigabytes only where Intel's compute runtime is installed.
    return system == "Linux" and bool(ctypes.util.find_library("ze_intel_gpu")) and _has_intel_card()


def _has_intel_card() -> bool:
    for vendor in Path("/sys/class/drm").glob("card*/device/vendor"):
        try:
            if vendor.read_text().strip() == "0x8086":
                return True
        except OSError:
            continue
    return False


def _windows_adapters() -> list[str]:
    """Names of the display adapters, from the registry; empty on other systems."""
    names: list[str] = []
    if sys.platform == "win32":
        import winreg

        adapters = r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"
        for number in range(16):
            try:
                with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, rf"{adapters}\{number:04d}") as key:
                    names.append(str(winreg.QueryValueEx(key, "DriverDesc")[0]))
            except OSError:
                continue
    return names
