"""Which system libraries are missing, and the exact command that brings them."""

from pathlib import Path

import command
import pytest
import system_libraries
from system_libraries import (
    APT,
    TABLES,
    Distribution,
    install_command,
    missing_libraries,
    packages_for,
    read_distribution,
)

DEBIAN_12 = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n'
DEBIAN_13 = 'VERSION_ID="13"\nID=debian\n'
LDD = """/venv/PySide6/Qt/plugins/platforms/libqxcb.so:
\tlinux-vdso.so.1 (0x00007ffd0b5f2000)
\tlibQt6XcbQpa.so.6 => /venv/PySide6/Qt/lib/libQt6XcbQpa.so.6 (0x00007f1)
\tlibxcb-icccm.so.4 => not found
\tlibxcb-cursor.so.0 => not found
\tlibGL.so.1 => /lib/x86_64-linux-gnu/libGL.so.1 (0x00007f2)
/venv/PySide6/QtWidgets.abi3.so:
\tlibxcb-cursor.so.0 => not found
"""


def test_missing_libraries_are_read_from_ldd_once_each() -> None:
    assert missing_libraries(LDD) == ("libxcb-cursor.so.0", "libxcb-icccm.so.4")


def test_nothing_missing_is_nothing() -> None:
    assert missing_libraries("\tlibGL.so.1 => /lib/libGL.so.1 (0x0)\n\tstatically linked\n") == ()


@pytest.mark.parametrize(
    ("os_release", "distribution"),
    [
        (DEBIAN_12, Distribution("apt-get")),
        (DEBIAN_13, Distribution("apt-get", t64=True)),
        ("ID=debian\nPRETTY_NAME=sid\n", Distribution("apt-get")),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\n', Distribution("apt-get")),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n', Distribution("apt-get", t64=True)),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_ID="22"\n', Distribution("apt-get")),
        ("ID=fedora\nVERSION_ID=43\n", Distribution("dnf")),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.5"\n', Distribution("dnf")),
        ("ID=arch\n", Distribution("pacman")),
        ("ID=manjaro\nID_LIKE=arch\n", Distribution("pacman")),
        ("ID=nixos\n", None),
        ("", None),
    ],
)
def test_the_distribution_is_read(os_release: str, distribution: Distribution | None) -> None:
    assert read_distribution(os_release) == distribution


@pytest.mark.parametrize(
    ("os_release", "glib"), [(DEBIAN_12, "libglib2.0-0"), (DEBIAN_13, "libglib2.0-0t64")], ids=["12", "13"]
)
def test_debian_12_and_13_name_glib_differently(os_release: str, glib: str) -> None:
    distribution = read_distribution(os_release)
    assert distribution is not None
    needs = ("libglib-2.0.so.0", "libgthread-2.0.so.0", "libEGL.so.1")
    assert packages_for(needs, distribution) == (("libegl1", glib), ())


def test_a_library_no_table_knows_is_named_not_dropped() -> None:
    packages, unknown = packages_for(["libGL.so.1", "libnovel.so.9"], Distribution("apt-get"))
    assert packages == ("libgl1",)
    assert unknown == ("libnovel.so.9",)


def test_packages_of_python_itself_follow_its_version() -> None:
    assert packages_for(["ensurepip", "headers"], Distribution("apt-get"), minor=13)[0] == (
        "python3.13-dev",
        "python3.13-venv",
    )


@pytest.mark.parametrize("tool", sorted(TABLES))
def test_every_tool_knows_every_library_of_qt(tool: str) -> None:
    libraries = [need for need in APT if need.startswith("lib")]
    assert packages_for(libraries, Distribution(tool))[1] == ()


@pytest.mark.parametrize(
    ("tool", "root", "line"),
    [
        ("apt-get", True, "apt-get install -y --no-install-recommends libgl1"),
        ("apt-get", False, "sudo apt-get install -y --no-install-recommends libgl1"),
        ("dnf", False, "sudo dnf install -y libgl1"),
        ("pacman", False, "sudo pacman -S --needed libgl1"),
    ],
)
def test_the_command_is_exact(tool: str, root: bool, line: str) -> None:
    assert install_command(["libgl1"], Distribution(tool), root) == line


class Apt:
    """Stands in for running commands: apt-get install works only after update, or never."""

    def __init__(self, needs_update: bool = False, broken: bool = False) -> None:
        self.ready = not needs_update
        self.broken = broken
        self.calls: list[list[str]] = []

    def run(self, argv: list[str], env: object = None) -> command.Outcome:
        self.calls.append(argv)
        if argv[:2] == ["apt-get", "update"]:
            self.ready = True
            return command.Outcome(0, ())
        works = self.ready and not self.broken
        return command.Outcome(0 if works else 100, ("E: Unable to locate package libgl1",))


def on(monkeypatch: pytest.MonkeyPatch, distribution: Distribution | None, root: bool, apt: Apt) -> None:
    monkeypatch.setattr(system_libraries, "this_distribution", lambda: distribution)
    monkeypatch.setattr(system_libraries, "is_root", lambda: root)
    monkeypatch.setattr(command, "run_command", apt.run)


def test_root_on_debian_installs_just_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    apt = Apt()
    on(monkeypatch, Distribution("apt-get"), True, apt)
    assert system_libraries.provide(["libGL.so.1"], "Qt misses") == ""
    assert apt.calls == [["apt-get", "install", "-y", "--no-install-recommends", "libgl1"]]


def test_a_bare_debian_gets_its_package_lists_first(monkeypatch: pytest.MonkeyPatch) -> None:
    apt = Apt(needs_update=True)
    on(monkeypatch, Distribution("apt-get"), True, apt)
    assert system_libraries.provide(["libGL.so.1"], "Qt misses") == ""
    assert [call[1] for call in apt.calls] == ["install", "update", "install"]


def test_a_failed_installation_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, Distribution("apt-get"), True, Apt(broken=True))
    words = system_libraries.provide(["libGL.so.1"], "Qt misses")
    assert "Unable to locate package" in words
    assert "apt-get update && apt-get install -y --no-install-recommends libgl1" in words


@pytest.mark.parametrize(
    ("distribution", "root", "expected"),
    [
        (Distribution("apt-get"), False, "sudo apt-get install -y --no-install-recommends libgl1"),
        (Distribution("dnf"), False, "sudo dnf install -y libglvnd-glx"),
        (Distribution("dnf"), True, "dnf install -y libglvnd-glx"),
        (Distribution("pacman"), False, "sudo pacman -S --needed libglvnd"),
        (None, False, "libGL.so.1"),
    ],
)
def test_elsewhere_the_command_is_printed_and_nothing_is_run(
    monkeypatch: pytest.MonkeyPatch, distribution: Distribution | None, root: bool, expected: str
) -> None:
    apt = Apt()
    on(monkeypatch, distribution, root, apt)
    assert expected in system_libraries.provide(["libGL.so.1"], "Qt misses")
    assert apt.calls == []


def test_a_wayland_session_needs_wayland_too(tmp_path: Path) -> None:
    platforms = tmp_path / "PySide6" / "Qt" / "plugins" / "platforms"
    platforms.mkdir(parents=True)
    for name in ("libqxcb.so", "libqoffscreen.so", "libqwayland.so"):
        (platforms / name).touch()
    plain = {file.name for file in system_libraries.qt_files(tmp_path, {})}
    wayland = {file.name for file in system_libraries.qt_files(tmp_path, {"WAYLAND_DISPLAY": "wayland-0"})}
    assert plain == {"libqxcb.so", "libqoffscreen.so"}
    assert wayland - plain == {"libqwayland.so"}
