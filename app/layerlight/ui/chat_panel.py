"""The chat: questions, streaming answers, how fast they come, and how much of the context is left."""

from __future__ import annotations

import time

from PySide6.QtCore import QRectF, Qt, Slot
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QColor,
    QKeySequence,
    QPainter,
    QShortcut,
    QTextCursor,
)
from PySide6.QtWidgets import QFrame, QStackedWidget, QWidget

from layerlight.core.messages import (
    EngineStopped,
    Failed,
    LayerRan,
    PromptCounted,
    RunFinished,
    RunResult,
    TextProduced,
)
from layerlight.core.state import Phase, State
from layerlight.ui.controls import Elided, Painted, button, column, framed, label, row
from layerlight.ui.entry import Entry
from layerlight.ui.happenings import ConversationChanged
from layerlight.ui.palette import Theme
from layerlight.ui.past_chats import PastChats
from layerlight.ui.sampling_panel import SamplingPanel
from layerlight.ui.session import Session
from layerlight.ui.talk import Talk
from layerlight.ui.words import duration


class ChatPanel(QFrame):
    """Shows the session's turns, or the chats there were; the last answer grows as its text comes."""

    def __init__(self, session: Session, past: PastChats | None = None) -> None:
        super().__init__()
        self.setObjectName("panel")
        self._session = session
        self._editing = False
        self._draft = ""
        """What was written when an edit began: it comes back."""
        self._shown: int | None = None
        """The conversation on the screen."""
        self._tokens = 0
        self._began = self._told = 0.0
        self._share = 0.0
        self._build(past or PastChats(session))
        session.changed.connect(self._changed)
        self._update_turns()
        self._update_buttons()

    # -- parts that tests and the window reach -------------------------------------------------------------------

    @property
    def entry(self) -> Entry:
        return self._entry

    @property
    def send_button(self) -> QWidget:
        return self._send

    @property
    def stop_button(self) -> QWidget:
        return self._stop

    @property
    def sampling(self) -> SamplingPanel:
        return self._sampling

    @property
    def answers(self) -> list[str]:
        """The texts of the turns on the screen, oldest first."""
        return self.talk.texts

    @property
    def stats(self) -> str:
        return f"{self._speed.text()} {self._first.text()} {self._used.text()} {self._first.toolTip()}".strip()

    @property
    def title(self) -> str:
        """What the conversation on the screen is called."""
        return self._title.accessibleName()

    def _build(self, past: PastChats) -> None:
        self.past, self.talk = past, Talk(self._session)
        past.left.connect(self.show_talk)
        self.talk.edit_wanted.connect(self.edit_question)
        self._pages = QStackedWidget()
        self._pages.addWidget(self._build_talk())
        self._pages.addWidget(past)
        self._title = Elided("Chat", "head", mode=Qt.TextElideMode.ElideRight)
        self.chats_button = button("Chats", "quiet", "The chats there were")
        self.chats_button.setCheckable(True)
        self.chats_button.clicked.connect(self._toggle_past)
        settings = button("Sampling", "quiet", "Temperature, seed, system prompt")
        settings.setCheckable(True)
        settings.toggled.connect(self._sampling.setVisible)
        fresh = button("New", "quiet", "Begin a new conversation")
        fresh.clicked.connect(self._begin_anew)
        head = row(gap=2)
        head.addWidget(self._title, 1)
        for each in (self.chats_button, settings, fresh):
            head.addWidget(each)
        box = column(margins=(16, 10, 16, 12), gap=10)
        box.addLayout(head)
        box.addWidget(self._pages, 1)
        self.setLayout(box)
        for keys, move in (("Ctrl+Up", self.talk.focus_before), ("Ctrl+Down", self.talk.focus_after)):
            QShortcut(QKeySequence(keys), self, move, context=Qt.ShortcutContext.WidgetWithChildrenShortcut)

    def _build_talk(self) -> QWidget:
        self._sampling = SamplingPanel(self._session)
        self._sampling.hide()
        self._speed = label("", size=13, weight=600)
        self._first = label("", "3")
        self._used = label("", "3")
        self._gauge = Painted(4, self._draw_gauge, 40)
        self._gauge.setAccessibleName("Context used")
        stats = row(self._speed, self._first, None)
        stats.addWidget(self._gauge, 0, Qt.AlignmentFlag.AlignVCenter)
        stats.addWidget(self._used)
        leave = button("Leave it", "quiet", "The question stays as it was asked")
        leave.clicked.connect(self._leave_edit)
        self._edit = framed(
            row(label("Your last question, in other words", "3"), None, leave, margins=(10, 2, 4, 2)), "card"
        )
        self._edit.hide()
        self._entry = Entry()
        self._entry.submitted.connect(self._submit)
        self._entry.left.connect(self._leave_edit)
        self._entry.earlier.connect(self.edit_question)
        self._entry.textChanged.connect(self._update_buttons)
        self._hint = label("", "3")
        self._send = button("Send", "primary")
        self._send.clicked.connect(self._submit)
        self._stop = button("Stop", "primary", "Keeps what has been written")
        self._stop.clicked.connect(self._session.stop)
        page = QWidget()
        box = column(self._sampling, gap=10)
        box.addWidget(self.talk, 1)
        box.addLayout(stats)
        box.addWidget(self._edit)
        box.addWidget(self._entry)
        box.addLayout(row(self._hint, None, self._send, self._stop))
        page.setLayout(box)
        return page

    # -- what a person does --------------------------------------------------------------------------------------

    @Slot()
    def _submit(self) -> None:
        text = self._entry.toPlainText()
        self.talk.follow()
        ask = self._session.ask_instead if self._editing else self._session.ask
        if ask(text):
            self._entry.clear()
            self._leave_edit()

    @Slot()
    def edit_question(self) -> None:
        """Brings the last question back into the entry, to be asked in other words."""
        question = self._session.chats.last_question
        if question is not None and self._session.answering is None:
            self.show_talk()
            if not self._editing:
                self._draft = self._entry.toPlainText()
            self._show_edit(True)
            self._entry.setPlainText(question.content)
            self._entry.selectAll()
            self._entry.setFocus(Qt.FocusReason.ShortcutFocusReason)

    @Slot()
    def _leave_edit(self) -> None:
        if self._editing:
            self._show_edit(False)
            self._entry.setPlainText(self._draft)
            self._entry.moveCursor(QTextCursor.MoveOperation.End)
            self._draft = ""

    def _show_edit(self, editing: bool) -> None:
        self._editing = editing
        self._edit.setVisible(editing)
        self._send.setText("Ask again" if editing else "Send")

    @Slot()
    def _begin_anew(self) -> None:
        self._session.new_conversation()
        self.show_talk()
        self._entry.setFocus()

    @Slot(bool)
    def _toggle_past(self, shown: bool) -> None:
        if shown:
            self.show_past()
        else:
            self.show_talk()

    def show_past(self) -> None:
        """The chats there were, to be searched and opened."""
        self.chats_button.setChecked(True)
        self._pages.setCurrentWidget(self.past)
        self.past.search.setFocus()

    @Slot()
    def show_talk(self) -> None:
        self.chats_button.setChecked(False)
        if self._pages.currentWidget() is self.past:
            self._pages.setCurrentIndex(0)
            self._entry.setFocus()

    @property
    def shows_past(self) -> bool:
        return self._pages.currentWidget() is self.past

    @property
    def is_editing(self) -> bool:
        """Whether the entry holds the last question, to be asked in other words."""
        return self._editing

    # -- what the session says -----------------------------------------------------------------------------------

    @Slot(object, object)
    def _changed(self, state: State, event: object) -> None:
        match event:
            case LayerRan():
                return
            case TextProduced(text=text, tokens=tokens):
                self._count(len(tokens))
                self.talk.append(text)
                self._update_used(state)
            case PromptCounted():
                self._tokens = 0
                self._update_used(state)
            case RunFinished(result=result):
                self._show_result(result)
            case ConversationChanged() | Failed() | EngineStopped():
                self._update_turns()
            case _:
                pass
        if not isinstance(event, TextProduced):
            self._update_buttons()

    def _count(self, tokens: int) -> None:
        """Tokens so far, and how fast they come: measured here until the engine's own figure arrives."""
        now = time.monotonic()
        if not self._tokens:
            self._began = self._told = now
            self._speed.setText("Answering")
        self._tokens += tokens
        if now - self._told > 0.5:
            self._told = now
            self._speed.setText(f"{(self._tokens - 1) / (now - self._began):.1f} tokens/s")

    def _update_turns(self) -> None:
        conversation = self._session.conversations.current
        shown = conversation.id if conversation is not None else None
        if shown != self._shown:
            self._shown = shown
            self._leave_edit()
        self._title.say(conversation.title if conversation is not None and conversation.title else "Chat")
        self.talk.show_turns(self._session.turns, self._session.answering)

    def _show_result(self, result: RunResult) -> None:
        self.talk.set_text(result.text)
        if QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, f"Answer: {result.text}"))
        self._tokens = len(result.tokens)
        self._speed.setText(f"{result.tokens_per_second:.1f} tokens/s" if result.tokens_per_second else "")
        first = result.time_to_first_token
        self._first.setText(f"first after {duration(first)}" if first is not None else "")
        self._first.setToolTip("\n".join(f"{words[0].upper()}{words[1:]}." for words in result.notes))
        self._update_used(self._session.state, result.prompt_tokens)

    def _update_used(self, state: State, prompt: int | None = None) -> None:
        counted = prompt if prompt is not None else state.counted.prompt_tokens if state.counted else None
        plan = state.loaded_plan
        if counted is None or plan is None:
            self._share = 0.0
            self._used.setText("")
        else:
            used = counted + self._tokens
            self._share = used / plan.budget.context
            self._used.setText(f"{used:,} of {plan.budget.context:,}")
        self._gauge.setAccessibleDescription(self._used.text())
        self._gauge.update()

    @Slot()
    def _update_buttons(self) -> None:
        session, state = self._session, self._session.state
        running = state.phase is Phase.RUNNING or session.waiting == "TextRequest"
        self._stop.setVisible(running)
        self._send.setVisible(not running)
        ready = state.loaded is not None and not session.busy
        self._send.setEnabled(ready and bool(self._entry.toPlainText().strip()))
        if running:
            self._hint.setText("Stopping after this pass" if session.stopping else "")
        else:
            self._hint.setText("" if state.loaded else "Load the model to ask it something")
        self.talk.refresh()
        waiting = running and self._tokens == 0
        if waiting:
            self._speed.setText("Reading the prompt")
            self._first.setText("")
            self._first.setToolTip("")

    def _draw_gauge(self, p: QPainter, r: QRectF, t: Theme) -> None:
        p.setPen(Qt.PenStyle.NoPen)
        p.setBrush(QColor(t.line))
        p.drawRoundedRect(r, 2, 2)
        if self._share:
            p.setBrush(QColor(t.danger if self._share > 0.95 else t.ink2))
            p.drawRoundedRect(QRectF(0, 0, max(4.0, r.width() * min(1.0, self._share)), r.height()), 2, 2)
