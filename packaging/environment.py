"""The project's own environment, .venv: the steps that make it, and where things are in it."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import command
import system_libraries
import torch_build
from steps import Ledger, Step, StepFailed

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "packaging" / "constraints.txt"
# pip in an environment must not be led astray by a person's settings for their own installs.
PIP_SETTINGS = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_USER": "0",
    "PIP_REQUIRE_VIRTUALENV": "0",
}

Say = Callable[[str], None]


class Environment:
    """The environment in one folder, and the record of what has been done to it."""

    def __init__(self, folder: Path, say: Say) -> None:
        self.folder = folder
        self.say = say
        self.ledger = Ledger(folder / "layerlight-setup.json")

    @property
    def scripts(self) -> Path:
        return self.folder / ("Scripts" if os.name == "nt" else "bin")

    @property
    def python(self) -> Path:
        return self.scripts / ("python.exe" if os.name == "nt" else "python")

    @property
    def site_packages(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return (
            self.folder / "Lib" / "site-packages"
            if os.name == "nt"
            else self.folder / "lib" / version / "site-packages"
        )

    def steps(self, wish: str | None, tests: bool, window: bool) -> list[Step]:
        """The steps for a start: `wish` from --torch, `tests` with the test tools, `window` if Qt must start."""
        if not self.python.exists():
            self.ledger.forget()
        choice = wish or self.ledger.read().get("torch wish")
        project = fingerprint(CONSTRAINTS, ROOT / "pyproject.toml") + f" {ROOT}"
        steps = [
            Step("environment", f"the environment {self.folder.name}", python_key(), self._make),
            Step("torch", self._torch_words(choice), self._torch_key(wish), lambda: self._install_torch(choice, wish)),
            Step("project", "Layerlight and what it needs", project, lambda: self._install_project("")),
        ]
        if tests:
            steps.append(Step("test tools", "the test tools", project, lambda: self._install_project("[test]")))
            steps.append(Step("test system", "the system's packages for the tests", "1", self._provide_for_tests, True))
        if window or tests or not self.ledger.has(steps[2]):
            key = f"1 wayland={bool(os.environ.get('WAYLAND_DISPLAY'))} {fingerprint(CONSTRAINTS)}"
            words = "the system libraries that the window needs"
            steps.append(Step("system libraries", words, key, self._provide_for_window, optional=not window))
        return steps

    def _torch_words(self, choice: str | None) -> str:
        return f"torch {torch_build.TORCH_VERSION}" + (f", the {choice} build" if choice else "")

    def _torch_key(self, wish: str | None) -> str:
        """What is installed stays good without asking the machine again, unless another build is wished for."""
        entries = self.ledger.read()
        prefix = f"{torch_build.TORCH_VERSION} "
        known = entries.get("torch", "")
        if known.startswith(prefix) and (wish is None or wish == entries.get("torch wish")):
            return known
        return prefix + (wish or "chosen")

    def _make(self) -> None:
        if self.python.exists() and self._is_sound():
            return
        self._provide_venv()
        if self.folder.exists():
            self.say(f"  {self.folder} is not whole, or is of another Python; it is made anew.")
        outcome = command.run_command([sys.executable, "-m", "venv", "--clear", str(self.folder)])
        if outcome.code != 0:
            raise StepFailed(last_lines(outcome), command.likely_cause(outcome.tail))

    def _is_sound(self) -> bool:
        code = "import pip, sys; print('%d.%d' % sys.version_info[:2])"
        try:
            answer = subprocess.run([self.python, "-I", "-c", code], capture_output=True, text=True, check=False)
        except OSError:
            return False
        return answer.returncode == 0 and answer.stdout.strip() == python_key()

    def _provide_venv(self) -> None:
        if all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
            return
        words = system_libraries.provide(["ensurepip"], "To make environments, this Python lacks")
        if words:
            raise StepFailed(words, "Then run the same command again.")

    def pip(self, *arguments: str) -> command.Outcome:
        """Runs the environment's pip, deaf to PYTHONPATH and to settings meant for other installs."""
        env = {**os.environ, **PIP_SETTINGS}
        argv = [str(self.python), "-I", "-m", "pip", "install", "-c", str(CONSTRAINTS), *self._progress(), *arguments]
        return command.run_command(argv, env)

    def _progress(self) -> list[str]:
        found = [path.name for path in self.site_packages.glob("pip-*.dist-info")]
        version = found[0].split("-")[1].split(".") if found else ["0", "0"]
        raw = tuple(int(part) for part in version[:2]) >= (24, 1)
        return ["--progress-bar", "raw" if raw else "off"]

    def _install_torch(self, choice: str | None, wish: str | None) -> None:
        try:
            build = torch_build.choose_torch_build(torch_build.read_facts(), choice)
        except torch_build.NoTorchBuild as error:
            raise StepFailed(str(error)) from error
        self.say(f"  {build.words}" + (f" {build.note}" if build.note else ""))
        self._check_disk(build.name, build.needs_gib)
        for number, attempt in enumerate(torch_build.attempts(build)):
            if attempt.words:
                self.say(f"  {attempt.words}")
                self._check_disk("usual", torch_build.GPU_BUILD_GIB)
            outcome = self.pip(*attempt.arguments)
            if outcome.code == 0:
                if wish:
                    self.ledger.record("torch wish", wish)
                return
            if number == 0 and command.likely_cause(outcome.tail) == command.NO_NETWORK:
                break  # not even the usual index answers: the other ways would only say the same, minutes later
        raise StepFailed(last_lines(outcome), command.likely_cause(outcome.tail))

    def _check_disk(self, name: str, gib: float) -> None:
        free = shutil.disk_usage(self.folder).free / 2**30
        if free < gib and not (self.site_packages / "torch").exists():
            raise StepFailed(
                f"the disk with {self.folder} has {free:.1f} GiB free, and the {name} build needs about "
                f"{gib:.1f} GiB with its libraries",
                "Free some space, then run the same command again.",
            )

    def _install_project(self, extras: str) -> None:
        # The build tools first and no build isolation: pip would else fetch them again, even offline.
        for arguments in (("hatchling", "editables"), ("--no-build-isolation", "-e", f"{ROOT}{extras}")):
            outcome = self.pip(*arguments)
            if outcome.code != 0:
                raise StepFailed(last_lines(outcome), command.likely_cause(outcome.tail))

    def _provide_for_window(self) -> None:
        if sys.platform == "linux":
            missing = system_libraries.missing_for(system_libraries.qt_files(self.site_packages, os.environ))
            if missing:
                words = system_libraries.provide(missing, "Qt misses system libraries")
                if words:
                    raise StepFailed(words, "Terminal commands work without them.")
        elif (
            sys.platform == "win32" and not Path(os.environ.get("SYSTEMROOT", ""), "System32", "msvcp140.dll").exists()
        ):
            raise StepFailed(
                "Microsoft's Visual C++ runtime is missing, and torch needs it.",
                "Install https://aka.ms/vs/17/release/vc_redist.x64.exe, then run the same command again.",
            )

    def _provide_for_tests(self) -> None:
        missing = system_libraries.missing_for_tests()
        words = system_libraries.provide(missing, "Some tests need more of the system") if missing else ""
        if words:
            raise StepFailed(words, "The tests that need them are skipped until then.")


def python_key() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def fingerprint(*files: Path) -> str:
    """A short hash over the contents of the files."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def last_lines(outcome: command.Outcome) -> str:
    """What a failed command said last, indented; little of it where the cause is known anyway."""
    count = 3 if command.likely_cause(outcome.tail) else 12
    lines = [f"\n    {line}" for line in outcome.tail[-count:]]
    return f"it ended with exit code {outcome.code}." + "".join(lines)
