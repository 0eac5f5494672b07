"""An engine process that aborts while it answers: one message, the partial answer kept, the same window goes on."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from layerlight.core.messages import EngineStopped
from layerlight.core.settings import Settings
from layerlight.core.state import Phase
from layerlight.store.chats import ChatStore, open_chats
from layerlight.ui.link import Link
from layerlight.ui.session import Session
from tests.core.models import dense
from tests.fakes import inspecting

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="dies by POSIX signals")

FAKE = Path(__file__).with_name("fake_engine.py")
PATIENCE = 20_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    with open_chats(tmp_path / "chats.db") as opened:
        yield opened


@pytest.fixture
def link(tmp_path: Path) -> Iterator[Link]:
    made = Link([sys.executable, str(FAKE), "good"], os.environ, tmp_path / "layerlight.log")
    yield made
    made.close()
    made.finish()


@pytest.mark.parametrize("number", ["SIGABRT", "SIGSEGV", "SIGBUS", "SIGKILL"])
def test_d06_what_was_written_is_kept_and_the_window_answers_again(
    number: str, qtbot: QtBot, link: Link, store: ChatStore, tmp_path: Path
) -> None:
    """D06: abort() in a library, a bad address, a file cut short, no memory left: while an answer is written."""
    session = Session(link, Settings(context=64, max_new_tokens=9), store, inspecting(dense()))
    died: list[EngineStopped] = []
    link.arrived.connect(lambda events: died.extend(event for event in events if isinstance(event, EngineStopped)))

    def load_and_ask(question: str) -> None:
        qtbot.waitUntil(lambda: session.state.engine_warm and session.state.plan is not None, timeout=PATIENCE)
        session.load()
        qtbot.waitUntil(lambda: session.state.phase is Phase.READY, timeout=PATIENCE)
        session.ask(question)
        qtbot.waitUntil(lambda: session.state.phase is Phase.RUNNING, timeout=PATIENCE)
        qtbot.waitUntil(lambda: "word9 " in session.state.answer, timeout=PATIENCE)

    session.begin()
    session.open_folder("/models/dense")
    load_and_ask("Hello?")
    first = link.pid
    assert first is not None
    os.kill(first, getattr(signal, number))
    qtbot.waitUntil(lambda: bool(died), timeout=PATIENCE)
    assert session.state.error is not None
    assert number in session.state.error.message
    assert ("from outside" in session.state.error.message) == (number == "SIGKILL")
    assert session.state.loaded is None
    load_and_ask("And now?")
    assert link.pid != first
    session.stop()
    qtbot.waitUntil(lambda: session.state.phase is Phase.READY, timeout=PATIENCE)
    assert len(died) == 1
    session.close()
    with open_chats(tmp_path / "chats.db") as reopened:
        conversation = reopened.last_conversation()
        assert conversation is not None
        turns = [turn for turn in reopened.turns(conversation.id) if turn.role != "system"]
    assert [turn.role for turn in turns] == ["user", "assistant", "user", "assistant"]
    assert turns[1].content.startswith("word0 word1 word2 ")
    assert "word9 " in turns[1].content
