"""The wheel: it builds without a network, carries the resources, and starts from an environment of its own."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from environment import ROOT

PROBE = """
import importlib.util, pathlib, sys
package = pathlib.Path(importlib.util.find_spec("layerlight").origin).parent
assert package.is_relative_to(sys.prefix), package
print((package / "resources" / "icons" / "layerlight.svg").is_file())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a clean environment with the wheel in it; what the project needs is lent by this one."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    scripts = folder / ("Scripts" if sys.platform == "win32" else "bin")
    python = scripts / ("python.exe" if sys.platform == "win32" else "python")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (lib,) = {Path(p) for p in folder.glob("[Ll]ib/**/site-packages")}
    # A folder named in a .pth is searched, but its own .pth files are not read: the editable checkout stays out.
    (lib / "lent.pth").write_text(sysconfig.get_path("purelib"))
    return python


def test_the_wheel_holds_the_package_the_resources_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "layerlight/__main__.py" in names
    assert "layerlight/resources/icons/layerlight.svg" in names
    tops = {name.split("/")[0] for name in names}
    assert tops == {"layerlight", next(top for top in tops if top.endswith(".dist-info"))}
    checkout = {str(p.relative_to(ROOT / "resources")) for p in (ROOT / "resources").rglob("*") if p.is_file()}
    carried = {name.removeprefix("layerlight/resources/") for name in names if name.startswith("layerlight/resources/")}
    assert carried == {name.replace("\\", "/") for name in checkout}


def test_the_installed_wheel_finds_its_own_files(installed: Path, tmp_path: Path) -> None:
    found = subprocess.run([installed, "-c", PROBE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "True", found.stderr


@pytest.mark.parametrize("command", ["module", "script"])
def test_the_installed_wheel_starts(installed: Path, tmp_path: Path, command: str) -> None:
    argv = [str(installed), "-m", "layerlight"] if command == "module" else [str(installed.parent / "layerlight")]
    started = subprocess.run([*argv, "--version"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr
    version = subprocess.run(
        [installed, "-c", "import layerlight; print(layerlight.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert version.stdout.strip() in started.stdout
