"""Every command: its answer on stdout, the rest on stderr, one object with --json, and its exit code."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layerlight import __version__, cli
from layerlight.core.device import Device, Machine
from layerlight.core.errors import DownloadFailed, LoadFailed, NotFinite, OutOfMemory, PromptTooLong, Stopped
from layerlight.core.job import Job
from layerlight.core.messages import StarterProgressed, StarterReady, StarterRequest
from layerlight.core.settings import Settings, write_settings
from layerlight.core.sizing.work import Work
from layerlight.terminal.console import Console
from tests.core.models import MIB, accelerator, disk, ram
from tests.terminal.conftest import Command
from tests.terminal.fake_engine import FakeEngine

ANSWER = "Paris is the capital."


# -- what each command gives -------------------------------------------------------------------------------------------


def test_run_gives_the_answer_alone_on_stdout(layerlight: Command, tiny_folder: Path, engine: FakeEngine) -> None:
    said = layerlight("run", tiny_folder, "--prompt", "Where?", "--seed", 7)
    assert (said.code, said.out) == (0, ANSWER + "\n")
    for words in ("context 4096", "Loaded in 1.5 s", "(measured)", "seed 7", "4.0 tokens/s", "ended by end token"):
        assert words in said.err
    assert engine.closed == 1


def test_run_json_is_one_object_with_everything_shown(layerlight: Command, tiny_folder: Path) -> None:
    said = layerlight("run", tiny_folder, "--prompt", "Where?", "--seed", 7, "--limit", "cpu=2GiB", "--json")
    found = said.found
    assert said.code == 0
    assert (found["text"], found["tokens"], found["seed"], found["ended"]) == (ANSWER, [0, 1, 2, 3], 7, "end token")
    assert (found["load_seconds"], found["tokens_per_second"], found["time_to_first_token"]) == (1.5, 4.0, 0.5)
    assert (found["prompt_tokens"], found["reused"], found["recomputed"]) == (7, 0, 0)
    assert (found["sampling"]["prompt_lookup"], found["drafts"]) == (0, None)
    assert found["seconds_per_layer"] == {"model.layers.0": 0.01}
    assert found["limits"] == {"cpu": 2**31}
    assert "error" not in found
    placements = found["placements"]
    assert {key for each in placements for key in each} == {
        "layer", "rests_on", "runs_on", "bytes", "dtype", "reason",
    }  # fmt: skip
    assert found["device_map"] == {each["layer"]: each["rests_on"] for each in placements}
    for told in ("predicted", "measured"):
        assert found[told]["bytes"]["cpu"] == sum(each["bytes"] for each in placements)
        assert found[told]["peak"]["cpu"] > 0
        assert found[told]["seconds"]["per_token"] > 0
        assert found[told]["seconds"]["load"] > 0
    measured = found["measured"]
    assert [measured[key]["cpu"] for key in ("peak", "process_peak", "engine")] == [55, 70, 15]
    assert [each["layer"] for each in found["measured"]["placements"]] == [each["layer"] for each in placements]
    assert found["folder"] == str(tiny_folder)
    assert found["context"] == 4096


def test_the_request_reaches_the_engine_complete(layerlight: Command, tiny_folder: Path, engine: FakeEngine) -> None:
    said = layerlight(
        "run", tiny_folder, "--prompt", "Where?", "--system", "Be brief.", "--max-new-tokens", 9, "--temperature", 0,
        "--top-p", 0.9, "--top-k", 40, "--repetition-penalty", 1.1, "--seed", 3, "--context", 64, "--dtype", "fp32",
        "--prompt-lookup", 6,
        "--attention", "eager", "--offload-folder", "/fast",
    )  # fmt: skip
    assert said.code == 0
    (request,), (load,) = engine.requests, engine.loads
    assert [(message.role, message.content) for message in request.messages] == [
        ("system", "Be brief."),
        ("user", "Where?"),
    ]
    assert (request.seed, request.max_new_tokens, request.temperature) == (3, 9, 0.0)
    assert (request.top_p, request.top_k, request.repetition_penalty, request.prompt_lookup) == (0.9, 40, 1.1, 6)
    assert (load.context, load.dtype, load.attention, load.offload_folder) == (64, "float32", "eager", "/fast")


@pytest.mark.parametrize(
    ("word", "dtype"),
    [("bf16", "bfloat16"), ("bfloat16", "bfloat16"), ("fp16", "float16"), ("float16", "float16"), ("fp32", "float32")],
)
def test_dtypes_have_their_short_names(layerlight: Command, tiny_folder: Path, word: str, dtype: str) -> None:
    found = layerlight("plan", tiny_folder, "--dtype", word, "--json").found
    assert found["dtype"] == dtype
    assert {each["dtype"] for each in found["placements"]} == {dtype}


@pytest.mark.parametrize("quantization", ["nf4", "fp4", "int8"])
def test_quantising_is_planned(layerlight: Command, tiny_folder: Path, quantization: str) -> None:
    found = layerlight("plan", tiny_folder, "--quantize", quantization, "--json").found
    assert found["quantization"] == quantization
    assert {each["dtype"] for each in found["placements"]} == {quantization, "bfloat16"}


def test_f11_a_drawn_seed_is_the_one_told_and_used(layerlight: Command, tiny_folder: Path, engine: FakeEngine) -> None:
    told = [layerlight("run", tiny_folder, "--prompt", "x", "--json").found["seed"] for _ in range(3)]
    assert told == [request.seed for request in engine.requests]
    assert len(set(told)) == 3


def test_f04_a_prompt_that_is_too_long_is_refused_before_anything_is_loaded(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine
) -> None:
    def count() -> None:
        raise PromptTooLong("It has 5000 tokens; the context holds 4096, answer included.")

    engine.counting = count
    said = layerlight("run", tiny_folder, "--prompt", "x", "--json")
    assert (said.code, said.found["error"]["kind"]) == (2, "PromptTooLong")
    assert (len(engine.counted), engine.loads, engine.requests, engine.closed) == (1, [], [], 1)


def test_a_run_is_planned_anew_by_what_the_empty_model_told(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine
) -> None:
    """Exact bytes before a weight is read: the plan is the checked one, or it is refused with what is missing."""
    engine.work = Work(50_000_000, 6_000)
    found = layerlight("run", tiny_folder, "--prompt", "x", "--json").found
    assert found["checked"] is True
    assert (len(engine.checks), len(engine.loads)) == (1, 1)
    assert found["predicted"]["working"]["cpu"] == 50_000_000
    engine.work = Work(2**50, 6_000)
    said = layerlight("run", tiny_folder, "--prompt", "x", "--json")
    assert said.found["error"]["kind"] == "DoesNotFit"
    assert (len(engine.checks), len(engine.loads)) == (2, 1)


def test_the_offload_folder_of_the_settings_is_used(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, own_home: Path
) -> None:
    write_settings(own_home / "config" / "settings.json", Settings(offload_folder="/from/settings"))
    layerlight("run", tiny_folder, "--prompt", "x")
    layerlight("run", tiny_folder, "--prompt", "x", "--offload-folder", "/asked")
    assert [load.offload_folder for load in engine.loads] == ["/from/settings", "/asked"]
    assert engine.looks == ["/from/settings", "/asked"], "that disk is the one whose room is planned with"


def test_h08_broken_settings_are_said_and_stop_nothing(layerlight: Command, tiny_folder: Path, own_home: Path) -> None:
    (own_home / "config").mkdir(parents=True)
    (own_home / "config" / "settings.json").write_text("{")
    said = layerlight("run", tiny_folder, "--prompt", "x")
    assert (said.code, said.out) == (0, ANSWER + "\n")
    assert "settings.json.broken-" in said.err


@pytest.mark.parametrize("words", [("--prompt", "-"), ()])
def test_the_prompt_may_come_through_a_pipe(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Line one\nhalf \ud83d"))
    assert layerlight("run", tiny_folder, *words).code == 0
    assert engine.requests[0].messages[0].content == "Line one\nhalf �"


def test_plan_shows_places_bytes_and_reasons(layerlight: Command, tiny_folder: Path) -> None:
    said = layerlight("plan", tiny_folder)
    assert said.code == 0
    found = layerlight("plan", tiny_folder, "--json").found
    assert found["fits"] is True
    reasons = {each["reason"] for each in found["placements"]}
    for words in ("model.embed_tokens … model.norm", "cpu", "bfloat16", "KV cache", *reasons, found["advice"][:-1]):
        assert words in said.out
    assert found["predicted"]["peak"]["cpu"] > found["predicted"]["bytes"]["cpu"]


def test_what_plan_printed_is_a_map(layerlight: Command, tiny_folder: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    by_hand = layerlight("plan", tiny_folder, "--json").found["device_map"] | {"model.layers.1": "disk"}
    saved.write_text(json.dumps({"device_map": by_hand}), "utf-8")
    found = layerlight("plan", tiny_folder, "--map", saved, "--json").found
    assert found["device_map"] == by_hand
    saved.write_text(json.dumps(found), "utf-8")
    assert layerlight("run", tiny_folder, "--map", saved, "--prompt", "x", "--json").found["device_map"] == by_hand


def test_devices_lists_each_place(layerlight: Command, engine: FakeEngine) -> None:
    engine.machine = Machine(
        (accelerator("cuda:0", free=8 * 2**30, dtypes=("float16", "float32"), note="A note."), ram(), disk()),
        warnings=("A CPU build of torch beside a GPU.",),
    )
    said = layerlight("devices")
    assert said.code == 0
    for words in ("cuda:0", "8.0 GiB", "float16, float32", "A note.", "RAM", "disk", "A CPU build"):
        assert words in said.out
    found = layerlight("devices", "--json").found
    assert [device["id"] for device in found["devices"]] == ["cuda:0", "cpu", "disk"]
    assert found["devices"][0]["total"] == 8 * 2**30
    assert found["warnings"] == ["A CPU build of torch beside a GPU."]


def test_h14_what_can_t_be_read_is_unknown(layerlight: Command, engine: FakeEngine) -> None:
    engine.machine = Machine((Device("mps", "mps", "Apple M9", None, None, "cpu"), Device("cpu", "cpu", "RAM")))
    said = layerlight("devices")
    assert said.out.splitlines()[1].split() == ["mps", "Apple", "M9", "unknown", "unknown", "shared", "with", "cpu"]
    assert layerlight("devices", "--json").found["devices"][0]["free"] is None


def test_inspect_needs_no_engine(layerlight: Command, tiny_folder: Path, engine: FakeEngine) -> None:
    said = layerlight("inspect", tiny_folder)
    assert said.code == 0
    assert "LlamaForCausalLM" in said.out
    found = layerlight("inspect", tiny_folder, "--json").found
    assert [layer["layer"] for layer in found["layers"] if layer["kind"] == "decoder layer"] == [
        "model.layers.0",
        "model.layers.1",
    ]
    assert found["bytes"] == sum(layer["bytes"] for layer in found["layers"])
    assert engine.made == len(engine.looks) == 0


def test_version(layerlight: Command, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        layerlight("--version")
    assert ended.value.code == 0
    assert capfd.readouterr().out == f"layerlight {__version__}\n"


# -- bad requests: 2, before anything is begun -------------------------------------------------------------------------


def _refused(said: Any, engine: FakeEngine, words: str = "") -> None:
    assert said.code == 2
    assert words in said.err
    assert "Traceback" not in said.err
    assert engine.loads == []
    lines = said.err.strip().splitlines()
    assert lines[-1], "a hint comes last"


@pytest.mark.parametrize(
    "words",
    [
        (), ("nonsense",), ("run",), ("plan",), ("inspect",), ("starter",), ("starter", "sound"),
        ("run", "x", "--context", "many"), ("run", "x", "--dtype", "fp8"), ("run", "x", "--quantize", "q4"),
        ("run", "x", "--attention", "flash"), ("run", "x", "--no-such-option"), ("devices", "extra"),
        ("bench", "nonsense"), ("devices", "--js"), ("plan", "x", "--tab"), ("run", "x", "--promp", "y"), ("--vers",),
    ],
)  # fmt: skip
def test_a_command_line_that_makes_no_sense_is_a_bad_request(
    layerlight: Command, engine: FakeEngine, words: tuple[str, ...]
) -> None:
    said = layerlight(*words)
    _refused(said, engine)
    assert said.out == ""
    assert engine.made == len(engine.looks) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows takes any name for that of a person")
@pytest.mark.parametrize("words", [("plan",), ("run", "--prompt", "x")])
def test_an_own_folder_that_can_t_be_is_a_bad_request(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("LAYERLIGHT_HOME", "~nobody-of-that-name/x")
    _refused(layerlight(words[0], tiny_folder, *words[1:]), engine, "LAYERLIGHT_HOME")


@pytest.mark.parametrize(
    ("size", "expected"),
    [("64000MiB", 64000 * MIB), ("64000000", 64_000_000), ("10G", 10 * 2**30), ("10GB", 10**10), ("10TiB", 10 * 2**40)],
)
def test_a01_a02_a_limit_is_the_bytes_it_says(layerlight: Command, tiny_folder: Path, size: str, expected: int) -> None:
    assert layerlight("plan", tiny_folder, "--limit", f"cpu={size}", "--json").found["limits"] == {"cpu": expected}


@pytest.mark.parametrize(
    "limit",
    [
        "cpu=10,5GiB", "cpu=-5GiB", "cpu=", "cpu", "=5GiB", "", "cpu=5GiBMiB", "cpu=ten", "cpu=10Gb", "cpu=10Gib",
        "cpu=nan", "cpu=1e3", "cpu=9999999TiB",
    ],
)  # fmt: skip
def test_a01_a02_an_unclear_limit_is_refused_at_once(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, limit: str
) -> None:
    for command in (("plan", tiny_folder), ("run", tiny_folder, "--prompt", "x")):
        said = layerlight(*command, "--limit", limit, "--json")
        _refused(said, engine)
        assert said.found["error"]["hint"]
    assert engine.made == len(engine.looks) == 0


def test_a04_the_order_of_limits_never_matters(layerlight: Command, tiny_folder: Path, engine: FakeEngine) -> None:
    engine.machine = Machine((accelerator("cuda:0", free=2**30), accelerator("cuda:1", free=2**30), ram(), disk()))
    limits = ["cuda:1=40MiB", "cpu=1GiB", "cuda:0=40MiB"]
    plans = [
        layerlight("plan", tiny_folder, "--json", *(word for limit in order for word in ("--limit", limit))).found
        for order in (limits, limits[::-1], [limits[1], limits[0], limits[2]])
    ]
    assert plans[0] == plans[1] == plans[2]


def test_a04_no_disk_means_never_and_the_shortfall_is_said_in_bytes(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine
) -> None:
    said = layerlight("plan", tiny_folder, "--limit", "disk=0", "--limit", "cpu=1MiB", "--json")
    _refused(said, engine, "does not fit")
    found = said.found
    assert found["fits"] is False
    assert f"{found['shortfall']} bytes" in found["error"]["message"]
    assert "disk" not in found["device_map"].values()
    assert found["error"]["hint"]
    assert layerlight("plan", tiny_folder, "--limit", "disk=0", "--limit", "cpu=1MiB").out == ""


def test_a10_a_context_beyond_the_model_is_refused(layerlight: Command, tiny_folder: Path, engine: FakeEngine) -> None:
    said = layerlight("run", tiny_folder, "--prompt", "x", "--context", 262144)
    _refused(said, engine, "4096")
    assert layerlight("run", tiny_folder, "--prompt", "x", "--context", 0).code == 2


def _map(folder: Path, layerlight: Command, change: Callable[[dict[str, str]], object]) -> str:
    found: dict[str, str] = layerlight("plan", folder, "--json").found["device_map"]
    change(found)
    return json.dumps(found)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: found.pop("model.layers.1"), "model.layers.1"),
        (lambda found: found.update({"model.layers.2": "cpu", "model.layers.3": "cpu"}), "model.layers.3"),
        (lambda found: found.clear(), "empty"),
        (lambda found: found.update({"model.layers.1": "cuda:0"}), "cuda:0"),
        (lambda found: found.update({"model.layers.1": 0}), "cuda:0"),
        (lambda found: found.update({"model.layers.1": "gpu"}), "gpu"),
        (lambda found: found.update({"model.layers.1": True}), "True"),
        (lambda found: found.update({"lm_head": "disk"}), "lm_head"),
    ],
    ids=["shorter", "longer", "empty", "no such GPU", "a GPU by number", "no place", "no word", "tied parted"],
)
def test_a17_a19_a_map_of_another_model_or_machine_is_refused_by_name(
    layerlight: Command,
    tiny_folder: Path,
    engine: FakeEngine,
    tmp_path: Path,
    change: Callable[[dict[str, str]], object],
    words: str,
) -> None:
    saved = tmp_path / "map.json"
    saved.write_text(_map(tiny_folder, layerlight, change), "utf-8-sig")  # editors add the mark
    _refused(layerlight("run", tiny_folder, "--map", saved, "--prompt", "x"), engine, words)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"12", b"\xff\xfe", b'{"placements": [{"layer": 1}]}', b"[" * 100_000]
)
def test_a_map_that_is_none_is_refused_before_torch_is_imported(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, tmp_path: Path, content: bytes
) -> None:
    saved = tmp_path / "map.json"
    saved.write_bytes(content)
    _refused(layerlight("plan", tiny_folder, "--map", saved), engine)
    _refused(layerlight("run", tiny_folder, "--map", tmp_path / "absent.json", "--prompt", "x"), engine, "absent.json")
    assert engine.made == len(engine.looks) == 0


@pytest.mark.parametrize("place", ["gpu", "-1", "cuda:0", "cuda", "mps", "ram", "CPU", "0"])
def test_a19_a_place_that_is_not_here_is_refused_with_the_places_there_are(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, place: str
) -> None:
    said = layerlight("run", tiny_folder, "--prompt", "x", f"--limit={place}=1GiB")
    _refused(said, engine, place)
    assert "cpu, disk" in said.err


@pytest.mark.parametrize("prompt", ["", " ", "\n\t "])
def test_f05_an_empty_prompt_is_refused(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, prompt: str
) -> None:
    _refused(layerlight("run", tiny_folder, "--prompt", prompt), engine, "empty")
    assert engine.made == len(engine.looks) == 0


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--temperature", ["-1", "nan", "inf"]),
        ("--top-p", ["0", "1.5", "-0.1", "nan"]),
        ("--top-k", ["-1"]),
        ("--repetition-penalty", ["0", "-1", "nan"]),
        ("--max-new-tokens", ["0", "-1"]),
        ("--seed", ["-1", str(2**64)]),
    ],
)
def test_f06_odd_sampling_is_refused_before_anything_loads(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, option: str, values: list[str]
) -> None:
    for value in values:
        _refused(layerlight("run", tiny_folder, "--prompt", "x", f"{option}={value}"), engine, value.lstrip("-"))
    assert engine.made == len(engine.looks) == 0


# -- folders that are no whole model -----------------------------------------------------------------------------------


def _spoil(folder: Path, how: str) -> None:
    weights, config = folder / "model.safetensors", folder / "config.json"
    match how:
        case "cut short":
            weights.write_bytes(weights.read_bytes()[:-1000])
        case "empty weights":
            weights.write_bytes(b"")
        case "LFS pointer":
            weights.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n")
        case "no weights":
            weights.unlink()
        case "config is no JSON":
            config.write_text("{", "utf-8")
        case "unknown type":
            config.write_text(json.dumps({**json.loads(config.read_text("utf-8")), "model_type": "no_such"}), "utf-8")
        case "no tokenizer":
            for name in ("tokenizer.json", "tokenizer_config.json"):
                (folder / name).unlink()


@pytest.mark.parametrize(
    "how",
    ["cut short", "empty weights", "LFS pointer", "no weights", "config is no JSON", "unknown type", "no tokenizer"],
)
def test_e_a_broken_folder_is_said_before_an_engine_starts(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, tmp_path: Path, how: str
) -> None:
    folder = tmp_path / "模型 é 📦 100%#?"
    folder.mkdir()
    for file in tiny_folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    _spoil(folder, how)
    planning = [] if how == "no weights" else [("plan", folder)]  # its config alone can be planned
    for command in (("run", folder, "--prompt", "x"), *planning):
        said = layerlight(*command, "--json")
        assert said.code in (1, 2)
        error = said.found["error"]
        assert error["title"]
        assert error["message"]
        assert error["message"] in said.err
    inspected = layerlight("inspect", folder, "--json")
    assert inspected.code == 0
    assert inspected.found["problems"]
    assert engine.made == len(engine.looks) == 0


@pytest.mark.parametrize("where", ["absent", "empty"])
def test_a_folder_without_a_model_is_a_bad_request(
    layerlight: Command, engine: FakeEngine, tmp_path: Path, where: str
) -> None:
    (tmp_path / "empty").mkdir()
    for command in ("inspect", "plan", "run"):
        words = ("--prompt", "x") if command == "run" else ()
        _refused(layerlight(command, tmp_path / where, *words), engine, where)
    assert engine.made == len(engine.looks) == 0


# -- failures: 1 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["loading", "answering"])
@pytest.mark.parametrize("kind", [LoadFailed, OutOfMemory, NotFinite])
def test_a_failure_is_one_title_message_and_hint(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, moment: str, kind: type[LoadFailed]
) -> None:
    def fail() -> None:
        raise kind("It broke.", hint="Mend it.")

    setattr(engine, moment, fail)
    said = layerlight("run", tiny_folder, "--prompt", "x")
    assert said.code == 1
    assert said.err.endswith(f"{kind.title}: It broke.\nMend it.\n")
    assert said.out == ("Paris\n" if moment == "answering" else "")
    found = layerlight("run", tiny_folder, "--prompt", "x", "--json").found
    assert found["error"] == {
        "title": kind.title, "message": "It broke.", "hint": "Mend it.", "kind": kind.__name__,
    }  # fmt: skip
    assert found["placements"]
    assert engine.closed == 2


def test_a_fault_of_ours_is_said_in_words_and_kept_in_the_log(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, own_home: Path
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a fault")

    engine.loading = fail
    said = layerlight("run", tiny_folder, "--prompt", "x", "--json")
    assert said.code == 1
    assert "Traceback" not in said.err
    assert said.found["error"]["message"] == "ZeroDivisionError: a fault"
    log = own_home / "log" / "terminal.log"
    assert str(log) in said.err
    assert "Traceback" in log.read_text("utf-8")
    assert engine.closed == 1


# -- stopped: 130 ------------------------------------------------------------------------------------------------------


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_f01_ctrl_c_while_answering_keeps_what_was_written(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine
) -> None:
    engine.answering = _interrupt
    said = layerlight("run", tiny_folder, "--prompt", "x")
    assert (said.code, said.out) == (130, "Paris\n")
    assert "ended by stopped" in said.err
    found = layerlight("run", tiny_folder, "--prompt", "x", "--json")
    assert (found.code, found.found["text"], found.found["ended"]) == (130, "Paris", "stopped")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_loading_stops_the_load(layerlight: Command, tiny_folder: Path, engine: FakeEngine) -> None:
    engine.loading = _interrupt
    said = layerlight("run", tiny_folder, "--prompt", "x")
    assert (said.code, said.out) == (130, "")
    assert "Stopped" in said.err
    assert engine.requests == []
    assert engine.closed == 1


def test_a_second_ctrl_c_ends_at_once(layerlight: Command, tiny_folder: Path, engine: FakeEngine) -> None:
    def twice() -> None:
        _interrupt()
        _interrupt()

    engine.loading = twice
    said = layerlight("run", tiny_folder, "--prompt", "x")
    assert said.code == 130
    assert "Traceback" not in said.err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process without asking it")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_b05_a_polite_kill_leaves_no_file_behind(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, name: str
) -> None:
    number = getattr(signal, name)
    engine.loading = lambda: os.kill(os.getpid(), number)
    said = layerlight("run", tiny_folder, "--prompt", "x")
    assert (said.code, engine.closed) == (130, 1)
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process without asking it")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_that_was_ignored_before_stays_so(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, name: str
) -> None:
    """As with nohup, and with Ctrl-C for what a shell runs in the background."""
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_IGN)
    try:
        engine.loading = lambda: os.kill(os.getpid(), number)
        assert layerlight("run", tiny_folder, "--prompt", "x").code == 0
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("where", ["look", "begin"])
def test_ctrl_c_before_a_job_has_begun_ends_at_once(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """While torch is imported nobody would hear a polite request."""
    after: list[str] = []

    def interrupted(*_arguments: object) -> None:
        _interrupt()
        after.append("went on")

    monkeypatch.setattr(FakeEngine, "look" if where == "look" else "__call__", interrupted)
    said = layerlight("run", tiny_folder, "--prompt", "x")
    assert (said.code, said.out, after) == (130, "", [])
    assert "Stopped" in said.err
    assert "Traceback" not in said.err


def test_what_breaks_in_a_load_after_ctrl_c_was_stopped(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine
) -> None:
    def interrupted() -> None:
        _interrupt()
        raise LoadFailed("It broke.")

    engine.loading = interrupted
    said = layerlight("run", tiny_folder, "--prompt", "x", "--json")
    assert (said.code, said.found["error"]["kind"], engine.closed) == (130, "Stopped", 1)


@pytest.mark.parametrize("error", [ImportError("loaded twice"), RuntimeError("half imported"), LoadFailed("It broke.")])
@pytest.mark.parametrize("where", ["look", "begin"])
def test_what_breaks_after_ctrl_c_was_stopped(
    layerlight: Command,
    tiny_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    error: Exception,
) -> None:
    """Packages catch the interrupt while they are imported, and fail at something else."""

    def interrupted(*_arguments: object) -> None:
        try:
            _interrupt()
        except KeyboardInterrupt:
            raise error from None

    monkeypatch.setattr(FakeEngine, "look" if where == "look" else "__call__", interrupted)
    said = layerlight("run", tiny_folder, "--prompt", "x", "--json")
    assert (said.code, said.found["error"]["kind"]) == (130, "Stopped")
    assert "unexpected" not in said.err


CONTROLS = "\x1b[2J\x1b]0;title\x07\x9b31m\x7f\0"


def test_names_in_a_folder_can_t_command_the_terminal(layerlight: Command, tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models" / "evil\x1b[2J"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": CONTROLS, "architectures": [CONTROLS]}))
    for command in (("plan", folder), ("inspect", f"{folder}{CONTROLS[:4]}"), ("run", folder, "--prompt", "x")):
        said = layerlight(*command)
        assert said.code == 2
        assert not set(said.err) & (set(CONTROLS) - set("[2J]0;title31m"))


def test_only_a_terminal_is_spared_the_control_characters_of_an_answer() -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    piped, shown = io.StringIO(), Tty()
    for out in (piped, shown):
        Console(out, io.StringIO()).answer(f"a{CONTROLS}\tb\r\nc", end="")
    assert piped.getvalue() == f"a{CONTROLS}\tb\r\nc"
    assert shown.getvalue() == "a�[2J�]0;title��31m��\tb\nc"


# -- the starter model -------------------------------------------------------------------------------------------------


@pytest.fixture
def starter(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """The tiny model stands in for the starter; put an exception in the list and fetching raises it."""
    failures: list[Exception] = []

    def fetch(request: StarterRequest, job: Job) -> str:
        job.emit(StarterProgressed("Downloading Tiny: 1 of 2", 50, 100, "A-1.0"))
        if failures:
            raise failures[0]
        job.emit(StarterProgressed("Converting Tiny", 100, 100, "A-1.0"))
        job.emit(StarterReady(str(tiny_folder), "A-1.0"))
        return str(tiny_folder)

    monkeypatch.setattr(cli, "_fetch_starter", fetch)
    return failures


def test_starter_gives_its_folder(layerlight: Command, starter: list[Exception], tiny_folder: Path) -> None:
    said = layerlight("starter", "text")
    assert (said.code, said.out) == (0, f"{tiny_folder}\n")
    for words in (" 50 % Downloading", "100 % Converting", "A-1.0", "--prompt"):
        assert words in said.err
    assert layerlight("starter", "text", "--json").found == {"folder": str(tiny_folder), "licence": "A-1.0"}


@pytest.mark.parametrize(("failure", "code"), [(DownloadFailed("No network.", hint="Connect."), 1), (Stopped(), 130)])
def test_a_starter_that_did_not_come(
    layerlight: Command, starter: list[Exception], failure: Exception, code: int
) -> None:
    starter.append(failure)
    said = layerlight("starter", "text", "--json")
    assert said.code == code
    assert said.found["error"]["hint"]
    assert layerlight("demo").code == code


def test_demo_ends_with_how_to_go_on(
    layerlight: Command, starter: list[Exception], engine: FakeEngine, tiny_folder: Path
) -> None:
    said = layerlight("demo")
    assert (said.code, said.out) == (0, ANSWER + "\n")
    assert engine.requests[0].temperature == 0
    ending = said.err[said.err.index("How to go on:") :]
    for words in ("run", "plan", "inspect", str(tiny_folder)):
        assert words in ending


# -- benchmarks --------------------------------------------------------------------------------------------------------


@pytest.fixture
def benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import layerlight.bench

    (tmp_path / "made_up.py").write_text("def main(argv):\n    return 1 if argv == ['--missed'] else 0\n")
    (tmp_path / "no_bench.py").write_text("")
    monkeypatch.setattr(layerlight.bench, "__path__", [str(tmp_path)])
    for name in ("made_up", "no_bench"):
        monkeypatch.delitem(sys.modules, f"layerlight.bench.{name}", raising=False)


@pytest.mark.usefixtures("benchmark")
def test_bench_passes_its_words_and_its_code_on(layerlight: Command) -> None:
    assert layerlight("bench", "made_up").code == 0
    assert layerlight("bench", "made_up", "--missed").code == 1


@pytest.mark.usefixtures("benchmark")
def test_bench_names_those_there_are(layerlight: Command) -> None:
    said = layerlight("bench")
    assert (said.code, said.err) == (0, "There are: made_up.\n")
    said = layerlight("bench", "no_bench")
    assert said.code == 2
    assert "made_up" in said.err
