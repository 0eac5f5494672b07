"""Past chats found, opened, renamed, deleted and brought back, by mouse and by keys; answers beside the first."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QDate, QDateTime, QEvent, QPoint, Qt, QTime
from PySide6.QtGui import QContextMenuEvent, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog, QLineEdit, QMenu, QPushButton, QWidget

from layerlight.core.errors import StoreFailed
from layerlight.core.messages import EngineStopped, Failed, Failure, PromptCounted, TextProduced, TextRequest
from layerlight.store.chats import ChatStore
from layerlight.ui.chat_list import SECOND, when
from layerlight.ui.chat_panel import ChatPanel
from layerlight.ui.past_chats import PastChats
from tests.fakes import answer_events
from tests.ui.conftest import Bench, MakeBench

CONTROL = Qt.KeyboardModifier.ControlModifier
LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    """Three chats in a file: “Whales”, then “Rome”, then “Paris”, which is shown at the start."""
    with ChatStore(tmp_path / "chats.sqlite3") as opened:
        for title, question, answer in (
            ("Whales", "How deep do they dive?", "Two kilometres."),
            ("Rome", "When was it built?", "Not in a day."),
            ("Paris", "Where is it?", "In France."),
        ):
            chat = opened.new_conversation(title)
            opened.append_turn(chat.id, "user", question)
            opened.append_turn(chat.id, "assistant", answer)
        yield opened


@pytest.fixture
def kept(make_bench: MakeBench, store: ChatStore) -> Bench:
    """A loaded model, and the last chat on the screen."""
    bench = make_bench(store=store)
    bench.session.chats.reopen()
    bench.session.reopen(bench.session.chats)
    bench.open()
    bench.load()
    return bench


def chat_of(bench: Bench) -> ChatPanel:
    return bench.desk.work.chat


def titles(bench: Bench) -> list[str]:
    return [each.title for each in chat_of(bench).past.list.conversations]


def past_of(bench: Bench) -> PastChats:
    """The list as it is once it has been read."""
    chat = chat_of(bench)
    bench.qtbot.mouseClick(chat.chats_button, LEFT)
    bench.qtbot.waitUntil(lambda: bool(titles(bench)))
    return chat.past


def press(bench: Bench, button: QPushButton) -> None:
    bench.qtbot.mouseClick(button, LEFT)


def shown(bench: Bench, *texts: str) -> None:
    bench.qtbot.waitUntil(lambda: chat_of(bench).answers == list(texts))


def answer(bench: Bench, *pieces: str) -> None:
    request = bench.engine.sent[-1]
    assert isinstance(request, TextRequest)
    bench.engine.tell(*answer_events(request, pieces))


# -- the list --------------------------------------------------------------------------------------------------------


def test_the_list_shows_the_chats_and_which_is_open(kept: Bench) -> None:
    past = past_of(kept)
    assert titles(kept) == ["Paris", "Rome", "Whales"]
    first = past.list.index(0).data(Qt.ItemDataRole.AccessibleTextRole)
    assert first.startswith("Paris, ")
    assert first.endswith(" · 1 question · open now")
    assert chat_of(kept).title == "Paris"


def test_a_chat_is_opened_by_a_double_click(kept: Bench) -> None:
    past = past_of(kept)
    at = past.view.visualRect(past.list.index(1)).center()
    kept.qtbot.mouseClick(past.view.viewport(), LEFT, pos=at)
    kept.qtbot.mouseDClick(past.view.viewport(), LEFT, pos=at)
    shown(kept, "When was it built?", "Not in a day.")
    assert not chat_of(kept).shows_past
    assert chat_of(kept).title == "Rome"


def test_a_chat_is_searched_and_opened_by_keys_alone(kept: Bench) -> None:
    chat = chat_of(kept)
    kept.window.activateWindow()
    kept.qtbot.keyClick(kept.window, Qt.Key.Key_H, CONTROL | Qt.KeyboardModifier.ShiftModifier)
    assert chat.shows_past
    assert chat.past.search.hasFocus()
    kept.qtbot.keyClicks(chat.past.search, "KILOMETRES deep")
    kept.qtbot.waitUntil(lambda: titles(kept) == ["Whales"])
    assert chat.past.list.index(0).data(SECOND).endswith(" · Two kilometres.")
    kept.qtbot.keyClick(chat.past.search, Qt.Key.Key_Return)
    shown(kept, "How deep do they dive?", "Two kilometres.")
    assert chat.entry.hasFocus()


def test_arrows_lead_from_the_search_into_the_list_and_enter_opens(kept: Bench) -> None:
    past = past_of(kept)
    kept.qtbot.keyClick(past.search, Qt.Key.Key_Down)
    assert past.view.hasFocus()
    kept.qtbot.keyClick(past.view, Qt.Key.Key_Down)
    kept.qtbot.keyClick(past.view, Qt.Key.Key_Down)
    kept.qtbot.keyClick(past.view, Qt.Key.Key_Return)
    shown(kept, "How deep do they dive?", "Two kilometres.")


def test_the_keys_that_open_the_list_lead_back(kept: Bench) -> None:
    action = kept.desk.menus.actions["past_chats"]
    action.trigger()
    assert chat_of(kept).shows_past
    action.trigger()
    assert not chat_of(kept).shows_past
    assert chat_of(kept).entry.hasFocus()


def test_escape_leaves_the_list_and_nothing_changes(kept: Bench) -> None:
    past = past_of(kept)
    kept.qtbot.keyClick(past.search, Qt.Key.Key_Escape)
    assert not chat_of(kept).shows_past
    assert chat_of(kept).answers == ["Where is it?", "In France."]


def test_what_nothing_holds_is_said(kept: Bench) -> None:
    past = past_of(kept)
    past.search.setText("no such words")
    kept.qtbot.waitUntil(lambda: not titles(kept))
    assert "No chat" in past.nothing_words
    assert not past.open_button.isEnabled()


def test_a_chat_is_renamed_in_the_list(kept: Bench, store: ChatStore) -> None:
    past = past_of(kept)
    kept.qtbot.keyClick(past.view, Qt.Key.Key_F2)
    (editor,) = [each for each in past.view.findChildren(QLineEdit) if each.isVisible()]
    assert editor.text() == "Paris"
    editor.selectAll()
    kept.qtbot.keyClicks(editor, "  The   city ")
    kept.qtbot.keyClick(editor, Qt.Key.Key_Return)
    kept.qtbot.waitUntil(lambda: titles(kept)[0] == "The city")
    assert chat_of(kept).title == "The city"
    assert store.conversations()[0].title == "The city"


def test_a_title_of_nothing_is_not_taken(kept: Bench, store: ChatStore) -> None:
    past = past_of(kept)
    press(kept, past.rename_button)
    (editor,) = [each for each in past.view.findChildren(QLineEdit) if each.isVisible()]
    editor.setText("  ")
    kept.qtbot.keyClick(editor, Qt.Key.Key_Return)
    assert store.conversations()[0].title == "Paris"


@pytest.mark.parametrize("by", ["mouse", "keys"])
def test_a_deleted_chat_can_be_brought_back(kept: Bench, store: ChatStore, by: str) -> None:
    past = past_of(kept)
    if by == "mouse":
        press(kept, past.delete_button)
    else:
        kept.qtbot.keyClick(past.view, Qt.Key.Key_Delete)
    kept.qtbot.waitUntil(lambda: titles(kept) == ["Rome", "Whales"])
    assert chat_of(kept).answers == []
    assert "Paris" in past.deleted_words
    if by == "mouse":
        press(kept, past.undo_button)
    else:
        kept.qtbot.keyClick(past.view, Qt.Key.Key_Z, CONTROL)
    kept.qtbot.waitUntil(lambda: titles(kept) == ["Paris", "Rome", "Whales"])
    shown(kept, "Where is it?", "In France.")
    assert past.deleted_words == ""


def test_several_deleted_chats_come_back_one_after_the_other(kept: Bench) -> None:
    past = past_of(kept)
    for left in (2, 1, 0):
        kept.qtbot.keyClick(past.view, Qt.Key.Key_Delete)
        kept.qtbot.waitUntil(lambda left=left: len(titles(kept)) == left)  # type: ignore[misc]
    action = kept.desk.menus.actions["bring_back"]
    for back in (1, 2, 3):
        action.trigger()
        kept.qtbot.waitUntil(lambda back=back: len(titles(kept)) == back)  # type: ignore[misc]
    assert titles(kept) == ["Paris", "Rome", "Whales"]
    assert not action.isEnabled()


def test_the_chat_that_is_being_answered_stays(kept: Bench) -> None:
    kept.session.ask("And now?")
    past = past_of(kept)
    kept.qtbot.keyClick(past.view, Qt.Key.Key_Delete)
    assert "answering" in kept.desk.notice
    assert len(titles(kept)) == 3
    kept.session.conversations.open(1)
    assert kept.session.turns[-2].content == "And now?"


def test_the_menu_of_a_chat_holds_every_action(kept: Bench) -> None:
    words = [action.text().partition("\t")[0] for action in past_of(kept).menu().actions() if action.text()]
    assert words == ["Open", "Rename", "Copy as Markdown", "Save as Markdown or JSON…", "Delete"]


@pytest.mark.parametrize(
    ("typed", "kind", "name"),
    [
        ("talk", "Markdown (*.md)", "talk.md"),
        ("talk", "JSON, with all that repeats it (*.json)", "talk.json"),
        ("talk.json", "Markdown (*.md)", "talk.json"),
        ("v1.5 talk", "Markdown (*.md)", "v1.5 talk.md"),
    ],
)
def test_a_chat_is_saved_as_it_is_called(
    kept: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, kind: str, name: str
) -> None:
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(tmp_path / typed), kind))
    press(kept, past_of(kept).save_button)
    kept.qtbot.waitUntil(lambda: name in kept.desk.notice)
    text = (tmp_path / name).read_text("utf-8")
    if name.endswith("json"):
        assert [turn["content"] for turn in json.loads(text)["turns"]] == ["Where is it?", "In France."]
    else:
        assert text.startswith("# Paris\n")


def test_a_chat_that_cant_be_saved_says_why(kept: Bench, tmp_path: Path) -> None:
    kept.session.conversations.save(3, tmp_path / "none" / "chat.md")
    kept.qtbot.waitUntil(lambda: "could not be written" in kept.desk.notice)


def test_the_chat_on_the_screen_is_copied_as_markdown(kept: Bench) -> None:
    kept.desk.menus.actions["copy_chat"].trigger()
    kept.qtbot.waitUntil(lambda: "clipboard" in kept.desk.notice)
    assert QGuiApplication.clipboard().text() == "# Paris\n\n## You\n\nWhere is it?\n\n## Answer\n\nIn France.\n"


def test_many_chats_are_read_in_pages(make_bench: MakeBench, tmp_path: Path) -> None:
    """H07."""
    with ChatStore(tmp_path / "many.sqlite3") as store:
        for number in range(130):
            store.new_conversation(str(number))
        bench = make_bench(store=store)
        bench.open()
        bench.desk.work.show_side("chat")
        past = past_of(bench)
        assert len(titles(bench)) == 60
        past.view.scrollToBottom()
        bench.qtbot.waitUntil(lambda: len(titles(bench)) == 120)
        past.view.scrollToBottom()
        bench.qtbot.waitUntil(lambda: len(titles(bench)) == 130)
        assert titles(bench) == [str(number) for number in reversed(range(130))]


# -- other answers and other questions -------------------------------------------------------------------------------


def test_another_answer_is_kept_beside_the_first(kept: Bench, store: ChatStore) -> None:
    chat = chat_of(kept)
    press(kept, chat.talk.again_button)
    request = kept.engine.sent[-1]
    assert isinstance(request, TextRequest)
    assert [message.content for message in request.messages] == ["Where is it?"]
    answer(kept, "On the ", "Seine.")
    shown(kept, "Where is it?", "On the Seine.")
    view = chat.talk.views[-1]
    before, after = view.findChildren(QPushButton)
    assert not after.isEnabled()
    press(kept, before)
    shown(kept, "Where is it?", "In France.")
    before, after = chat.talk.views[-1].findChildren(QPushButton)
    assert not before.isEnabled()
    press(kept, after)
    shown(kept, "Where is it?", "On the Seine.")
    assert len(store.all_turns(3)) == 3


def test_a_question_is_asked_in_other_words_by_keys_alone(kept: Bench, store: ChatStore) -> None:
    chat = chat_of(kept)
    chat.entry.setFocus()
    kept.qtbot.keyClick(chat.entry, Qt.Key.Key_Up)
    assert chat.is_editing
    assert chat.entry.toPlainText() == "Where is it?"
    kept.qtbot.keyClicks(chat.entry, "How large is it?")
    kept.qtbot.keyClick(chat.entry, Qt.Key.Key_Return)
    assert not chat.is_editing
    answer(kept, "Large.")
    shown(kept, "How large is it?", "Large.")
    assert [turn.content for turn in store.all_turns(3)] == [
        "Where is it?", "In France.", "How large is it?", "Large.",
    ]  # fmt: skip
    press(kept, chat.talk.views[0].findChildren(QPushButton)[0])
    shown(kept, "Where is it?", "In France.")


def test_leaving_an_edit_changes_nothing(kept: Bench) -> None:
    chat = chat_of(kept)
    press(kept, chat.talk.edit_button)
    assert chat.is_editing
    kept.qtbot.keyClick(chat.entry, Qt.Key.Key_Escape)
    assert not chat.is_editing
    assert chat.entry.toPlainText() == ""
    assert chat.answers == ["Where is it?", "In France."]


@pytest.mark.parametrize("end", ["left", "asked"])
def test_what_was_being_written_comes_back_after_an_edit(kept: Bench, end: str) -> None:
    chat = chat_of(kept)
    chat.entry.setPlainText("Half a thou")
    kept.desk.menus.actions["edit_question"].trigger()
    assert chat.entry.toPlainText() == "Where is it?"
    if end == "left":
        kept.qtbot.keyClick(chat.entry, Qt.Key.Key_Escape)
    else:
        kept.qtbot.keyClick(chat.entry, Qt.Key.Key_Return)
    assert chat.entry.toPlainText() == "Half a thou"
    assert not chat.is_editing


def test_tab_leads_through_the_chat_in_the_order_it_is_read(kept: Bench) -> None:
    chat = chat_of(kept)
    chat.entry.setPlainText("x")
    chat.chats_button.setFocus()
    names = []
    for _ in range(8):
        QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
        now = QApplication.focusWidget()
        names.append(now.accessibleName() or (now.text() if isinstance(now, QPushButton) else type(now).__name__))
    assert names == [
        "Sampling", "New", "Answer: In France.", "Answer again", "Edit question", "Copy the last answer", "Message",
        "Send",
    ]  # fmt: skip


@pytest.mark.parametrize("end", ["failed", "died"])
def test_without_another_answer_the_first_comes_back(kept: Bench, store: ChatStore, end: str) -> None:
    kept.session.answer_again()
    assert chat_of(kept).answers == ["Where is it?", ""]
    ending = Failed(Failure("No", "It failed.", "", "X"), "TextRequest") if end == "failed" else EngineStopped(False)
    kept.engine.tell(ending)
    shown(kept, "Where is it?", "In France.")
    assert [turn.content for turn in store.turns(3)] == ["Where is it?", "In France."]


def test_a_part_of_another_answer_is_kept_too(kept: Bench) -> None:
    kept.session.answer_again()
    kept.engine.tell(PromptCounted(20, 4096, 4076), TextProduced("On the", (1,)), EngineStopped(False, "killed"))
    shown(kept, "Where is it?", "On the")


@pytest.mark.parametrize(
    ("chosen", "said"), [({"temperature": 0.0}, "temperature is 0"), ({"seed": 7}, "seed is fixed at 7")]
)
def test_that_the_same_answer_will_come_is_said(kept: Bench, chosen: dict[str, float], said: str) -> None:
    kept.session.change_settings(**chosen)
    kept.session.answer_again()
    assert said in kept.desk.notice


def test_nothing_is_answered_again_without_a_model(make_bench: MakeBench, store: ChatStore) -> None:
    bench = make_bench(store=store)
    bench.session.chats.reopen()
    bench.session.reopen(bench.session.chats)
    bench.open()
    assert not chat_of(bench).talk.again_button.isEnabled()
    assert not bench.desk.menus.actions["answer_again"].isEnabled()
    assert bench.desk.menus.actions["save_chat"].isEnabled()


def test_the_last_answer_is_copied(kept: Bench) -> None:
    button = chat_of(kept).talk.copy_button
    press(kept, button)
    assert button.text() == "Copied"
    kept.qtbot.waitUntil(lambda: button.text() == "Copy")
    assert QGuiApplication.clipboard().text() == "In France."
    QGuiApplication.clipboard().clear()
    kept.desk.menus.actions["copy_answer"].trigger()
    assert QGuiApplication.clipboard().text() == "In France."


def test_keys_lead_from_turn_to_turn_and_each_has_a_menu(kept: Bench) -> None:
    chat = chat_of(kept)
    chat.entry.setFocus()
    kept.qtbot.keyClick(chat.entry, Qt.Key.Key_Up, CONTROL)
    assert chat.talk.views[1].focused
    kept.qtbot.keyClick(chat.talk.views[1]._prose, Qt.Key.Key_Up, CONTROL)
    assert chat.talk.views[0].focused
    kept.qtbot.keyClick(chat.talk.views[0]._prose, Qt.Key.Key_C, CONTROL)
    assert QGuiApplication.clipboard().text() == "Where is it?"
    menu: QMenu = chat.talk.menu_of(chat.talk.views[0])
    assert [action.text() for action in menu.actions() if action.text()] == [
        "Copy the question", "Copy the chat as Markdown", "Answer again", "Edit the question",
    ]  # fmt: skip


# -- long chats ------------------------------------------------------------------------------------------------------


def test_of_a_long_chat_the_newest_turns_are_shown_and_earlier_ones_on_request(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    """H04: 500 turns."""
    with ChatStore(tmp_path / "long.sqlite3") as store:
        chat = store.new_conversation("long")
        for number in range(250):
            store.append_turn(chat.id, "user", f"q{number}")
            store.append_turn(chat.id, "assistant", f"a{number}")
        bench = make_bench(store=store)
        bench.session.chats.reopen()
        bench.session.reopen(bench.session.chats)
        bench.open()
        bench.desk.work.show_side("chat")
        talk = chat_of(bench).talk
        bench.qtbot.waitUntil(lambda: len(talk.views) == 24)
        assert talk.texts[0] == "q238"
        assert talk.texts[-1] == "a249"
        bar = talk.verticalScrollBar()
        bench.qtbot.waitUntil(lambda: bar.maximum() > 0 and bar.value() == bar.maximum())
        bar.triggerAction(bar.SliderAction.SliderToMinimum)
        from_end = bar.maximum() - bar.value()
        bench.qtbot.mouseClick(talk.earlier_button, LEFT)
        bench.qtbot.waitUntil(lambda: len(talk.views) == 48 and bar.maximum() > from_end + 100)
        bench.qtbot.waitUntil(lambda: bar.maximum() - bar.value() == from_end)
        assert talk.texts[0] == "q226"
        assert talk.to_end_button.isVisible()
        bench.qtbot.mouseClick(talk.to_end_button, LEFT)
        assert bar.value() == bar.maximum()
        assert not talk.to_end_button.isVisible()


def test_a_chat_that_grows_long_lets_its_earliest_views_go(make_bench: MakeBench, tmp_path: Path) -> None:
    """H04: only while the reader follows the end."""
    with ChatStore(tmp_path / "long.sqlite3") as store:
        chat = store.new_conversation("long")
        for number in range(60):
            store.append_turn(chat.id, "user", f"q{number}")
            store.append_turn(chat.id, "assistant", f"a{number}")
        bench = make_bench(store=store)
        bench.session.chats.reopen()
        bench.session.reopen(bench.session.chats)
        bench.open()
        bench.load()
        talk = chat_of(bench).talk
        bench.qtbot.waitUntil(lambda: len(talk.views) == 24)
        for shown_now in (48, 72, 96, 120):
            talk.earlier_button.click()
            bench.qtbot.waitUntil(lambda wanted=shown_now: len(talk.views) == wanted)  # type: ignore[misc]
        assert not talk.earlier_button.isVisible()
        bench.session.ask("Still there?")
        assert len(talk.views) == 122
        answer(bench, "Yes.")
        talk.follow()
        bench.session.ask("And now?")
        assert talk.texts[-2] == "And now?"
        bench.qtbot.waitUntil(lambda: len(talk.views) == 24)
        assert talk.earlier_button.isVisible()
        answer(bench, "Now.")


def test_searches_that_follow_fast_are_answered_by_the_last(kept: Bench) -> None:
    listed: list[str] = []
    kept.session.conversations.listed.connect(lambda found: listed.append(found.words))
    for words in ("p", "pa", "par", "paris"):
        kept.session.conversations.find(words)
    kept.qtbot.waitUntil(lambda: bool(listed))
    assert listed == ["paris"]
    kept.session.conversations.find("rome")
    kept.qtbot.waitUntil(lambda: listed == ["paris", "rome"])


def test_a_search_that_fails_is_said_and_the_next_one_runs(kept: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StoreFailed("The chats can't be read.", hint="Look at the disk.")

    listed: list[object] = []
    kept.session.conversations.listed.connect(listed.append)
    with monkeypatch.context() as patched:
        patched.setattr(ChatStore, "conversations", fail)
        kept.session.conversations.find("x")
        kept.qtbot.waitUntil(lambda: "Look at the disk" in kept.desk.notice)
    kept.session.conversations.find("rome")
    kept.qtbot.waitUntil(lambda: len(listed) == 1)


# -- menus by keys, closing, and what stays behind -------------------------------------------------------------------


@pytest.fixture
def menus(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The words of each menu that is opened."""
    found: list[list[str]] = []

    def popup(menu: QMenu, _at: QPoint) -> None:
        found.append([action.text().partition("\t")[0] for action in menu.actions() if action.text()])

    monkeypatch.setattr(QMenu, "popup", popup)
    return found


def context(widget: QWidget, reason: QContextMenuEvent.Reason, at: QPoint) -> None:
    QApplication.sendEvent(widget, QContextMenuEvent(reason, at, widget.mapToGlobal(at)))


def test_the_menu_of_a_chat_is_opened_by_keys_and_by_the_mouse(kept: Bench, menus: list[list[str]]) -> None:
    past = past_of(kept)
    context(past.view, QContextMenuEvent.Reason.Keyboard, QPoint(5, 5))
    assert menus[-1][0] == "Open"
    at = past.view.visualRect(past.list.index(2)).center()
    context(past.view.viewport(), QContextMenuEvent.Reason.Mouse, at)
    assert past.chosen is not None
    assert past.chosen.title == "Whales"
    assert len(menus) == 2
    context(past.view.viewport(), QContextMenuEvent.Reason.Mouse, QPoint(20, past.view.height() - 5))
    assert len(menus) == 2


def test_the_menu_of_a_turn_is_opened_by_keys(kept: Bench, menus: list[list[str]]) -> None:
    views = chat_of(kept).talk.views
    context(views[1]._prose, QContextMenuEvent.Reason.Keyboard, QPoint(5, 5))
    assert menus[-1][0] == "Copy the answer"
    kept.qtbot.keyClick(views[1]._prose, Qt.Key.Key_A, CONTROL)
    context(views[1]._prose, QContextMenuEvent.Reason.Keyboard, QPoint(5, 5))
    assert menus[-1][:2] == ["Copy the selection", "Copy the answer"]


def test_h02_the_window_closes_while_chats_are_read(kept: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    listed: list[object] = []
    kept.session.conversations.listed.connect(listed.append)
    conversations = ChatStore.conversations

    def slowly(store: ChatStore, *words: object) -> object:
        begun.set()
        go_on.wait(10)
        return conversations(store, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(ChatStore, "conversations", slowly)
    kept.session.conversations.find("paris")
    assert begun.wait(10)
    kept.window.close()
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "conversations":
            thread.join(10)
    QApplication.processEvents()
    assert listed == []


def test_chats_opened_and_closed_many_times_leave_nothing_behind(kept: Bench) -> None:
    def widgets() -> int:
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        return len(QApplication.allWidgets())

    def round_trip() -> None:
        for number, question in ((2, "When was it built?"), (3, "Where is it?")):
            kept.desk.menus.actions["past_chats"].trigger()
            kept.session.conversations.open(number)
            kept.qtbot.waitUntil(lambda wanted=question: chat_of(kept).answers[:1] == [wanted])  # type: ignore[misc]
            kept.desk.menus.actions["past_chats"].trigger()
            kept.desk.command_palette.open()
            kept.desk.command_palette.close_up()

    kept.desk.work.map.focus_block("model.layers.3")
    round_trip()
    before = widgets()
    for _ in range(30):
        round_trip()
    assert widgets() == before


@pytest.mark.parametrize(
    ("then", "words"),
    [
        (QDateTime(QDate(2026, 3, 2), QTime(14, 2)), "14:02"),
        (QDateTime(QDate(2026, 3, 1), QTime(9, 5)), "Yesterday 09:05"),
        (QDateTime(QDate(2026, 1, 12), QTime(9, 5)), "12 Jan"),
        (QDateTime(QDate(2025, 11, 12), QTime(9, 5)), "12 Nov 2025"),
    ],
)
def test_when_a_chat_was(then: QDateTime, words: str) -> None:
    now = QDateTime(QDate(2026, 3, 2), QTime(18, 0))
    assert when(then.toSecsSinceEpoch(), now) == words
