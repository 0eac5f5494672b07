"""The chat: what Enter does, what Stop keeps, how long answers stay smooth."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtWidgets import QApplication

from layerlight.core.messages import (
    EngineStopped,
    PromptCounted,
    RunFinished,
    StopRequest,
    TextProduced,
    TextRequest,
)
from layerlight.ui.chat_panel import ChatPanel
from tests.fakes import answer_events, result_of
from tests.ui.conftest import Bench

ENTER = [Qt.Key.Key_Return, Qt.Key.Key_Enter]


def chat_of(bench: Bench) -> ChatPanel:
    return bench.desk.work.chat


def asked(bench: Bench) -> TextRequest:
    request = bench.engine.sent[-1]
    assert isinstance(request, TextRequest)
    return request


@pytest.mark.parametrize("key", ENTER)
def test_enter_sends_and_empties_the_entry(loaded: Bench, key: Qt.Key) -> None:
    """H12."""
    chat = chat_of(loaded)
    loaded.qtbot.keyClicks(chat.entry, "Where?")
    loaded.qtbot.keyClick(chat.entry, key)
    assert asked(loaded).messages[-1].content == "Where?"
    assert chat.entry.toPlainText() == ""


@pytest.mark.parametrize("key", ENTER)
def test_shift_enter_makes_a_new_line(loaded: Bench, key: Qt.Key) -> None:
    chat = chat_of(loaded)
    loaded.qtbot.keyClicks(chat.entry, "One")
    loaded.qtbot.keyClick(chat.entry, key, Qt.KeyboardModifier.ShiftModifier)
    loaded.qtbot.keyClicks(chat.entry, "Two")
    assert chat.entry.toPlainText() == "One\nTwo"
    assert not loaded.engine.of_kind(TextRequest)


@pytest.mark.parametrize("key", ENTER)
def test_enter_does_not_send_while_a_word_is_being_composed(loaded: Bench, key: Qt.Key) -> None:
    """H12: the Enter that accepts an input method's word is not ours."""
    chat = chat_of(loaded)
    QApplication.sendEvent(chat.entry, QInputMethodEvent("にほ", []))
    loaded.qtbot.keyClick(chat.entry, key)
    assert not loaded.engine.of_kind(TextRequest)
    done = QInputMethodEvent("", [])
    done.setCommitString("日本")
    QApplication.sendEvent(chat.entry, done)
    loaded.qtbot.keyClick(chat.entry, key)
    assert asked(loaded).messages[-1].content == "日本"


def test_send_is_possible_only_with_words_and_a_model(opened: Bench) -> None:
    """F05."""
    chat = chat_of(opened)
    chat.entry.setPlainText("Where?")
    assert not chat.send_button.isEnabled()
    opened.load()
    assert chat.send_button.isEnabled()
    chat.entry.setPlainText("  \n ")
    assert not chat.send_button.isEnabled()


def test_an_answer_streams_and_its_speed_is_told(loaded: Bench) -> None:
    chat = chat_of(loaded)
    loaded.session.ask("Where?")
    request = asked(loaded)
    loaded.engine.tell(PromptCounted(20, 4096, 4076), TextProduced("In ", (1,)))
    assert chat.answers == ["Where?", "In "]
    assert "21 of 256" in chat.stats
    loaded.engine.tell(TextProduced("Paris.", (2,)))
    assert chat.answers[-1] == "In Paris."
    loaded.engine.tell(RunFinished(result_of(request, ("In ", "Paris."))))
    assert "11.5 tokens/s" in chat.stats
    assert "first after 0.42 s" in chat.stats


def test_what_was_particular_about_an_answer_is_told_where_its_time_is(loaded: Bench) -> None:
    """Tokens that were kept, and memory that had run out, explain the time; the next answer begins without."""
    chat = chat_of(loaded)
    loaded.session.ask("Where?")
    result = replace(result_of(asked(loaded), ("In Paris.",)), reused=20, recomputed=1024)
    loaded.engine.tell(PromptCounted(24, 4096, 4072, 20), TextProduced("In Paris.", (1,)), RunFinished(result))
    assert "20 of 24 prompt tokens were kept.\n" in chat.stats
    assert "Memory ran out once, and 1,024 tokens were computed again." in chat.stats
    loaded.session.ask("And now?")
    loaded.engine.tell(PromptCounted(30, 4096, 4066))
    assert "kept" not in chat.stats


def test_stop_keeps_the_part_and_send_works_again(loaded: Bench) -> None:
    """F01."""
    chat = chat_of(loaded)
    loaded.session.ask("Tell me everything.")
    request = asked(loaded)
    loaded.engine.tell(PromptCounted(20, 4096, 4076), TextProduced("First of", (1, 2)))
    assert chat.stop_button.isVisibleTo(chat)
    assert not chat.send_button.isVisibleTo(chat)
    loaded.qtbot.mouseClick(chat.stop_button, Qt.MouseButton.LeftButton)
    assert loaded.engine.of_kind(StopRequest)
    loaded.engine.tell(RunFinished(result_of(request, ("First of",), "stopped")))
    assert chat.answers[-1] == "First of"
    chat.entry.setPlainText("Go on.")
    assert chat.send_button.isEnabled()
    loaded.qtbot.mouseClick(chat.send_button, Qt.MouseButton.LeftButton)
    assert asked(loaded).messages[-1].content == "Go on."


def test_a_second_question_waits_in_the_entry(loaded: Bench) -> None:
    """F12."""
    chat = chat_of(loaded)
    loaded.session.ask("First?")
    loaded.engine.tell(PromptCounted(20, 4096, 4076))
    chat.entry.setPlainText("Second?")
    loaded.qtbot.keyClick(chat.entry, Qt.Key.Key_Return)
    assert chat.entry.toPlainText() == "Second?"
    assert len(loaded.engine.of_kind(TextRequest)) == 1


def test_a_new_chat_is_empty(loaded: Bench) -> None:
    loaded.session.ask("First?")
    loaded.engine.tell(*answer_events(asked(loaded), ("Yes.",)))
    loaded.session.new_conversation()
    assert chat_of(loaded).answers == []


def test_the_engines_death_keeps_the_part(loaded: Bench) -> None:
    loaded.session.ask("Where?")
    loaded.engine.tell(PromptCounted(20, 4096, 4076), TextProduced("In Par", (1,)))
    loaded.engine.tell(EngineStopped(False, "killed"))
    assert chat_of(loaded).answers == ["Where?", "In Par"]


def test_emoji_and_other_scripts_are_shown_whole(loaded: Bench) -> None:
    """F08."""
    loaded.session.ask("Draw!")
    pieces = ("🤖 ", "漢字 ", "é ", "👩‍👩‍👧")
    loaded.engine.tell(*answer_events(asked(loaded), pieces))
    assert chat_of(loaded).answers[-1] == "".join(pieces)
    assert "�" not in chat_of(loaded).answers[-1]


def test_a_long_answer_in_one_paragraph_stays_cheap(loaded: Bench) -> None:
    """H04: the last of 4,000 pieces costs the window about what the first ones did, not thousands of times as much."""
    chat = chat_of(loaded)
    loaded.session.ask("A long one?")
    loaded.engine.tell(PromptCounted(20, 4096, 4076))

    def cost(pieces: int) -> float:
        began = time.thread_time()
        for _ in range(pieces):
            loaded.engine.tell(TextProduced("and another word ", (1,)))
        return time.thread_time() - began

    cost(200)
    early = cost(200)
    cost(3200)
    late = cost(200)
    assert len(chat.answers[-1]) == len("and another word ") * 3800
    assert late < 8 * early + 0.05


def test_the_reader_who_scrolled_up_is_left_there(loaded: Bench) -> None:
    """H13."""
    chat = chat_of(loaded)
    loaded.session.ask("A long one?")
    loaded.engine.tell(PromptCounted(20, 4096, 4076))
    for n in range(80):
        loaded.engine.tell(TextProduced(f"line {n}\n", (1,)))
    bar = chat.talk.verticalScrollBar()
    loaded.qtbot.waitUntil(lambda: bar.maximum() > 200 and bar.value() == bar.maximum())
    bar.setValue(50)
    for n in range(20):
        loaded.engine.tell(TextProduced(f"more {n}\n", (1,)))
    loaded.qtbot.wait(50)
    assert bar.value() == 50


@pytest.mark.parametrize(
    ("field", "typed", "kept"),
    [("temperature", "-1", 0.0), ("top_p", "1.5", 1.0), ("top_p", "0", 0.01), ("repetition", "0", 0.5),
     ("longest", "0", 1), ("longest", "-1", 1), ("top_k", "-5", 0), ("drafted", "-1", 0), ("drafted", "99", 32)],
)  # fmt: skip
def test_sampling_values_stay_in_range_as_they_are_typed(loaded: Bench, field: str, typed: str, kept: float) -> None:
    """F06."""
    panel = chat_of(loaded).sampling
    box = getattr(panel, field)
    box.setValue(float(typed) if field in ("temperature", "top_p", "repetition") else int(typed))
    assert box.value() == pytest.approx(kept)
    loaded.session.ask("In range?")
    request = asked(loaded)
    assert request.temperature >= 0
    assert 0 < request.top_p <= 1
    assert request.repetition_penalty > 0
    assert request.max_new_tokens >= 1


def test_temperature_zero_is_called_greedy(loaded: Bench) -> None:
    """F06."""
    panel = chat_of(loaded).sampling
    panel.temperature.setValue(0)
    assert panel.temperature.text() == "greedy"
    assert loaded.session.settings.temperature == 0


def test_a_fixed_seed_goes_with_the_request(loaded: Bench) -> None:
    """F11."""
    chat_of(loaded).sampling.seed.setValue(1234)
    loaded.session.ask("Same again?")
    assert asked(loaded).seed == 1234


def test_prompt_lookup_goes_with_the_request(loaded: Bench) -> None:
    """Off until it is chosen."""
    box = chat_of(loaded).sampling.drafted
    assert box.text() == "off"
    box.setValue(7)
    loaded.session.ask("Say it again?")
    assert asked(loaded).prompt_lookup == 7
