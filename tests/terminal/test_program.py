"""The program as it is started: which wing wakes, what is imported, and real processes end to end."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from layerlight.__main__ import main, no_display
from layerlight.core.environment import APPLE, OFFLINE, SWITCH, TUNING, WATERMARKS


def _python(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False, encoding="utf-8"
    )


def _layerlight(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "layerlight", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, encoding="utf-8", stdin=subprocess.DEVNULL
    )


def test_the_engine_s_process_begins_before_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    import layerlight.engine.host

    given: list[list[str]] = []

    def serve(words: list[str]) -> int:
        given.append(words)
        return 3

    monkeypatch.setattr(layerlight.engine.host, "main", serve)
    assert main(["--engine-host", "--log", "x"]) == 3
    assert given == [["--log", "x"]]


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({}, "linux", True),
        ({"DISPLAY": ""}, "linux", True),
        ({"DISPLAY": ":0"}, "linux", False),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", False),
        ({"QT_QPA_PLATFORM": "offscreen"}, "linux", False),
        ({}, "freebsd14", True),
        ({}, "darwin", False),
        ({}, "win32", False),
    ],
)
def test_a_missing_display_is_known_before_qt_aborts(environ: dict[str, str], platform: str, expected: bool) -> None:
    assert no_display(environ, platform) is expected


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="there is always a display there")
def test_without_a_display_the_demo_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    assert main([]) == 1
    assert "layerlight demo" in capsys.readouterr().err


def test_inspect_imports_neither_torch_nor_qt_nor_a_drawing_library(tiny_folder: Path) -> None:
    code = (
        "import sys; from layerlight.__main__ import main; code = main(['inspect', sys.argv[1]])\n"
        "assert not {'torch', 'PySide6', 'transformers', 'numpy', 'rich'} & set(sys.modules), sorted(sys.modules)\n"
        "sys.exit(code)"
    )
    done = _python(code, tiny_folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("tuned", [True, False])
def test_d03_torch_is_imported_with_its_environment_set(
    own_home: Path, tuned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_home / "config").mkdir(parents=True)
    (own_home / "config" / "settings.json").write_text(json.dumps({"engine_environment": tuned}))
    code = """
import json, os, sys
class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(json.dumps(dict(os.environ)))
            sys.stdout.flush()
            os._exit(0)
sys.meta_path.insert(0, Hook())
from layerlight.cli import main
main(["devices"])
"""
    for name in (*OFFLINE, *TUNING, *APPLE, *WATERMARKS, SWITCH):
        monkeypatch.delenv(name, raising=False)
    seen = json.loads(_python(code).stdout)
    assert OFFLINE.items() <= seen.items()
    for name in (*TUNING, *APPLE, *WATERMARKS):
        assert (name in seen) is tuned, name


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no broken pipes of this kind")
def test_a_reader_that_leaves_early_is_no_fault(tiny_folder: Path) -> None:
    command = [sys.executable, "-m", "layerlight", "inspect", str(tiny_folder), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        words = child.stderr.read()
        assert child.wait() == 1
    assert b"Traceback" not in words


@pytest.mark.engine
def test_end_to_end_the_measured_places_equal_the_plan(tiny_folder: Path, tmp_path: Path) -> None:
    names = ["model.embed_tokens", "lm_head", "model.rotary_emb", "model.layers.0", "model.norm"]
    by_hand = {**dict.fromkeys(names, "cpu"), "model.layers.1": "disk"}
    (tmp_path / "map.json").write_text(json.dumps(by_hand))
    done = _layerlight(
        "run", tiny_folder, "--map", tmp_path / "map.json", "--prompt", "the", "--temperature", 0,
        "--max-new-tokens", 5, "--seed", 1, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["device_map"] == by_hand
    assert {each["layer"]: each["rests_on"] for each in found["measured"]["placements"]} == by_hand
    assert found["measured"]["bytes"] == {place: size for place, size in found["predicted"]["bytes"].items() if size}
    assert len(found["tokens"]) == 5
    assert set(found["seconds_per_layer"]) == set(by_hand)
    assert found["checked"] is True


@pytest.mark.engine
@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends Ctrl-C to a whole console")
def test_end_to_end_ctrl_c_keeps_the_partial_answer(tiny_folder: Path) -> None:
    command = [sys.executable, "-m", "layerlight", "run", str(tiny_folder), "--prompt", "the", "--seed", "1"]
    with subprocess.Popen(
        [*command, "--temperature", "1", "--max-new-tokens", "4000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        first = child.stdout.read(1)
        child.send_signal(signal.SIGINT)
        rest, words = child.communicate()
    assert child.returncode == 130, words
    assert len(first + rest) > 1
    assert b"ended by stopped" in words


@pytest.mark.engine
@pytest.mark.starter
def test_end_to_end_the_starter_says_paris(starter_folder: Path) -> None:
    done = _layerlight("run", starter_folder, "--prompt", "What is the capital of France?", "--temperature", 0)
    assert (done.returncode, done.stdout) == (0, "The capital of France is Paris.\n"), done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_an_answer_that_can_t_be_written_is_said(tiny_folder: Path, as_json: list[str]) -> None:
    command = [sys.executable, "-m", "layerlight", "inspect", str(tiny_folder), *as_json]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, encoding="utf-8")
    assert done.returncode == 1
    assert "The answer can't be written" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a shell closes the streams")
@pytest.mark.parametrize(("closing", "code"), [(">&-", 0), ("2>&-", 0), ("<&-", 0), (">&- 2>&- <&-", 0)])
def test_streams_may_be_closed_before_it_starts(tiny_folder: Path, closing: str, code: int) -> None:
    command = shlex.join([sys.executable, "-m", "layerlight", "inspect", str(tiny_folder)])
    done = subprocess.run(f"{command} {closing}", shell=True, capture_output=True, check=False, encoding="utf-8")
    assert done.returncode == code, done.stderr
    assert "unexpected" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a shell closes the streams")
def test_without_a_prompt_and_without_stdin_the_prompt_is_asked_for(tiny_folder: Path) -> None:
    command = shlex.join([sys.executable, "-m", "layerlight", "run", str(tiny_folder)])
    done = subprocess.run(f"{command} <&-", shell=True, capture_output=True, check=False, encoding="utf-8")
    assert (done.returncode, done.stdout) == (2, "")
    assert "There is no prompt" in done.stderr


def test_ctrl_c_while_the_commands_are_imported_leaves_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("layerlight.cli.main", interrupted)
    assert main(["devices"]) == 130
