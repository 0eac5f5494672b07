"""`plan` beyond one folder on this machine: other machines, tables, pins, strategies, exports, fixes."""

from __future__ import annotations

import ast
import io
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layerlight.cli import main
from layerlight.core.advice import Verdict
from layerlight.core.device import Machine
from layerlight.core.errors import LoadFailed
from layerlight.core.machines.machine_files import machine_names, read_machine
from layerlight.core.machines.public_models import public_model_names
from layerlight.core.plan import Plan
from layerlight.core.plan_table import Cell
from layerlight.terminal.drawn_table import draw_machines, draw_matrix
from layerlight.terminal.plan_tables import of_cell
from tests.core.models import GIB, accelerator, disk, ram
from tests.terminal.conftest import Command
from tests.terminal.fake_engine import FakeEngine

CARD = "desktop-rtx3060-12gb"
PLAN_KEYS = {
    "folder", "model", "limits", "context", "dtype", "quantization", "kv_cache", "attention", "fits", "shortfall",
    "checked", "verdict", "advice", "hint", "notes", "warnings", "placements", "device_map", "predicted", "source",
    "machine", "strategy", "pins", "workload", "fixes", "unused",
}  # fmt: skip


# -- another machine ---------------------------------------------------------------------------------------------------


def test_another_machine_is_said_to_be_one_and_this_one_is_not_looked_at(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine
) -> None:
    said = layerlight("plan", tiny_folder, "--machine", CARD)
    assert said.code == 0
    assert "it would be:" in said.out.splitlines()[0]
    assert "cuda:0" in said.out
    found = layerlight("plan", tiny_folder, "--machine", CARD, "--json").found
    assert set(found) == PLAN_KEYS
    assert found["machine"]["name"] == CARD
    assert engine.looks == []


@pytest.mark.parametrize(("machine", "words"), [("no-such", "no machine"), ("desktop-rtx306", "Did you mean")])
def test_an_unknown_machine_is_refused_with_near_names(
    layerlight: Command, tiny_folder: Path, machine: str, words: str
) -> None:
    said = layerlight("plan", tiny_folder, "--machine", machine)
    assert said.code == 2
    assert words in said.err


def test_a_saved_machine_is_planned_for_like_a_known_one(
    layerlight: Command, tiny_folder: Path, engine: FakeEngine, tmp_path: Path
) -> None:
    engine.machine = Machine((accelerator("cuda:0", free=8 * GIB), ram(), disk()), (("cpu", 2e10),), "2.0")
    file = tmp_path / "mine.toml"
    said = layerlight("devices", "--save", file)
    assert (said.code, "was saved" in said.err) == (0, True)
    assert read_machine(file).devices == engine.machine.devices
    engine.machine = Machine((ram(), disk()))
    found = layerlight("plan", tiny_folder, "--machine", file, "--json").found
    assert set(found["device_map"].values()) == {"cuda:0"}


def test_a_machine_that_can_not_be_saved_is_a_failure(layerlight: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    said = layerlight("devices", "--save", tmp_path / "file" / "mine.toml")
    assert said.code == 1
    assert "could not be" in said.err


def test_why_a_card_is_not_fuller_is_said(layerlight: Command) -> None:
    """Shows 5: the room that stays unused, and what one layer more would lack or cost."""
    said = layerlight("plan", "qwen3-14b", "--machine", CARD)
    assert "only if other layers run elsewhere" in said.out
    found = layerlight("plan", "qwen3-14b", "--machine", CARD, "--json").found
    assert found["unused"]["cuda:0"] in said.out
    assert layerlight("plan", "qwen3-4b", "--machine", CARD, "--json").found["unused"] == {}


# -- other models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["qwen3-8b", "Qwen/Qwen3-8B"])
def test_a_public_model_is_planned_by_name(layerlight: Command, name: str) -> None:
    said = layerlight("plan", name, "--machine", CARD)
    assert "no weight file was read" in said.out
    found = layerlight("plan", name, "--machine", CARD, "--json").found
    assert (found["source"], found["model"]["name"], found["folder"]) == ("public", "qwen3-8b", "")


def test_a_folder_comes_before_a_public_model_of_that_name(
    layerlight: Command, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpt2").symlink_to(tiny_folder, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    assert layerlight("plan", "gpt2", "--machine", CARD, "--json").found["source"] == "folder"


def test_a_config_alone_is_planned_and_refused_to_run(
    layerlight: Command, tiny_folder: Path, tmp_path: Path, engine: FakeEngine
) -> None:
    (tmp_path / "config.json").write_bytes((tiny_folder / "config.json").read_bytes())
    said = layerlight("plan", tmp_path)
    assert (said.code, "no weight file was read" in said.out) == (0, True)
    found = layerlight("plan", tmp_path, "--json").found
    whole = layerlight("plan", tiny_folder, "--json").found
    assert (found["source"], whole["source"]) == ("config", "folder")
    assert found["device_map"] == whole["device_map"]
    assert found["predicted"]["bytes"] == whole["predicted"]["bytes"]
    said = layerlight("run", tmp_path, "--prompt", "x")
    assert said.code == 1
    assert engine.made == 0


@pytest.mark.parametrize("words", [("run", "qwen3-8b", "--prompt", "x"), ("run", "hub:a/b", "--prompt", "x")])
def test_what_is_not_on_this_machine_is_not_run(layerlight: Command, engine: FakeEngine, words: tuple[str]) -> None:
    said = layerlight(*words)
    assert (said.code, "planned, not run" in said.err, engine.made) == (2, True, 0)


def test_a_near_name_is_offered(layerlight: Command) -> None:
    said = layerlight("plan", "qwen3-8")
    assert (said.code, "Did you mean" in said.err, "qwen3-8b" in said.err) == (2, True, True)


# -- pins, strategies, workload ----------------------------------------------------------------------------------------


def test_pins_are_kept_and_told(layerlight: Command, tiny_folder: Path, engine: FakeEngine) -> None:
    pins = ("--pin", "model.layers.0-1=disk", "--pin", "lm_head=cpu")
    found = layerlight("plan", tiny_folder, *pins, "--json").found
    assert found["pins"] == {"model.layers.0-1": "disk", "lm_head": "cpu"}
    assert {found["device_map"][f"model.layers.{number}"] for number in (0, 1)} == {"disk"}
    ran = layerlight("run", tiny_folder, *pins, "--prompt", "x", "--json").found
    assert ran["device_map"] == found["device_map"]
    assert {each.rests_on for each in engine.loads[0].placements} == {"cpu", "disk"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--pin", "nonsense"), "is not a pin"),
        (("--pin", "model.layers.9=cuda:7"), "does not have"),
        (("--pin", "transformer.h.0=cpu"), "fits no layer"),
        (("--strategy", "auto", "--pin", "*=cpu"), "knows nothing of --pin"),
        (("--strategy", "auto", "--map", "x.json"), "knows nothing of --map"),
        (("--map", "x.json", "--pin", "*=cpu"), "nothing left to pin"),
        (("--strategy", "best"), "invalid choice"),
        (("--prompt-tokens", "0"), "at least 1"),
        (("--export", "yaml"), "can't be understood"),
        (("--export", "json", "a", "b"), "can't be understood"),
        (("--table", "--compare"), "two answers"),
        (("--table", "--pin", "*=cpu"), "belong to one"),
        (("--compare", "--pin", "*=cpu"), "choose every place"),
        (("--machine", ""), "not a machine file"),
        (("--table", "--machine", ""), "not a machine file"),
    ],
)
def test_bad_requests_are_one_sentence(
    layerlight: Command, tiny_folder: Path, words: tuple[str, ...], expected: str
) -> None:
    said = layerlight("plan", tiny_folder, *words)
    assert (said.code, said.out) == (2, "")
    assert expected in said.err


_LONG = "x" * 300
_NOBODY = "~nobody-of-that-name/x"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows takes any name for that of a person")
@pytest.mark.parametrize(
    "words",
    [
        ("plan", "PATH"), ("run", "PATH", "--prompt", "x"), ("inspect", "PATH"),
        ("plan", "MODEL", "--machine", "PATH"), ("plan", "MODEL", "--map", "PATH"),
        ("plan", "--table", "--machine", "PATH"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", [_LONG, f"./{_LONG}/x", _NOBODY])
def test_a_path_that_can_t_be_is_a_bad_request(
    layerlight: Command, tiny_folder: Path, path: str, words: tuple[str, ...]
) -> None:
    said = layerlight(*({"PATH": path, "MODEL": str(tiny_folder)}.get(word, word) for word in words))
    assert (said.code, said.out) == (2, "")
    assert path in said.err
    assert ".." not in said.err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows takes any name for that of a person")
@pytest.mark.parametrize(
    ("path", "code"), [(_NOBODY, 2), (_LONG, 1)], ids=["nobody", "too long"]
)  # what can't be written is a failure
@pytest.mark.parametrize("words", [("devices", "--save"), ("plan", "MODEL", "--export", "json")])
def test_a_path_that_can_t_be_written_to_is_said_in_words(
    layerlight: Command, tiny_folder: Path, path: str, code: int, words: tuple[str, ...]
) -> None:
    said = layerlight(*(str(tiny_folder) if word == "MODEL" else word for word in words), path)
    assert (said.code, said.out) == (code, "")
    assert path in said.err
    assert "unexpected" not in said.err


@pytest.mark.parametrize("words", [(), ("--compare",), ("--export", "json")])
def test_a_model_must_be_named_save_for_a_table(layerlight: Command, words: tuple[str, ...]) -> None:
    said = layerlight("plan", *words)
    assert (said.code, "There is no model." in said.err) == (2, True)


def test_a_plan_saved_for_another_model_is_refused_by_name(
    layerlight: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "plan.json"
    assert layerlight("plan", tiny_folder, "--export", "json", saved).code == 0
    assert layerlight("plan", tiny_folder, "--map", saved).code == 0
    content = json.loads(saved.read_text("utf-8"))
    saved.write_text(json.dumps({**content, "model": "other", "parameters": 1}), "utf-8")
    said = layerlight("plan", tiny_folder, "--map", saved)
    assert said.code == 2
    assert "saved for other" in said.err


def test_the_workload_reaches_the_plan(layerlight: Command, tiny_folder: Path) -> None:
    found = layerlight("plan", tiny_folder, "--prompt-tokens", 2000, "--answer-tokens", 8, "--json").found
    assert found["workload"] == {"prompt": 2000, "answer": 8}


class FakeAccelerate:
    """Puts everything where it is told to."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.asked: list[tuple[str, ...]] = []

    def __call__(
        self, plan: Plan, strategies: Sequence[str], config: Mapping[str, Any] | None = None
    ) -> Mapping[str, tuple[tuple[str, str], ...]]:
        self.asked.append(tuple(strategies))
        pairs = tuple((layer.name, self.place) for layer in plan.model.layers)
        return dict.fromkeys(strategies, pairs)


def test_accelerate_s_strategies_are_asked_of_it(
    tiny_folder: Path, engine: FakeEngine, capfd: pytest.CaptureFixture[str]
) -> None:
    accelerate = FakeAccelerate("disk")
    words = ["run", str(tiny_folder), "--strategy", "balanced", "--prompt", "x", "--json"]
    assert main(words, engine.look, engine, accelerate) == 0
    found = json.loads(capfd.readouterr().out)
    assert set(found["device_map"].values()) == {"disk"}
    assert found["placements"][0]["reason"] == "Placed by accelerate's “balanced”."
    assert accelerate.asked == [("balanced",)]
    assert {each.rests_on for each in engine.loads[0].placements} == {"disk"}


def test_compare_prices_each_strategy(tiny_folder: Path, engine: FakeEngine, capfd: pytest.CaptureFixture[str]) -> None:
    accelerate = FakeAccelerate("disk")
    engine.machine = replace(engine.machine, bandwidths=(*engine.rates, ("disk-ring", 1e5)))
    assert main(["plan", str(tiny_folder), "--compare"], engine.look, engine, accelerate) == 0
    told = capfd.readouterr().out
    assert main(["plan", str(tiny_folder), "--compare", "--json"], engine.look, engine, accelerate) == 0
    rows = json.loads(capfd.readouterr().out)["strategies"]
    assert [row["strategy"] for row in rows] == [
        "fastest", "most-on-gpu", "auto", "balanced", "balanced_low_0", "sequential",
    ]  # fmt: skip
    assert all(row["strategy"] in told for row in rows)
    assert {key for row in rows for key in row} == {
        "strategy", "fits", "shortfall", "weights", "peak", "seconds_per_token", "workload_seconds", "device_map",
        "trouble",
    }  # fmt: skip
    assert all(row["fits"] for row in rows)
    assert rows[0]["seconds_per_token"] < rows[2]["seconds_per_token"]


def test_compare_says_what_a_strategy_can_not_do(
    tiny_folder: Path, engine: FakeEngine, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", str(tiny_folder), "--compare", "--quantize", "nf4"]
    assert main(words, engine.look, engine, FakeAccelerate("disk")) == 0
    told = capfd.readouterr().out
    assert "refused" in told
    assert "bitsandbytes" in told


def test_compare_shows_ours_where_accelerate_can_not_tell(
    tiny_folder: Path, engine: FakeEngine, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(plan: Plan, strategies: Sequence[str], config: object = None) -> Mapping[str, tuple[tuple[str, str], ...]]:
        raise LoadFailed("No such model.")

    assert main(["plan", str(tiny_folder), "--compare", "--json"], engine.look, engine, fail) == 0
    rows = json.loads(capfd.readouterr().out)["strategies"]
    assert [row["fits"] for row in rows] == [True, True, False, False, False, False]
    assert {row["trouble"] for row in rows[2:]} == {"No such model."}


# -- fixes -------------------------------------------------------------------------------------------------------------


def test_fixes_come_with_gain_price_and_the_options_that_apply_them(layerlight: Command) -> None:
    words = ("plan", "qwen3-8b", "--machine", CARD, "--context", 4096)
    fixes = layerlight(*words, "--json").found["fixes"]
    assert [fix["gain"] for fix in fixes] == sorted((fix["gain"] for fix in fixes), reverse=True)
    said = layerlight(*words)
    applied = [fix for fix in fixes if fix["options"]]
    assert ["--quantize int8"] in [fix["options"] for fix in applied]
    for fix in fixes:
        assert fix["words"] in said.out
        assert fix["price"][1:] in said.out
    for fix in applied:
        options = " ".join(fix["options"]).split()
        again = layerlight(*words, *options, "--json").found
        assert again["predicted"]["seconds"]["per_token"] == pytest.approx(fix["seconds_per_token"])


def test_experts_are_rows_of_their_own_and_can_be_moved_to_ram(layerlight: Command) -> None:
    """A12: layers stand together, and so do their experts; the option that is told does what is said."""
    words = ("plan", "qwen3-30b-a3b", "--machine", "desktop-rtx4090-24gb")
    said = layerlight(*words, "--pin", "*.experts=disk")
    assert "model.layers.0.mlp.experts … model.layers.47.mlp.experts (48)" in said.out
    assert "model.embed_tokens … model.layers.47 (50)" in said.out
    assert "The experts of 48 of 48 layers are read from disk" in said.out
    assert "--pin '*.experts=cpu'" in said.out
    moved = layerlight(*words, "--pin", "*.experts=disk", "--pin", "*.experts=cpu", "--json").found
    assert {place for name, place in moved["device_map"].items() if name.endswith(".experts")} == {"cpu"}
    fixes = layerlight(*words, "--pin", "*.experts=disk", "--json").found["fixes"]
    fix = next(fix for fix in fixes if "experts" in fix["words"])
    assert moved["predicted"]["seconds"]["per_token"] == pytest.approx(fix["seconds_per_token"])


def test_a_smaller_sibling_and_another_machine_can_be_planned_as_they_are_told(layerlight: Command) -> None:
    words = ("plan", "llama-3.1-70b", "--machine", "desktop-rtx3090-24gb", "--context", 1024)
    sibling = next(fix for fix in layerlight(*words, "--json").found["fixes"] if fix["model"])
    assert f"plan {sibling['model']}" in layerlight(*words).out
    again = layerlight("plan", sibling["model"], *words[2:], "--json").found
    assert again["predicted"]["seconds"]["per_token"] == pytest.approx(sibling["seconds_per_token"])
    words = ("plan", "mixtral-8x7b", "--machine", "laptop-cpu-16gb", "--context", 1024)
    (fix,) = layerlight(*words, "--json").found["fixes"]
    option, name = fix["options"][0].split()
    assert option == "--machine"
    again = layerlight("plan", "mixtral-8x7b", "--machine", name, "--context", 1024, "--json").found
    assert again["predicted"]["seconds"]["per_token"] == pytest.approx(fix["seconds_per_token"])


def test_what_is_to_be_left_out_is_told_too(layerlight: Command) -> None:
    words = ("plan", "qwen3-4b", "--machine", "desktop-rtx3090-24gb", "--json")
    options = [
        option
        for more in (("--limit", "cuda:0=2GiB"), ("--pin", "*.layers.*=disk"), ("--strategy", "most-on-gpu"))
        for fix in layerlight(*words, *more).found["fixes"]
        for option in fix["options"]
    ]
    assert "without --limit cuda:0" in options
    assert "without --pin" in options


def test_what_does_not_fit_lists_what_makes_it_fit(layerlight: Command) -> None:
    words = ("plan", "qwen3-8b", "--machine", CARD, "--limit", "disk=0", "--limit", "cpu=0")
    said = layerlight(*words)
    assert (said.code, said.out) == (2, "")
    assert "What would help" in said.err
    found = layerlight(*words, "--json").found
    assert found["fits"] is False
    assert found["fixes"]
    assert {fix["gain"] for fix in found["fixes"]} == {None}
    assert found["error"]["kind"] == "DoesNotFit"


# -- exports -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to_file", [False, True])
@pytest.mark.parametrize("form", ["python", "device-map", "json"])
def test_exports_go_to_stdout_or_a_file(
    layerlight: Command, tiny_folder: Path, tmp_path: Path, form: str, to_file: bool
) -> None:
    file = tmp_path / "out"
    said = layerlight("plan", tiny_folder, "--export", form, *([file] if to_file else []))
    assert said.code == 0
    text = file.read_text("utf-8") if to_file else said.out
    assert (said.out == "") is to_file
    layers = layerlight("plan", tiny_folder, "--json").found["device_map"]
    match form:
        case "python":
            ast.parse(text)
            assert repr(str(tiny_folder)) in text
        case "device-map":
            assert json.loads(text) == layers
        case _:
            assert json.loads(text)["device_map"] == layers
    found = layerlight("plan", tiny_folder, "--export", form, "--json").found
    assert found == {"format": form, "file": None, "text": text}


def test_a_file_that_can_not_be_written_is_a_failure(layerlight: Command, tiny_folder: Path, tmp_path: Path) -> None:
    said = layerlight("plan", tiny_folder, "--export", "json", tmp_path / "no" / "such" / "folder")
    assert (said.code, "could not be written" in said.err) == (1, True)


def test_what_does_not_fit_is_not_exported(layerlight: Command, tiny_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    limits = ("--limit", "cpu=100KiB", "--limit", "disk=1KiB")
    assert layerlight("plan", tiny_folder, *limits, "--export", "json", file).code == 2
    assert not file.exists()


# -- tables ------------------------------------------------------------------------------------------------------------

CELL_KEYS = {"model", "machine", "verdict", "words", "bytes", "seconds_per_token", "shortfall"}


def test_the_table_has_a_cell_for_each_public_model_on_each_machine(layerlight: Command, engine: FakeEngine) -> None:
    cells = layerlight("plan", "--table", "--json").found["cells"]
    expected = [(model, machine) for model in public_model_names() for machine in machine_names()]
    assert [(cell["model"], cell["machine"]) for cell in cells] == expected
    assert len(public_model_names()) >= 20
    assert len(machine_names()) >= 20
    for cell in cells:
        assert set(cell) == CELL_KEYS
        assert cell["verdict"] in ("fits", "slow", "failed")
        assert cell["seconds_per_token"] > 0
        assert cell["bytes"]
        assert (cell["verdict"] == "failed") == (cell["shortfall"] > 0)
    assert engine.looks == []


@pytest.mark.parametrize("order", ["first", "last"])
def test_a_table_of_one_model_takes_the_plan_s_wishes(layerlight: Command, tiny_folder: Path, order: str) -> None:
    words = [tiny_folder, "--table"] if order == "first" else ["--table", tiny_folder]
    said = layerlight("plan", *words, "--context", 128)
    lines = said.out.splitlines()
    assert said.code == 0
    assert [line.split()[1] for line in lines[1:]] == list(machine_names())
    assert "\x1b" not in said.out
    found = layerlight("plan", *words, "--context", 128, "--quantize", "nf4", "--json").found
    assert (found["context"], found["quantization"]) == (128, "nf4")


def test_quantising_a_table_leaves_alone_what_is_quantised(layerlight: Command) -> None:
    cells = layerlight("plan", "gpt-oss-20b", "--table", "--quantize", "nf4", "--json").found["cells"]
    assert all(cell["seconds_per_token"] for cell in cells)


def test_a_table_on_one_machine(layerlight: Command) -> None:
    cells = layerlight("plan", "--table", "--machine", CARD, "--json").found["cells"]
    assert {cell["machine"] for cell in cells} == {CARD}


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def _plain(screen: _Screen) -> list[str]:
    """Its lines without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()


CELLS = [
    Cell(model, machine, verdict, "words", (("cuda:0", 7 * GIB), ("cpu", GIB)), seconds, short)
    for model in ("granite-4.0-h-micro", "llama-3.1-405b")
    for machine, verdict, seconds, short in (
        *((name, Verdict.SLOW, 1234.5, 0) for name in machine_names()),
        ("mine", Verdict.FITS, 0.02, 0),
        ("small", Verdict.FAILED, 3.0, 1023 * GIB),
        ("none", Verdict.FAILED, None, 0),
    )
]


@pytest.mark.parametrize("width", [80, 120, 300])
def test_the_drawn_table_holds_every_cell_in_the_width_there_is(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    screen = _Screen()
    draw_matrix(screen, CELLS)
    lines = _plain(screen)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    rows = [line for line in lines if line.startswith("llama-3.1-405b")]
    told = " ".join(rows).replace("llama-3.1-405b", "").replace(" s", "s").split()
    assert len(told) == len(CELLS) // 2
    assert told[-3:] == ["50/s", "−1023GiB", "no"]
    assert set(told[:-3]) == {"~1234s"}


def test_the_drawn_list_of_machines_tells_bytes_and_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    screen = _Screen()
    draw_machines(screen, CELLS[: len(CELLS) // 2])
    lines = _plain(screen)
    assert max(map(len, lines)) <= 80
    for words in (*machine_names(), "1.23e+03", "cuda:0 7.0 GiB"):
        assert any(words in line for line in lines)


def test_a_cell_is_written_with_its_bytes() -> None:
    assert of_cell(CELLS[0])["bytes"] == {"cuda:0": 7 * GIB, "cpu": GIB}
