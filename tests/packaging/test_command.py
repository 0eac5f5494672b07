"""A long command is run to its end, its last words are kept, and its failure is read for a cause."""

import signal
import subprocess
import sys
from collections import deque

import command
import pytest


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_the_exit_code_and_the_last_lines_are_kept() -> None:
    code = "import sys\nfor i in range(500): print('line', i)\nprint('last', file=sys.stderr); sys.exit(3)"
    outcome = command.run_command(python(code))
    assert outcome.code == 3
    assert "line 499" in outcome.tail
    assert "line 0" not in outcome.tail


def test_a_command_gets_no_stdin_to_wait_for() -> None:
    assert command.run_command(python("import sys; print(repr(sys.stdin.read()))")).tail == ("''",)


def test_a_missing_program_is_an_outcome_not_a_crash() -> None:
    outcome = command.run_command(["/nowhere/no-such-program"])
    assert outcome.code == 127
    assert "no-such-program" in outcome.tail[0]


def test_bytes_that_are_no_text_do_no_harm() -> None:
    code = r"import sys; sys.stdout.buffer.write(b'\xff\xfe ok\n')"
    assert command.run_command(python(code)).tail[0].endswith("ok")


class Slow:
    """A process that needs three waits to end."""

    def __init__(self) -> None:
        self.waits = 0

    def wait(self, timeout: float) -> int:
        self.waits += 1
        if self.waits < 3:
            raise subprocess.TimeoutExpired("pip", timeout)
        return 0


def test_a_silent_command_shows_that_it_is_alive(capsys: pytest.CaptureFixture[str]) -> None:
    command._watch(Slow(), deque(["Downloading torch"]))  # type: ignore[arg-type]
    assert [line.split("s  ")[1] for line in capsys.readouterr().err.splitlines()] == ["Downloading torch"] * 2


def test_ctrl_c_ends_the_command_too(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []

    def interrupt(process: "subprocess.Popen[str]", lines: object) -> None:
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_watch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        command.run_command(python("import signal; signal.pause()"))
    assert started[0].returncode == -signal.SIGTERM
    if started[0].stdout:
        started[0].stdout.close()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "working"),
        (["Collecting torch"], "Collecting torch"),
        (["  Downloading torch.whl", "Progress 50000000 of 200000000"], "Downloading torch.whl - 50 of 200 MB"),
        (["Progress 1000000 of 2000000"], "working - 1 of 2 MB"),
        (["Collecting numpy", "WARNING: an index is ignored"], "Collecting numpy"),
    ],
)
def test_what_a_command_is_at(lines: list[str], words: str) -> None:
    assert command.activity(lines) == words


def test_a_long_line_is_cut_to_fit_a_terminal() -> None:
    assert len(command.activity(["Installing collected packages: " + "name, " * 80])) <= command.ACTIVITY_WIDTH


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        (
            "NewConnectionError(Failed to establish a new connection: Temporary failure in name resolution)",
            "network",
        ),
        ("Err:1 http://deb.debian.org bookworm InRelease Could not resolve 'deb.debian.org'", "network"),
        (
            "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
            "PIP_CERT",
        ),
        ("PermissionError: [Errno 13] Permission denied: '/srv/.venv/lib'", "Check who owns"),
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812", "Another program"),
        ("ERROR: No matching distribution found for torch==2.13.0", "Python 3.11"),
        ("Segmentation fault", ""),
    ],
)
def test_a_failure_is_read_for_its_cause(line: str, word: str) -> None:
    hint = command.likely_cause(["Collecting torch", line])
    assert word in hint
    assert bool(hint) == bool(word)
