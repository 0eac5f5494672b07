"""The system's own packages: which libraries Qt misses here, which packages bring them, and the command for it."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import command


@dataclass(frozen=True)
class Distribution:
    """A Linux distribution, by its package tool; `t64` where Debian renamed libraries for 64-bit time."""

    tool: str
    t64: bool = False


# Soname → package, per package tool. Every library that the platform plugins of PySide6 6.11 link, and that no
# package of the list pulls in by itself, was found by starting a window in a bare Debian 12.
APT = {
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libGLX.so.0": "libgl1",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libX11.so.6": "libx11-6",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libxcb.so.1": "libxcb1",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libwayland-client.so.0": "libwayland-client0",
    "libwayland-cursor.so.0": "libwayland-cursor0",
    "libstdc++.so.6": "libstdc++6",
    "libgomp.so.1": "libgomp1",
    "libz.so.1": "zlib1g",
    "libzstd.so.1": "libzstd1",
    "ensurepip": "python3.{minor}-venv",
    "compiler": "g++",
    "headers": "python3.{minor}-dev",
    "Xvfb": "xvfb",
}
RENAMED_T64 = {"libglib2.0-0": "libglib2.0-0t64"}
DNF = {
    "libglib-2.0.so.0": "glib2",
    "libgthread-2.0.so.0": "glib2",
    "libEGL.so.1": "libglvnd-egl",
    "libGL.so.1": "libglvnd-glx",
    "libGLX.so.0": "libglvnd-glx",
    "libxkbcommon.so.0": "libxkbcommon",
    "libdbus-1.so.3": "dbus-libs",
    "libfontconfig.so.1": "fontconfig",
    "libfreetype.so.6": "freetype",
    "libX11.so.6": "libX11",
    "libX11-xcb.so.1": "libX11-xcb",
    "libxcb-cursor.so.0": "xcb-util-cursor",
    "libxcb-icccm.so.4": "xcb-util-wm",
    "libxcb-image.so.0": "xcb-util-image",
    "libxcb-keysyms.so.1": "xcb-util-keysyms",
    "libxcb-render-util.so.0": "xcb-util-renderutil",
    "libxcb-util.so.1": "xcb-util",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11",
    "libwayland-client.so.0": "libwayland-client",
    "libwayland-cursor.so.0": "libwayland-cursor",
    "libstdc++.so.6": "libstdc++",
    "libgomp.so.1": "libgomp",
    "libz.so.1": "zlib",
    "libzstd.so.1": "libzstd",
    "compiler": "gcc-c++",
    "headers": "python3-devel",
    "Xvfb": "xorg-x11-server-Xvfb",
}
PACMAN = {
    "libglib-2.0.so.0": "glib2",
    "libgthread-2.0.so.0": "glib2",
    "libEGL.so.1": "libglvnd",
    "libGL.so.1": "libglvnd",
    "libGLX.so.0": "libglvnd",
    "libxkbcommon.so.0": "libxkbcommon",
    "libdbus-1.so.3": "dbus",
    "libfontconfig.so.1": "fontconfig",
    "libfreetype.so.6": "freetype2",
    "libX11.so.6": "libx11",
    "libX11-xcb.so.1": "libx11",
    "libxcb-cursor.so.0": "xcb-util-cursor",
    "libxcb-icccm.so.4": "xcb-util-wm",
    "libxcb-image.so.0": "xcb-util-image",
    "libxcb-keysyms.so.1": "xcb-util-keysyms",
    "libxcb-render-util.so.0": "xcb-util-renderutil",
    "libxcb-util.so.1": "xcb-util",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11",
    "libwayland-client.so.0": "wayland",
    "libwayland-cursor.so.0": "wayland",
    "libstdc++.so.6": "gcc-libs",
    "libgomp.so.1": "gcc-libs",
    "libz.so.1": "zlib",
    "libzstd.so.1": "zstd",
    "compiler": "gcc",
    "Xvfb": "xorg-server-xvfb",
}
LIBXCB = {
    f"libxcb{part}": "libxcb"
    for part in (
        ".so.1",
        *(
            f"-{name}"
            for name in ("randr.so.0", "render.so.0", "shape.so.0", "shm.so.0", "sync.so.1", "xfixes.so.0", "xkb.so.1")
        ),
    )
}
TABLES = {"apt-get": APT, "dnf": LIBXCB | DNF, "pacman": LIBXCB | PACMAN}
INSTALL = {
    "apt-get": ("apt-get", "install", "-y", "--no-install-recommends"),
    "dnf": ("dnf", "install", "-y"),
    "pacman": ("pacman", "-S", "--needed"),
}


def read_distribution(os_release: str) -> Distribution | None:
    """The distribution from the text of /etc/os-release; None where its package tool is not known here."""
    values = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', os_release, re.MULTILINE))
    families = {values.get("ID", ""), *values.get("ID_LIKE", "").split()}
    number = re.match(r"\d+(\.\d+)?", values.get("VERSION_ID", ""))
    version = float(number[0]) if number else 0.0
    if families & {"debian", "ubuntu"}:
        # A derivative's own number says nothing; the old names still resolve on new systems as virtual packages.
        newest = {"debian": 13.0, "ubuntu": 24.04}.get(values.get("ID", ""), float("inf"))
        return Distribution("apt-get", t64=version >= newest)
    if families & {"fedora", "rhel", "centos"}:
        return Distribution("dnf")
    if "arch" in families:
        return Distribution("pacman")
    return None


def missing_libraries(ldd_output: str) -> tuple[str, ...]:
    """Sonames that ldd could not find, sorted, each once."""
    return tuple(sorted(set(re.findall(r"^\s*(\S+) => not found", ldd_output, re.MULTILINE))))


def packages_for(
    needs: Iterable[str], distribution: Distribution, minor: int = sys.version_info.minor
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Needs (sonames, "ensurepip", "compiler", …) → (packages that bring them, needs no table knows)."""
    table = TABLES[distribution.tool]
    packages: set[str] = set()
    unknown = []
    for need in needs:
        package = table.get(need, "").replace("{minor}", str(minor))
        if not package:
            unknown.append(need)
            continue
        packages.add(RENAMED_T64.get(package, package) if distribution.t64 else package)
    return tuple(sorted(packages)), tuple(unknown)


def install_command(packages: Sequence[str], distribution: Distribution, root: bool) -> str:
    """The exact command that installs the packages, with sudo where the person is not root."""
    return " ".join((*(() if root else ("sudo",)), *INSTALL[distribution.tool], *packages))


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def this_distribution() -> Distribution | None:
    try:
        return read_distribution(Path("/etc/os-release").read_text(encoding="utf-8"))
    except OSError:
        return None


def provide(needs: Collection[str], why: str) -> str:
    """Sees to the needs: as root on Debian and its kin they are installed and "" is returned; else the words to say."""
    distribution = this_distribution()
    if distribution is None:
        return f"{why}: {', '.join(needs)}. Install them with this system's package tool, then run the command again."
    packages, unknown = packages_for(needs, distribution)
    words = f"{why}: {', '.join(needs)}."
    if not packages:
        return words
    line = install_command(packages, distribution, is_root())
    if distribution.tool == "apt-get" and is_root() and not unknown:
        outcome = _apt_install(packages)
        if outcome.code == 0:
            return ""
        shown = "\n    ".join(outcome.tail[-6:])
        words = (
            f"{why}, and installing {', '.join(packages)} failed:\n    {shown}\n{command.likely_cause(outcome.tail)}"
        )
        line = f"apt-get update && {line}"
    rest = f" (no package is known here for {', '.join(unknown)})" if unknown else ""
    return f"{words.rstrip()}\nThis installs what is missing{rest}:\n    {line}"


def _apt_install(packages: Sequence[str]) -> command.Outcome:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    argv = [*INSTALL["apt-get"], *packages]
    print(f"  Installing {', '.join(packages)}", file=sys.stderr, flush=True)
    outcome = command.run_command(argv, env)
    if outcome.code != 0:  # no package lists yet, or old ones that name packages since replaced
        command.run_command(["apt-get", "update"], env)
        outcome = command.run_command(argv, env)
    return outcome


def qt_files(site_packages: Path, environ: Mapping[str, str]) -> list[Path]:
    """The Qt files whose libraries a window needs here: widgets, offscreen, X11, and Wayland in a Wayland session."""
    folder = site_packages / "PySide6"
    platforms = folder / "Qt" / "plugins" / "platforms"
    files = [folder / "QtWidgets.abi3.so", platforms / "libqoffscreen.so", platforms / "libqxcb.so"]
    if environ.get("WAYLAND_DISPLAY"):
        files.append(platforms / "libqwayland.so")
    return [file for file in files if file.exists()]


def missing_for(files: Sequence[Path]) -> tuple[str, ...]:
    """What ldd misses for these files; nothing where there is no ldd, as Qt then says it itself."""
    program = shutil.which("ldd")
    if program is None or not files:
        return ()
    answer = subprocess.run([program, *map(str, files)], capture_output=True, text=True, check=False)
    return missing_libraries(answer.stdout)


def missing_for_tests() -> tuple[str, ...]:
    """What the tests need beside Python packages: a C++ compiler, Python's headers, and Xvfb on Linux."""
    needs = []
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++", "cl")):
        needs.append("compiler")
    if sys.platform != "win32" and not Path(sysconfig.get_path("include"), "Python.h").exists():
        needs.append("headers")
    if sys.platform == "linux" and not shutil.which("Xvfb"):
        needs.append("Xvfb")
    return tuple(needs)
