"""A chat leaves as Markdown or JSON, whole and readable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from layerlight.core.errors import StoreFailed
from layerlight.core.messages import ChatMessage, RunResult, TextRequest
from layerlight.store.chat_export import as_json, as_markdown, write_chat
from layerlight.store.chats import ChatStore, Conversation

REQUEST = TextRequest((ChatMessage("user", "Where?"),), seed=7)
RESULT = RunResult("In **Paris** 漢.", (1, 2), 3, 7, "end token", 0.5, 0.1, 4.0)


@pytest.fixture
def store() -> Iterator[ChatStore]:
    with ChatStore(None, clock=lambda: 86400.0) as opened:
        yield opened


@pytest.fixture
def chat(store: ChatStore) -> Conversation:
    """A question with two answers, of which the second is shown."""
    made = store.new_conversation()
    question = store.append_turn(made.id, "user", "Where?\n")
    store.append_turn(made.id, "assistant", "Nowhere.", folder="/models/old")
    store.append_turn(
        made.id, "assistant", RESULT.text, request=REQUEST, result=RESULT, folder="/models/New-1B", after=question.id
    )
    found = store.conversation(made.id)
    assert found is not None
    return found


def test_markdown_holds_what_is_shown_and_who_said_it(store: ChatStore, chat: Conversation) -> None:
    text = as_markdown(chat, store.turns(chat.id))
    assert text == "# Where?\n\n## You\n\nWhere?\n\n## New-1B\n\nIn **Paris** 漢.\n"


def test_json_holds_all_turns_and_what_repeats_them(store: ChatStore, chat: Conversation) -> None:
    data = json.loads(as_json(chat, store.turns(chat.id), store.all_turns(chat.id)))
    assert (data["title"], data["created"]) == ("Where?", "1970-01-02T00:00:00+00:00")
    assert [(turn["content"], turn["shown"]) for turn in data["turns"]] == [
        ("Where?\n", True), ("Nowhere.", False), (RESULT.text, True),
    ]  # fmt: skip
    question, old, new = data["turns"]
    assert old["after"] == new["after"] == question["id"]
    assert new["request"]["seed"] == 7
    assert new["request"]["messages"] == []
    assert new["result"]["tokens"] == [1, 2]


def test_an_empty_chat_has_a_title(store: ChatStore) -> None:
    assert as_markdown(store.new_conversation(), ()) == "# Chat\n"


def test_a_file_that_cant_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="could not be written"):
        write_chat(tmp_path / "none" / "chat.md", "words")
