"""The session: requests down, events up, truth kept."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from layerlight.core.errors import StoreFailed
from layerlight.core.messages import (
    DevicesSurveyed,
    EngineStarted,
    EngineStopped,
    Failed,
    Failure,
    LoadProgressed,
    LoadRequest,
    LoadStarted,
    ModelLoaded,
    ModelUnloaded,
    PromptCounted,
    RunFinished,
    StarterProgressed,
    StarterReady,
    StarterRequest,
    StopRequest,
    SurveyRequest,
    TextProduced,
    TextRequest,
    UnloadRequest,
)
from layerlight.core.model import Model
from layerlight.core.settings import Settings
from layerlight.core.state import Phase, State
from layerlight.store.chats import ChatStore
from layerlight.ui.chats import Chats, reopened
from layerlight.ui.happenings import AdviceChanged, ConversationChanged
from layerlight.ui.session import Session
from tests import fakes
from tests.core.models import GIB, MIB, dense
from tests.fakes import FakeEngine, load_began, result_of
from tests.ui.conftest import Bench, MakeBench


def test_it_starts_the_engine_and_surveys_when_that_is_warm(qtbot: QtBot) -> None:
    engine = FakeEngine()
    session = Session(engine, Settings())
    session.begin()
    assert engine.started == 1
    assert session.state.machine is not None
    assert [device.id for device in session.state.machine.devices] == ["cpu", "disk"]
    engine.warm_up()
    assert engine.of_kind(SurveyRequest)


def test_opening_a_folder_inspects_and_plans(opened: Bench) -> None:
    state = opened.session.state
    assert state.model == opened.model
    assert state.plan is not None
    assert state.plan.fits
    assert opened.session.settings.last_folder == opened.model.folder


def test_a_folder_without_a_model_is_said_and_the_old_one_stays(opened: Bench) -> None:
    opened.session.open_folder("/nowhere")
    opened.qtbot.waitUntil(lambda: opened.session.state.error is not None)
    assert opened.session.state.error is not None
    assert "/nowhere" in opened.session.state.error.message
    assert opened.session.state.model == opened.model


def test_the_newest_of_several_folders_counts(qtbot: QtBot) -> None:
    """Whatever order slow disks answer in."""
    first = threading.Event()
    models = {"/a": dense(2), "/b": dense(3)}

    def inspect(folder: str) -> object:
        if folder == "/a":
            first.wait(5)
        return models[folder]

    session = Session(FakeEngine(), Settings(), inspect=inspect)  # type: ignore[arg-type]
    session.begin()
    session.open_folder("/a")
    session.open_folder("/b")
    qtbot.waitUntil(lambda: session.state.model is models["/b"] and session.planning.advice is not None)
    session.planning._settling.stop()
    first.set()
    with qtbot.assertNotEmitted(session.changed, wait=100):
        pass
    assert session.state.model is models["/b"]


def test_a_crash_while_inspecting_is_a_word_not_a_silence(qtbot: QtBot) -> None:
    def inspect(folder: str) -> object:
        raise RuntimeError("a corrupt disk")

    session = Session(FakeEngine(), Settings(), inspect=inspect)  # type: ignore[arg-type]
    session.open_folder("/a")
    qtbot.waitUntil(lambda: session.state.error is not None)
    assert session.state.error is not None
    assert "a corrupt disk" in session.state.error.message


def test_load_sends_the_plan_as_it_is_shown(opened: Bench) -> None:
    opened.session.load()
    request = opened.engine.last_load
    plan = opened.session.state.plan
    assert request is not None
    assert plan is not None
    assert request.placements == plan.placements
    assert request.context == plan.budget.context


def test_load_while_another_model_is_opened_is_refused_in_words(opened: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the model before would be loaded."""
    read = threading.Event()
    inspector = opened.session._inspector
    inspect = inspector._inspect_model

    def slowly(folder: str) -> Model:
        read.wait(5)
        return inspect(folder)

    monkeypatch.setattr(inspector, "_inspect_model", slowly)
    with opened.qtbot.waitSignal(inspector.found):
        opened.session.open_folder("/nowhere")
        opened.session.load()
        assert opened.engine.last_load is None
        assert "still being opened" in opened.session.notice
        read.set()
    opened.session.load()
    assert opened.engine.last_load is not None


def test_a_lever_moved_just_before_load_counts(opened: Bench) -> None:
    opened.session.set_limit("cuda:0", 0)
    opened.session.load()
    assert opened.engine.last_load is not None
    assert {each.rests_on for each in opened.engine.last_load.placements} == {"cpu"}


def test_load_twice_is_one_request(opened: Bench) -> None:
    """F12: while a request is on its way nothing else is sent, and that is said."""
    opened.session.load()
    opened.session.load()
    assert len(opened.engine.of_kind(LoadRequest)) == 1
    assert "stop it, or wait" in opened.session.notice


@pytest.mark.parametrize("command", ["load", "unload", "open", "new_chat", "ask", "starter"])
def test_nothing_else_begins_while_an_answer_is_written(loaded: Bench, command: str) -> None:
    """F12: a second run, a chat or model switch and an unload are refused, in words, and the answer goes on."""
    session = loaded.session
    assert session.ask("First?")
    loaded.engine.tell(PromptCounted(8, 4096, 4088), TextProduced("One", (1,)))
    sent = len(loaded.engine.sent)
    turns = session.turns
    commands = {
        "load": session.load,
        "unload": session.unload,
        "open": lambda: session.open_folder("/other"),
        "new_chat": session.new_conversation,
        "ask": lambda: session.ask("Second?"),
        "starter": session.fetch_starter,
    }
    commands[command]()
    assert len(loaded.engine.sent) == sent
    assert session.turns == turns
    assert "answering" in session.notice
    assert session.state.phase is Phase.RUNNING


def test_a_stopped_load_can_be_begun_again(opened: Bench) -> None:
    """F13, H16: cancel in the middle, then load."""
    opened.start_load(0.5)
    opened.session.stop()
    assert opened.engine.of_kind(StopRequest)
    opened.engine.tell(Failed(Failure("Stopped", "Stopped at your request.", "", "Stopped"), "LoadRequest"))
    assert opened.session.state.phase is Phase.EMPTY
    assert opened.session.state.error is None
    assert not opened.session.busy
    opened.load()
    assert opened.session.state.loaded == opened.model.folder


def test_unload_with_nothing_loaded_is_no_request(opened: Bench) -> None:
    opened.session.unload()
    assert not opened.engine.of_kind(UnloadRequest)


def test_unload_forgets_and_looks_again(loaded: Bench) -> None:
    surveys = len(loaded.engine.of_kind(SurveyRequest))
    loaded.session.unload()
    loaded.engine.tell(ModelUnloaded(()))
    assert loaded.session.state.loaded is None
    assert len(loaded.engine.of_kind(SurveyRequest)) == surveys + 1


def test_after_a_failed_second_load_nothing_is_shown_as_loaded(loaded: Bench) -> None:
    """H17: A was loaded, B failed: neither is there."""
    loaded.session.load()
    request = loaded.engine.last_load
    assert request is not None
    loaded.engine.tell(*load_began(request))
    loaded.engine.tell(Failed(Failure("The model's files are not whole", "Shard 2 is cut short.", "", "BrokenModel")))
    assert loaded.session.state.loaded is None
    assert loaded.session.state.loaded_plan is None
    assert not loaded.session.ask("Are you there?")


def test_a_stop_that_is_not_heard_while_loading_replaces_the_engine(opened: Bench) -> None:
    opened.session._unheard.setInterval(20)
    opened.start_load(0.5)
    opened.session.stop()
    opened.qtbot.waitUntil(lambda: bool(opened.engine.replaced), timeout=4000)
    assert opened.session.state.phase is Phase.EMPTY
    assert "replaced" in opened.session.notice
    assert opened.session.state.error is None


def test_a_stop_that_is_heard_replaces_nothing(opened: Bench) -> None:
    opened.session._unheard.setInterval(20)
    opened.start_load(0.5)
    opened.session.stop()
    opened.engine.tell(Failed(Failure("Stopped", "", "", "Stopped"), "LoadRequest"))
    opened.qtbot.wait(60)
    assert opened.engine.replaced == []


def test_a_run_is_replaced_only_at_the_second_stop(loaded: Bench) -> None:
    loaded.session.ask("A long one?")
    loaded.engine.tell(PromptCounted(8, 4096, 4088), TextProduced("Well", (1,)))
    loaded.session._unheard.setInterval(20)
    loaded.session.stop()
    loaded.qtbot.waitUntil(lambda: "current pass" in loaded.session.notice, timeout=4000)
    assert loaded.engine.replaced == []
    loaded.session.stop()
    assert loaded.engine.replaced
    assert [turn.content for turn in loaded.session.turns] == ["A long one?", "Well"]


def test_the_engines_death_is_one_message_and_the_partial_answer_is_kept(loaded: Bench) -> None:
    loaded.session.ask("Where?")
    loaded.engine.tell(PromptCounted(8, 4096, 4088), TextProduced("In Par", (1,)))
    loaded.engine.tell(EngineStopped(False, "Its process was ended from outside (SIGKILL)."))
    session = loaded.session
    assert session.state.error is not None
    assert "SIGKILL" in session.state.error.message
    assert session.state.phase is Phase.EMPTY
    assert session.turns[-1].content == "In Par"
    assert not session.busy
    loaded.engine.tell(EngineStarted(7))
    loaded.load()
    assert session.state.loaded == loaded.model.folder
    assert session.ask("And now?")


# -- chats -----------------------------------------------------------------------------------------------------------


class Watcher(QObject):
    """At every change: what the store holds against what the session shows."""

    def __init__(self, session: Session, store: ChatStore) -> None:
        super().__init__()
        self.session, self.store = session, store
        self.shown_before_stored: list[str] = []
        session.changed.connect(self.look)

    @Slot(object, object)
    def look(self, _state: State, event: object) -> None:
        conversation = self.store.last_conversation()
        stored = {turn.id: turn for turn in self.store.turns(conversation.id)} if conversation else {}
        for turn in self.session.turns:
            if turn.id not in stored or stored[turn.id].content != turn.content:
                self.shown_before_stored.append(f"{type(event).__name__}: {turn}")


def test_every_turn_is_in_the_store_before_it_is_shown(make_bench: MakeBench) -> None:
    store = ChatStore(None)
    bench = make_bench(store=store)
    watcher = Watcher(bench.session, store)
    bench.open()
    bench.load()
    for question in ("First?", "Second?"):
        assert bench.session.ask(question)
        request = bench.engine.sent[-1]
        assert isinstance(request, TextRequest)
        bench.engine.tell(*fakes.answer_events(request, ("An", " answer")))
    assert watcher.shown_before_stored == []
    assert [turn.content for turn in bench.session.turns] == ["First?", "An answer", "Second?", "An answer"]


def test_a_store_that_fails_keeps_the_question_in_the_persons_hands(
    loaded: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreFailed("The disk is full.")

    monkeypatch.setattr(ChatStore, "append_turn", fail)
    assert not loaded.session.ask("Is there room?")
    assert loaded.session.turns == ()
    assert loaded.session.state.error is not None
    assert not loaded.engine.of_kind(TextRequest)


def test_a_refused_question_is_not_sent_along_again(loaded: Bench) -> None:
    """Else one prompt that is too long would have every later one refused; what is stored tells what was sent."""
    session, engine = loaded.session, loaded.engine
    assert session.ask("First?")
    first = engine.of_kind(TextRequest)[-1]
    assert isinstance(first, TextRequest)
    engine.tell(*fakes.answer_events(first, ("Yes.",)))
    assert session.ask("Far too long")
    engine.tell(Failed(Failure("Too long", "The prompt is longer than the context.", "", "BadRequest"), "TextRequest"))
    assert [turn.content for turn in session.turns][-1] == "Far too long"
    assert session.ask("hello")
    request = engine.of_kind(TextRequest)[-1]
    assert isinstance(request, TextRequest)
    assert [message.content for message in request.messages] == ["First?", "Yes.", "hello"]
    engine.tell(*fakes.answer_events(request, ("Hello.",)))
    store = session.chats.store
    conversation = store.last_conversation()
    assert conversation is not None
    assert store.turns(conversation.id)[-1].request == request


def test_the_last_conversation_is_reopened(qtbot: QtBot, tmp_path: Path) -> None:
    store = ChatStore(tmp_path / "chats.sqlite3")
    conversation = store.new_conversation()
    store.append_turn(conversation.id, "user", "Hello?")
    store.append_turn(conversation.id, "assistant", "Hello.")
    store.close()
    session = Session(FakeEngine(), Settings())
    seen: list[object] = []
    session.changed.connect(lambda _state, event: seen.append(event))
    session.begin()
    read: list[Chats] = []
    thread = threading.Thread(target=lambda: read.append(reopened(tmp_path / "chats.sqlite3")))
    thread.start()
    thread.join()
    session.reopen(read[0])
    assert [turn.content for turn in session.turns] == ["Hello?", "Hello."]
    assert any(isinstance(event, ConversationChanged) for event in seen)
    session.close()


def test_a_conversation_that_can_not_be_read_is_an_error_and_new_ones_are_kept(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_store: ChatStore) -> None:
        raise StoreFailed("The chats can't be read or written: disk I/O error.")

    with monkeypatch.context() as patched:
        patched.setattr(ChatStore, "last_conversation", broken)
        chats = reopened(tmp_path / "chats.sqlite3")
    session = Session(FakeEngine(), Settings())
    session.begin()
    session.reopen(chats)
    assert session.state.error is not None
    assert "disk I/O error" in session.state.error.message
    assert session.turns == ()
    session.close()


def test_earlier_turns_go_with_the_next_question(loaded: Bench) -> None:
    loaded.session.change_settings(system="Be brief.")
    for question in ("First?", "Second?"):
        loaded.session.ask(question)
        request = loaded.engine.sent[-1]
        assert isinstance(request, TextRequest)
        loaded.engine.tell(*fakes.answer_events(request, ("Answer",)))
    request = loaded.engine.of_kind(TextRequest)[-1]
    assert isinstance(request, TextRequest)
    said = [(each.role, each.content) for each in request.messages]
    assert said == [("system", "Be brief."), ("user", "First?"), ("assistant", "Answer"), ("user", "Second?")]


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_an_empty_question_is_not_sent(loaded: Bench, text: str) -> None:
    """F05."""
    assert not loaded.session.ask(text)
    assert not loaded.engine.of_kind(TextRequest)


def test_an_answer_that_failed_before_its_first_word_leaves_only_the_question(loaded: Bench) -> None:
    loaded.session.ask("Too long?")
    loaded.engine.tell(
        Failed(Failure("The prompt is longer than the context", "…", "", "PromptTooLong"), "TextRequest")
    )
    assert [turn.role for turn in loaded.session.turns] == ["user"]
    assert not loaded.session.busy


def test_a_failure_before_the_first_word_does_not_repeat_the_last_answer(loaded: Bench) -> None:
    loaded.session.ask("One?")
    request = loaded.engine.sent[-1]
    assert isinstance(request, TextRequest)
    loaded.engine.tell(*fakes.answer_events(request, ("Paris",)))
    loaded.session.ask("Two?")
    loaded.engine.tell(Failed(Failure("The run stopped", "…", "", "RunFailed"), "TextRequest"))
    assert [turn.content for turn in loaded.session.turns] == ["One?", "Paris", "Two?"]


@pytest.mark.parametrize("seed", [7, None])
def test_the_seed_that_was_used_is_kept_with_the_answer(make_bench: MakeBench, seed: int | None) -> None:
    """F11."""
    bench = make_bench(seed=seed)
    bench.open()
    bench.load()
    bench.session.ask("A number?")
    request = bench.engine.sent[-1]
    assert isinstance(request, TextRequest)
    assert seed is None or request.seed == seed
    bench.engine.tell(PromptCounted(8, 4096, 4088), RunFinished(result_of(request, ("Seven",))))
    assert bench.session.turns[-1].seed == request.seed


# -- settings and machines -------------------------------------------------------------------------------------------


def test_limits_of_another_machine_are_kept_but_not_used(make_bench: MakeBench) -> None:
    """A19: absent devices are shown as absent, the plan is made for what is there."""
    bench = make_bench(fakes.no_card(), limits=(("cuda:0", 6 * GIB), ("cpu", 4 * GIB)))
    bench.open()
    assert bench.session.absent_limits == ("cuda:0",)
    assert bench.session.state.plan is not None
    assert bench.session.state.plan.budget.limits == (("cpu", 4 * GIB),)
    assert bench.session.problem is None


def test_a_machine_that_appears_later_is_planned_for(qtbot: QtBot, opened: Bench) -> None:
    assert opened.session.state.plan is not None
    assert "cuda:0" in opened.session.state.plan.places
    opened.engine.tell(DevicesSurveyed(fakes.no_card()))
    assert opened.session.planning.pending  # a load asked for now would wait for it
    qtbot.waitUntil(lambda: opened.session.state.plan.places == ("cpu",))


def test_a_plan_that_can_not_be_made_is_a_problem_in_words(opened: Bench) -> None:
    session = opened.session
    for place in ("cuda:0", "cpu", "disk"):
        session.set_limit(place, 0)
    opened.qtbot.waitUntil(lambda: session.problem is not None)
    assert session.problem is not None
    assert session.state.plan is None
    session.load()
    assert not opened.engine.of_kind(LoadRequest)
    session.set_limit("cpu", None)
    opened.qtbot.waitUntil(lambda: session.problem is None)
    assert session.state.plan is not None


def test_the_context_stays_within_what_the_model_was_made_for(make_bench: MakeBench) -> None:
    bench = make_bench(model=dense(context=128), context=100_000)
    bench.open()
    assert bench.session.context == 128
    assert bench.session.problem is None


def test_memory_read_here_never_hides_what_the_engine_measured(loaded: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {each.place: each for each in loaded.session.state.memory}
    read = replace(loaded.engine.machine.device("cpu"), free=123)
    monkeypatch.setattr("layerlight.ui.ram_watch.look", lambda: (read,))
    loaded.session.measure_ram()
    loaded.qtbot.waitUntil(lambda: any(each.free == 123 for each in loaded.session.state.memory))
    after = {each.place: each for each in loaded.session.state.memory}
    assert after["cuda:0"] == before["cuda:0"]
    assert after["cpu"].model == before["cpu"].model


def test_the_starter_is_opened_when_it_is_there(bench: Bench) -> None:
    bench.session.fetch_starter()
    assert bench.engine.of_kind(StarterRequest)
    bench.engine.tell(StarterProgressed("Fetching", 10 * MIB, 90 * MIB, "Apache-2.0"))
    assert bench.session.state.phase is Phase.FETCHING
    bench.engine.tell(StarterReady(bench.model.folder, "Apache-2.0"))
    bench.qtbot.waitUntil(lambda: bench.session.state.plan is not None)
    assert bench.session.state.model == bench.model


def test_nothing_is_heard_after_the_end(loaded: Bench) -> None:
    """H02: an engine that goes on talking to a closed window is not listened to."""
    loaded.session.close()
    with loaded.qtbot.assertNotEmitted(loaded.session.changed):
        loaded.engine.tell(TextProduced("late", (1,)), EngineStopped(False, "killed"))
    assert loaded.engine.closed


def test_what_was_answered_so_far_is_stored_at_the_end(make_bench: MakeBench, tmp_path: Path) -> None:
    store = ChatStore(tmp_path / "chats.sqlite3")
    bench = make_bench(store=store)
    bench.open()
    bench.load()
    bench.session.ask("Where?")
    bench.engine.tell(PromptCounted(8, 4096, 4088), TextProduced("In Par", (1,)))
    bench.window.close()
    with ChatStore(tmp_path / "chats.sqlite3") as again:
        conversation = again.last_conversation()
        assert conversation is not None
        assert [turn.content for turn in again.turns(conversation.id)] == ["Where?", "In Par"]


def test_progress_never_falls_and_always_ends(opened: Bench) -> None:
    """H06: whatever order it is told in."""
    opened.session.load()
    request = opened.engine.last_load
    assert request is not None
    shares: list[int] = []
    opened.session.changed.connect(
        lambda state, _event: shares.append(state.progress.bytes_done) if state.progress else None
    )
    opened.engine.tell(LoadStarted(request.folder, 100, 4))
    for done in (10, 5, 40, 30, 90):
        opened.engine.tell(LoadProgressed("shard", done, 100, 0, 4))
    assert shares == sorted(shares)
    opened.engine.tell(ModelLoaded(request.folder, 1.0, (), ()))
    assert opened.session.state.progress is None


class Turns(QObject):
    """Notes what is heard, and how often the event loop came by in between."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.heard: list[str] = []
        session.changed.connect(self._hear)

    @Slot(object, object)
    def _hear(self, _state: State, event: object) -> None:
        if not isinstance(event, AdviceChanged):  # comes from a thread, whenever that is done
            self.heard.append(type(event).__name__)


def test_what_arrives_together_is_taken_over_several_turns_in_its_order(
    loaded: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty views repainted in one go are a stall; the words still come whole and in order."""
    session = loaded.session
    assert session.ask("Where?")
    monkeypatch.setattr("layerlight.ui.event_turns.TURN", 0.0)
    QApplication.processEvents()  # a turn is over
    turns = Turns(session)
    words = [TextProduced(f"{number} ", (number,)) for number in range(6)]
    loaded.engine.tell(PromptCounted(3, 64, 61), *words)
    assert turns.heard == ["PromptCounted"]
    request = loaded.engine.of_kind(TextRequest)[-1]
    loaded.engine.tell(RunFinished(result_of(request, [word.text for word in words])))
    assert turns.heard == ["PromptCounted"], "what comes later must not overtake what waits"
    loaded.qtbot.waitUntil(lambda: "RunFinished" in turns.heard)
    assert turns.heard[:8] == ["PromptCounted", *["TextProduced"] * 6, "RunFinished"]
    assert session.turns[-1].content == "0 1 2 3 4 5 "


def test_what_waits_for_its_turn_is_not_heard_after_the_end(loaded: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    session = loaded.session
    assert session.ask("Where?")
    monkeypatch.setattr("layerlight.ui.event_turns.TURN", 0.0)
    QApplication.processEvents()  # a turn is over
    turns = Turns(session)
    loaded.engine.tell(PromptCounted(3, 64, 61), TextProduced("a", (1,)), TextProduced("b", (2,)))
    session.close()
    assert turns.heard == ["PromptCounted"]
    loaded.qtbot.wait(20)
    assert turns.heard == ["PromptCounted"]


def test_what_arrived_with_the_event_that_closed_the_window_is_not_taken(loaded: Bench) -> None:
    """H02: a view may close the window while it hears."""
    session = loaded.session
    assert session.ask("Where?")
    QApplication.processEvents()
    turns = Turns(session)
    session.changed.connect(lambda _state, event: session.close() if isinstance(event, PromptCounted) else None)
    loaded.engine.tell(PromptCounted(3, 64, 61), TextProduced("a", (1,)), TextProduced("b", (2,)))
    assert turns.heard == ["PromptCounted"]
    assert session.state.answer == ""
    session.notify("late")
    assert turns.heard == ["PromptCounted"]
