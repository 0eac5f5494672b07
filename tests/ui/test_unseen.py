"""Models one doesn't have: from the Hub by name, or from a folder with only a config; planned, drawn, not loaded."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton

from layerlight.core.errors import DownloadFailed, LayerlightError
from layerlight.core.messages import LoadRequest, StrategiesRequest
from layerlight.ui import inspector
from layerlight.ui.inspector import ON_THE_HUB, Found
from layerlight.ui.unseen_dialog import UnseenDialog
from tests.core.models import dense
from tests.model_folders import write_gguf, write_llama
from tests.ui.conftest import Bench, MakeBench

NAME = "tiny/llama"
OFFLINE = DownloadFailed("The Hub can't be reached to ask about tiny/llama.", hint="Check the network.")


class ScriptedHub:
    """Answers when it is told to, on the thread that asks."""

    def __init__(self, answer: Found | LayerlightError) -> None:
        self.answer, self.asked = answer, ""
        self.thread: threading.Thread | None = None
        self.go_on = threading.Event()

    def __call__(self, name: str) -> Found:
        self.asked, self.thread = name, threading.current_thread()
        self.go_on.wait(10)
        if isinstance(self.answer, LayerlightError):
            raise self.answer
        return self.answer


def on_the_hub(bench: Bench, answer: Found | LayerlightError | None = None) -> ScriptedHub:
    model = replace(dense(), folder="", name=NAME)
    hub = ScriptedHub(answer or Found(model, "", '{"model_type": "llama"}', ON_THE_HUB.format(NAME)))
    bench.session._inspector._ask_hub = hub
    return hub


def name_it(bench: Bench, words: str, by: str = "keyboard") -> UnseenDialog:
    """Opens the dialog by the third door, or by its keys, and types."""
    if by == "mouse":
        bench.qtbot.mouseClick(bench.desk.welcome.unseen_button, Qt.MouseButton.LeftButton)
    else:
        bench.desk.menus.actions["unseen"].trigger()
    dialog = bench.desk.unseen
    assert dialog is not None
    bench.qtbot.keyClicks(dialog.field, words)
    if by == "mouse":
        bench.qtbot.mouseClick(dialog.plan_button, Qt.MouseButton.LeftButton)
    else:
        bench.qtbot.keyClick(dialog.field, Qt.Key.Key_Return)
    return dialog


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
@pytest.mark.parametrize("words", [NAME, f"hub:{NAME}", f"  {NAME} "])
def test_it_is_asked_on_a_thread_then_planned_and_drawn(bench: Bench, by: str, words: str) -> None:
    hub = on_the_hub(bench)
    dialog = name_it(bench, words, by)
    assert not dialog.isVisible()
    assert f"Asking the Hugging Face Hub about {NAME}" in bench.desk.notice
    bench.qtbot.waitUntil(lambda: hub.asked == NAME)
    assert hub.thread is not threading.main_thread()
    hub.go_on.set()
    bench.qtbot.waitUntil(lambda: bench.session.state.plan is not None)
    bench.qtbot.waitUntil(lambda: bench.desk.working)
    assert bench.desk.notice == ""
    assert bench.desk.work.map.arranged.lanes
    assert dict(bench.desk.work.facts.facts)["Weights"].endswith("not on this machine")
    assert bench.session.settings.recent_folders == ()


def test_it_can_not_be_loaded_and_the_button_says_why(bench: Bench) -> None:
    on_the_hub(bench).go_on.set()
    name_it(bench, NAME)
    bench.qtbot.waitUntil(lambda: bench.session.state.plan is not None)
    why = ON_THE_HUB.format(NAME)
    load = bench.desk.work.verdict.button("load")
    assert isinstance(load, QPushButton)
    bench.qtbot.waitUntil(load.isVisible)
    assert not load.isEnabled()
    assert load.toolTip() == why
    assert not bench.desk.menus.actions["load"].isEnabled()
    assert bench.desk.work.verdict.banner is not None
    assert why in bench.desk.work.verdict.banner.second
    bench.session.load()
    assert bench.engine.of_kind(LoadRequest) == []
    bench.open()
    bench.qtbot.waitUntil(load.isEnabled)
    assert load.toolTip() == ""


def test_accelerate_is_asked_about_its_config(bench: Bench) -> None:
    on_the_hub(bench).go_on.set()
    name_it(bench, NAME)
    bench.qtbot.waitUntil(lambda: bool(bench.engine.of_kind(StrategiesRequest)))
    request = bench.engine.of_kind(StrategiesRequest)[-1]
    assert isinstance(request, StrategiesRequest)
    assert json.loads(request.config or "") == {"model_type": "llama"}


def test_offline_is_one_clear_sentence_and_the_name_stays(bench: Bench) -> None:
    on_the_hub(bench, OFFLINE).go_on.set()
    dialog = name_it(bench, NAME)
    bench.qtbot.waitUntil(lambda: bench.session.state.error is not None)
    banner = bench.desk.work.verdict
    bench.qtbot.waitUntil(lambda: banner.banner is not None and OFFLINE.message in banner.banner.words)
    assert bench.desk.notice == ""
    bench.desk.menus.actions["unseen"].trigger()
    assert dialog.isVisible()
    assert dialog.field.text() == NAME


def test_told_to_stay_offline_the_hub_is_not_asked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    name_it(bench, NAME)
    bench.qtbot.waitUntil(lambda: bench.session.state.error is not None)
    error = bench.session.state.error
    assert error is not None
    assert error.message.startswith(f"The Hub was not asked about {NAME}")


def test_of_two_names_the_newer_one_counts(bench: Bench) -> None:
    slow = on_the_hub(bench, OFFLINE)
    name_it(bench, NAME)
    bench.qtbot.waitUntil(lambda: bool(slow.asked))
    bench.open()
    slow.go_on.set()
    assert slow.thread is not None
    slow.thread.join(5)
    bench.qtbot.wait(1)
    assert bench.session.state.error is None
    assert bench.session.state.model is bench.model


def test_an_empty_field_asks_nothing(bench: Bench) -> None:
    dialog = name_it(bench, "  ")
    assert dialog.isVisible()
    assert not dialog.plan_button.isEnabled()


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_known_shape_is_picked_without_any_network(bench: Bench, by: str) -> None:
    bench.desk.menus.actions["unseen"].trigger()
    dialog = bench.desk.unseen
    assert dialog is not None
    bench.qtbot.waitUntil(lambda: dialog.shapes.count() > 10)
    if by == "mouse":
        at = dialog.shapes.visualItemRect(dialog.shapes.item(0)).center()
        bench.qtbot.mouseClick(dialog.shapes.viewport(), Qt.MouseButton.LeftButton, pos=at)
        bench.qtbot.mouseDClick(dialog.shapes.viewport(), Qt.MouseButton.LeftButton, pos=at)
    else:
        dialog.shapes.setFocus()
        bench.qtbot.keyClick(dialog.shapes, Qt.Key.Key_Down)
        bench.qtbot.keyClick(dialog.shapes, Qt.Key.Key_Return)
    assert not dialog.isVisible()
    bench.qtbot.waitUntil(lambda: bench.session.state.plan is not None)


def test_a_folder_with_only_a_config_is_planned_like_it(make_bench: MakeBench, tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "tiny")
    for file in folder.iterdir():
        if file.name != "config.json":
            file.unlink()
    bench = make_bench()
    bench.session._inspector._inspect_model = inspector.inspect_model
    bench.session.open_folder(str(folder))
    bench.qtbot.waitUntil(lambda: bench.session.state.plan is not None)
    assert bench.session.problem is None
    assert "no weights yet" in bench.session.load_refusal
    assert dict(bench.desk.work.facts.facts)["Weights"].endswith("not on this machine")


def test_a_folder_with_a_config_that_tells_no_model_is_told_as_before(make_bench: MakeBench, tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "tiny", quantization_config={"quant_method": "gptq", "bits": 4})
    for file in folder.iterdir():
        if file.name != "config.json":
            file.unlink()
    bench = make_bench()
    bench.session._inspector._inspect_model = inspector.inspect_model
    bench.session.open_folder(str(folder))
    bench.qtbot.waitUntil(lambda: bench.session.problem is not None)
    assert bench.session.state.plan is None


@pytest.mark.parametrize("file", ["m-Q4_K.gguf", ""])
def test_a_gguf_file_is_told_to_gain_nothing_here(bench: Bench, tmp_path: Path, file: str) -> None:
    """E08: opened by itself or by its folder, in words that say what to take instead."""
    write_gguf(tmp_path / "m-Q4_K.gguf", {"general.architecture": "llama", "llama.context_length": 4096})
    bench.session._inspector._inspect_model = inspector.inspect_model
    bench.session.open_folder(str(tmp_path / file))
    bar = bench.desk.work.verdict
    bench.qtbot.waitUntil(lambda: bar.banner is not None and "GGUF" in bar.banner.words)
    assert bar.banner is not None
    assert "unpacked, several times the file" in bar.banner.words
    assert "does not write text" not in bar.banner.words
    assert "in 4 or 8 bit" in bar.banner.second
