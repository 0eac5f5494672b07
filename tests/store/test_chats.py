"""Chats are written before they are shown, survive crashes and broken files, and come back whole."""

from __future__ import annotations

import itertools
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from layerlight.core.characters import mended
from layerlight.core.errors import StoreFailed
from layerlight.core.messages import ChatMessage, PlaceMemory, RunResult, TextRequest
from layerlight.store import chats
from layerlight.store.chats import LEFT_OVER, ChatStore, open_chats

REQUEST = TextRequest((ChatMessage("system", "Be brief."), ChatMessage("user", "Hello 🤖")), seed=7, temperature=0.0)
RESULT = RunResult(
    "Hi.", (1, 2, 3), 12, 7, "end token", 0.5, 0.1, 4.0, (("model.layers.0", 0.01),), (PlaceMemory("cpu", 9, 5, 4),)
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chats.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[ChatStore]:
    ticks = itertools.count(100)
    with ChatStore(path, clock=lambda: float(next(ticks))) as opened:
        yield opened


def test_an_answer_comes_back_with_all_that_repeats_it(store: ChatStore, path: Path) -> None:
    chat = store.new_conversation()
    store.append_turn(chat.id, "user", "Hello 🤖")
    answer = store.append_turn(chat.id, "assistant", "", request=REQUEST, folder="/m", plan="all on cpu")
    store.update_turn(answer.id, "Hi.", RESULT)
    with ChatStore(path) as reopened:
        question, found = reopened.turns(chat.id)
    assert (question.role, question.content, question.seed) == ("user", "Hello 🤖", None)
    assert (found.content, found.request, found.result, found.seed) == ("Hi.", REQUEST, RESULT, 7)
    assert (found.folder, found.plan) == ("/m", "all on cpu")


def test_what_was_said_before_is_stored_once_and_each_request_comes_back_whole(store: ChatStore, path: Path) -> None:
    """A chat of a thousand turns would else hold half a million messages."""
    chat = store.new_conversation()
    question = store.append_turn(chat.id, "user", "Where?")
    store.append_turn(chat.id, "assistant", "")
    head, asked = ChatMessage("system", "Be brief."), ChatMessage("user", "Where?")
    first = TextRequest((head, asked), seed=1)
    answer = store.append_turn(chat.id, "assistant", "", request=first, of_turns=1, after=question.id)
    store.update_turn(answer.id, "Here.", RESULT)
    again = store.append_turn(chat.id, "user", "Sure?")
    second = TextRequest((asked, ChatMessage("assistant", "Here."), ChatMessage("user", "Sure?")), seed=2)
    last = store.append_turn(chat.id, "assistant", "Yes.", request=second, of_turns=3)
    other = store.append_turn(chat.id, "assistant", "No.", request=second, of_turns=3, after=again.id)
    kept = store._read("SELECT coalesce(group_concat(request), '') FROM turns")[0][0]
    assert "Where?" not in kept
    with ChatStore(path) as reopened:
        found = {turn.id: turn.request for turn in reopened.all_turns(chat.id)}
        shown = reopened.turns(chat.id)
    assert (found[answer.id], found[last.id], found[other.id]) == (first, second, second)
    assert shown[-1].request == second


def test_a_request_whose_turns_are_gone_is_none_and_costs_only_itself(store: ChatStore) -> None:
    chat = store.new_conversation()
    store.append_turn(chat.id, "assistant", "words", request=REQUEST, of_turns=2)
    (turn,) = store.turns(chat.id)
    assert (turn.content, turn.request) == ("words", None)


def test_the_last_conversation_is_the_one_changed_last(store: ChatStore) -> None:
    assert store.last_conversation() is None
    first, second = store.new_conversation("first"), store.new_conversation("second")
    assert store.last_conversation() == second
    store.append_turn(first.id, "user", "again")
    assert [chat.title for chat in store.conversations()] == ["first", "second"]


@pytest.mark.parametrize(
    ("question", "title"),
    [("Hello\n  world", "Hello world"), ("x" * 100, "x" * 59 + "…"), ("\ud83d", "�")],
)
def test_a_conversation_is_named_after_its_first_question(store: ChatStore, question: str, title: str) -> None:
    chat = store.new_conversation()
    store.append_turn(chat.id, "system", "Be brief.")
    store.append_turn(chat.id, "user", question)
    store.append_turn(chat.id, "user", "something else")
    assert store.conversations()[0].title == title
    store.rename(chat.id, "mine")
    store.append_turn(chat.id, "user", "more")
    assert store.conversations()[0].title == "mine"


def test_deleting_a_conversation_deletes_its_turns_only(store: ChatStore) -> None:
    gone, stays = store.new_conversation(), store.new_conversation()
    store.append_turn(gone.id, "user", "a")
    kept = store.append_turn(stays.id, "user", "b")
    store.delete(gone.id)
    assert store.conversations()[0].id == stays.id
    assert store.turns(gone.id) == ()
    assert store.turns(stays.id) == (kept,)
    store.delete_turn(kept.id)
    assert store.turns(stays.id) == ()


def test_a_deleted_conversation_can_be_brought_back_until_the_store_closes(store: ChatStore, path: Path) -> None:
    chat = store.new_conversation("dear")
    turn = store.append_turn(chat.id, "user", "a")
    store.delete(chat.id)
    assert (store.conversations(), store.conversation(chat.id), store.last_conversation()) == ((), None, None)
    store.bring_back(chat.id)
    assert store.turns(chat.id) == (turn,)
    store.delete(chat.id)
    store.close()
    with ChatStore(path) as later:
        later.bring_back(chat.id)
        assert later.conversations() == ()


def test_what_was_brought_back_survives_the_end(store: ChatStore, path: Path) -> None:
    chat = store.new_conversation("dear")
    store.delete(chat.id)
    store.bring_back(chat.id)
    store.close()
    with ChatStore(path) as later:
        assert [each.title for each in later.conversations()] == ["dear"]


def test_a_store_that_closes_removes_only_what_it_deleted_itself(store: ChatStore, path: Path) -> None:
    """Another window may still bring its own back."""
    chat = store.new_conversation("dear")
    store.delete(chat.id)
    ChatStore(path, clock=lambda: 200.0).close()
    store.bring_back(chat.id)
    assert store.conversations()


def test_what_a_crash_left_deleted_is_removed_a_day_later(store: ChatStore, path: Path) -> None:
    chat = store.new_conversation("dear")
    store.delete(chat.id)
    with ChatStore(path, clock=lambda: 200.0 + LEFT_OVER) as later:
        later.bring_back(chat.id)
        assert later.conversations() == ()


def test_another_answer_stands_beside_the_first_and_either_can_be_shown(store: ChatStore) -> None:
    chat = store.new_conversation()
    question = store.append_turn(chat.id, "user", "Where?")
    first = store.append_turn(chat.id, "assistant", "Here.")
    after = store.append_turn(chat.id, "user", "Sure?")
    second = store.append_turn(chat.id, "assistant", "There.", after=question.id)
    assert second.alternatives == (first.id, second.id)
    assert store.turns(chat.id) == (question, second)
    store.choose(first.id)
    assert [turn.content for turn in store.turns(chat.id)] == ["Where?", "Here.", "Sure?"]
    assert store.turns(chat.id)[1].alternatives == (first.id, second.id)
    assert {turn.id for turn in store.all_turns(chat.id)} == {question.id, first.id, after.id, second.id}


def test_the_first_question_can_have_alternatives_too(store: ChatStore) -> None:
    chat = store.new_conversation()
    first = store.append_turn(chat.id, "user", "Where?")
    second = store.append_turn(chat.id, "user", "When?", after=None)
    assert second.alternatives == (first.id, second.id)
    assert [turn.content for turn in store.turns(chat.id)] == ["When?"]


def test_a_turn_taken_out_leaves_no_gap(store: ChatStore) -> None:
    chat = store.new_conversation()
    turns = [store.append_turn(chat.id, "user", word) for word in ("a", "b", "c")]
    store.delete_turn(turns[1].id)
    assert [turn.content for turn in store.turns(chat.id)] == ["a", "c"]
    store.delete_turn(turns[2].id)
    store.append_turn(chat.id, "user", "d")
    assert [turn.content for turn in store.turns(chat.id)] == ["a", "d"]


def test_a_thousand_turns_are_one_branch(store: ChatStore) -> None:
    """SQLite's own recursion ends at a depth of a thousand, ours does not."""
    chat = store.new_conversation()
    with store._writing() as database:
        database.executemany(
            "INSERT INTO turns (id, conversation, role, content, folder, plan, created, parent)"
            " VALUES (?, ?, 'user', 'x', '', '', 0, ?)",
            ((n, chat.id, n - 1 or None) for n in range(1, 3001)),
        )
        database.execute("UPDATE conversations SET leaf = 1 WHERE id = ?", (chat.id,))
    store.choose(1)
    assert len(store.turns(chat.id)) == 3000
    store.delete(chat.id)
    store.close()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", ["c", "b", "a"]), ("paris", ["b", "a"]), ("PARIS rome", ["b"]), ("straße", ["c"]), ("STRASSE", ["c"]),
        ("100%", ["c"]), ("1000", []), ("then", ["b"]), ("_", []),
    ],
)  # fmt: skip
def test_conversations_are_found_by_all_words_whatever_their_case(
    store: ChatStore, words: str, found: list[str]
) -> None:
    for title, said in (("a", "In Paris."), ("b", "Rome, then Paris."), ("c", "Die Strasse: 100% öde")):
        chat = store.new_conversation(title)
        store.append_turn(chat.id, "user", said)
    assert [each.title for each in store.conversations(words)] == found


@pytest.mark.parametrize(
    ("said", "word", "excerpt"),
    [
        ("Paris.", "paris", "Paris."),
        ("It lies on the Seine,\n\nin  France.", "SEINE", "It lies on the Seine, in France."),
        ("one two three four five six seven eight", "eight", "…five six seven eight"),
        ("x" * 500 + "needle", "needle", "…" + "x" * 20 + "needle"),
        ("Nothing of it", "title", ""),
    ],
)
def test_what_stands_around_a_found_word_is_told(store: ChatStore, said: str, word: str, excerpt: str) -> None:
    chat = store.new_conversation("the title")
    store.append_turn(chat.id, "user", said)
    (found,) = store.conversations(word)
    assert found.excerpt == excerpt
    assert store.conversations()[0].excerpt == ""


def test_conversations_come_in_pages_with_their_questions_counted(store: ChatStore) -> None:
    for number in range(5):
        chat = store.new_conversation(str(number))
        for _ in range(number):
            store.append_turn(chat.id, "user", "q")
            store.append_turn(chat.id, "assistant", "a")
    pages = [store.conversations("", 2, skip) for skip in (0, 2, 4)]
    assert [[(each.title, each.questions) for each in page] for page in pages] == [
        [("4", 4), ("3", 3)], [("2", 2), ("1", 1)], [("0", 0)],
    ]  # fmt: skip


def test_chats_of_version_1_are_taken_over_whole(path: Path) -> None:
    path.parent.mkdir()
    database = sqlite3.connect(path)
    for statement in chats._SCHEMA.split(";"):
        database.execute(statement)
    database.execute("PRAGMA user_version = 1")
    database.execute("INSERT INTO conversations VALUES (1, 'one', 0, 1), (2, 'two', 0, 2), (3, 'none', 0, 0)")
    database.executemany(
        "INSERT INTO turns (conversation, role, content, folder, plan, created) VALUES (?, 'user', ?, '', '', 0)",
        ((1, "a"), (2, "x"), (1, "b"), (2, "y"), (1, "c")),
    )
    database.commit()
    database.close()
    with ChatStore(path) as store:
        assert store.notice == ""
        shown = {each.title: [turn.content for turn in store.turns(each.id)] for each in store.conversations()}
        assert shown == {"two": ["x", "y"], "one": ["a", "b", "c"], "none": []}
        store.append_turn(1, "user", "d")
        assert [turn.content for turn in store.turns(1)] == ["a", "b", "c", "d"]
    with ChatStore(path) as again:
        assert len(again.turns(1)) == 4


def test_a_second_store_on_the_file_reads_on_another_thread(store: ChatStore) -> None:
    chat = store.new_conversation("seen")
    found: list[str] = []

    def read() -> None:
        with store.beside() as own:
            found.extend(each.title for each in own.conversations())
            own.rename(chat.id, "renamed")

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert found == ["seen"]
    assert store.conversations()[0].title == "renamed"


def test_a_turn_of_a_deleted_conversation_is_a_failure_in_words(store: ChatStore) -> None:
    chat = store.new_conversation()
    store.delete(chat.id)
    with pytest.raises(StoreFailed, match="gone"):
        store.append_turn(chat.id, "user", "a")
    assert store.new_conversation().id


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("half \ud83d", "half �"),
        ("\ud83e\udd16", "🤖"),
        ("nul \0 byte", "nul \0 byte"),
        ("", ""),
        ("漢\r\n\té", "漢\r\n\té"),
    ],
)
def test_f15_any_text_is_saved(store: ChatStore, text: str, kept: str) -> None:
    chat = store.new_conversation(text)
    request = TextRequest((ChatMessage("user", text),), seed=1)
    turn = store.append_turn(chat.id, "assistant", text, request=request, folder=text, plan=text)
    store.update_turn(turn.id, text + "!")
    (found,) = store.turns(chat.id)
    assert (found.content, found.folder, found.plan) == (kept + "!", kept, kept)
    assert found.request is not None
    assert mended(found.request.messages[0].content) == kept
    assert turn.content == kept


def test_a_partial_answer_survives_a_crash(path: Path) -> None:
    """The child is gone without a goodbye, in the middle of its answer."""
    code = (
        "import os, sys; from pathlib import Path; from layerlight.store.chats import ChatStore\n"
        "s = ChatStore(Path(sys.argv[1])); c = s.new_conversation(); s.append_turn(c.id, 'user', 'q')\n"
        "t = s.append_turn(c.id, 'assistant', ''); s.update_turn(t.id, 'half an ans'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9
    with ChatStore(path) as store:
        assert store.notice == ""
        chat = store.last_conversation()
        assert chat is not None
        question, answer = store.turns(chat.id)
    assert (question.content, answer.content, answer.result) == ("q", "half an ans", None)


def test_h09_two_programs_share_one_file(path: Path) -> None:
    ChatStore(path).close()
    code = (
        "import sys; from pathlib import Path; from layerlight.store.chats import ChatStore\n"
        "s = ChatStore(Path(sys.argv[1])); c = s.new_conversation(sys.argv[2])\n"
        "for n in range(100): s.append_turn(c.id, 'user', str(n))"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in ("a", "b")]
    assert [child.wait() for child in children] == [0, 0]
    with ChatStore(path) as store:
        for chat in store.conversations():
            assert [turn.content for turn in store.turns(chat.id)] == [str(number) for number in range(100)]
        assert {chat.title for chat in store.conversations()} == {"a", "b"}


def _whole_file(path: Path) -> bytes:
    with ChatStore(path) as store:
        chat = store.new_conversation()
        for number in range(200):
            store.append_turn(chat.id, "user", f"{number} " * 50)
    return path.read_bytes()


@pytest.mark.parametrize("damage", ["rubbish", "half", "hole", "text"])
def test_h08_a_broken_file_is_kept_aside(path: Path, damage: str) -> None:
    whole = _whole_file(path)
    broken = {
        "rubbish": b"\x07" * 9000,
        "half": whole[: len(whole) // 2],
        "hole": whole[:5000] + b"\xff" * (len(whole) - 5000),
        "text": b"not a database, but longer than its header is: " * 10,
    }[damage]
    path.write_bytes(broken)
    with ChatStore(path) as store:
        assert "kept as" in store.notice
        assert store.conversations() == ()
        store.append_turn(store.new_conversation().id, "user", "on it goes")
    (aside,) = path.parent.glob("chats.sqlite3.broken-*")
    assert aside.read_bytes() == broken
    with ChatStore(path) as store:
        assert store.notice == ""
        assert len(store.conversations()) == 1


def test_h08_an_empty_file_is_a_first_start(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with ChatStore(path) as store:
        assert (store.notice, store.conversations()) == ("", ())


def test_a_newer_version_s_chats_are_left_alone(path: Path) -> None:
    ChatStore(path).close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreFailed, match="newer version"):
        ChatStore(path)
    with open_chats(path) as store:
        assert "not saved" in store.notice
        store.append_turn(store.new_conversation().id, "user", "still works")
    assert path.read_bytes() == before


@pytest.mark.parametrize("place", ["file in the way", "folder in the way"])
def test_without_a_place_chats_live_in_memory(tmp_path: Path, place: str) -> None:
    blocked = tmp_path / "blocked"
    if place == "file in the way":
        blocked.touch()
        path = blocked / "chats.sqlite3"
    else:
        blocked.mkdir()
        path = blocked
    with pytest.raises(StoreFailed):
        ChatStore(path)
    with open_chats(path) as store:
        assert "not saved" in store.notice
        assert store.append_turn(store.new_conversation().id, "user", "q").id


def test_a_full_disk_is_said_and_the_store_goes_on(store: ChatStore, path: Path) -> None:
    chat = store.new_conversation()
    kept = store.append_turn(chat.id, "user", "kept")
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFailed, match="full"):
        store.append_turn(chat.id, "user", "x" * 100_000)
    store._database.execute("PRAGMA max_page_count = 1000000")
    after = store.append_turn(chat.id, "user", "after")
    assert store.turns(chat.id) == (kept, after)


def test_another_thread_s_use_is_loud(store: ChatStore) -> None:
    caught: list[BaseException] = []

    def use() -> None:
        try:
            store.conversations()
        except sqlite3.ProgrammingError as error:
            caught.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert len(caught) == 1


def test_what_one_thread_opened_and_checked_another_takes_over(path: Path) -> None:
    with ChatStore(path) as before:
        before.new_conversation("kept")
    opened: list[ChatStore] = []
    thread = threading.Thread(target=lambda: opened.append(open_chats(path)))
    thread.start()
    thread.join()
    with opened[0] as store:
        with pytest.raises(sqlite3.ProgrammingError, match="not taken them over"):
            store.new_conversation()
        store.take_over().new_conversation("new")
        assert [chat.title for chat in store.conversations()] == ["new", "kept"]


def test_a_saved_shape_of_another_version_costs_only_itself(store: ChatStore) -> None:
    chat = store.new_conversation()
    store.append_turn(chat.id, "assistant", "words", request=REQUEST, result=RESULT)
    store._database.execute("""UPDATE turns SET request = '{"other": 1}', result = 'no json'""")
    (turn,) = store.turns(chat.id)
    assert (turn.content, turn.request, turn.result, turn.seed) == ("words", None, None, None)


def test_importing_it_opens_nothing(tmp_path: Path) -> None:
    code = "import layerlight.store.chats, layerlight.core.settings, sys; assert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "LAYERLIGHT_HOME": str(tmp_path / "h")}, check=False
    )
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []
