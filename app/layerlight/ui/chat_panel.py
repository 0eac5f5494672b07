"""The chat: questions, streaming answers, how fast they come, and how much of the context is left."""

from __future__ import annotations

import time

from PySide6.QtCore import QRectF, Qt, Signal, Slot
from PySide6.QtGui import QColor, QInputMethodEvent, QKeyEvent, QPainter
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QScrollArea, QVBoxLayout, QWidget

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
from layerlight.store.chats import Turn
from layerlight.ui.controls import Painted, button, column, framed, label, row
from layerlight.ui.happenings import ConversationChanged
from layerlight.ui.palette import Theme
from layerlight.ui.plan_panel import WIDTH
from layerlight.ui.prose import Prose
from layerlight.ui.sampling_panel import SamplingPanel
from layerlight.ui.session import Session
from layerlight.ui.words import duration

ENDED = {
    "length": "Ended at the longest answer that was asked for.",
    "context": "Ended where the context is full.",
    "stopped": "Stopped at your request.",
}


class ChatPanel(QFrame):
    """Shows the session's turns; the last answer grows as its text comes."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.setObjectName("panel")
        self.setFixedWidth(WIDTH)
        self._session = session
        self._views: dict[int, TurnView] = {}
        self._live: TurnView | None = None
        self._tokens = 0
        self._began = self._told = 0.0
        self._share = 0.0
        self._follow = True
        self._build()
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
        return [view.text for view in self._views.values()]

    @property
    def stats(self) -> str:
        return f"{self._speed.text()} {self._first.text()} {self._used.text()} {self._first.toolTip()}".strip()

    def _build(self) -> None:
        self._sampling = SamplingPanel(self._session)
        self._sampling.hide()
        settings = button("Sampling", "quiet", "Temperature, seed, system prompt")
        settings.setCheckable(True)
        settings.toggled.connect(self._sampling.setVisible)
        fresh = button("New", "quiet", "Begin a new conversation")
        fresh.clicked.connect(self._session.new_conversation)
        self._turns = QVBoxLayout()
        self._turns.setSpacing(12)
        self._turns.setContentsMargins(0, 0, 6, 0)
        inner = QWidget()
        inner.setLayout(column(self._turns, None, gap=0))
        self._area = QScrollArea()
        self._area.setWidget(inner)
        self._area.setWidgetResizable(True)
        self._area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._area.setFrameShape(QFrame.Shape.NoFrame)
        self._area.viewport().setAutoFillBackground(False)
        inner.setAutoFillBackground(False)
        bar = self._area.verticalScrollBar()
        bar.rangeChanged.connect(self._range_changed)
        bar.valueChanged.connect(self._scrolled)
        self._speed = label("", size=13, weight=600)
        self._first = label("", "3")
        self._used = label("", "3")
        self._gauge = Painted(4, self._draw_gauge, 56)
        self._gauge.setAccessibleName("Context used")
        stats = row(self._speed, self._first, None)
        stats.addWidget(self._gauge, 0, Qt.AlignmentFlag.AlignVCenter)
        stats.addWidget(self._used)
        self._entry = Entry()
        self._entry.submitted.connect(self._submit)
        self._entry.textChanged.connect(self._update_buttons)
        self._hint = label("", "3")
        self._send = button("Send", "primary")
        self._send.clicked.connect(self._submit)
        self._stop = button("Stop", "primary", "Keeps what has been written")
        self._stop.clicked.connect(self._session.stop)
        head = row(label("Chat", "head"), None, settings, fresh)
        box = column(margins=(16, 10, 16, 12), gap=10)
        box.addLayout(head)
        box.addWidget(self._sampling)
        box.addWidget(self._area, 1)
        box.addLayout(stats)
        box.addWidget(self._entry)
        box.addLayout(row(self._hint, None, self._send, self._stop))
        self.setLayout(box)

    # -- what a person does --------------------------------------------------------------------------------------

    @Slot()
    def _submit(self) -> None:
        text = self._entry.toPlainText()
        self._follow = True
        if self._session.ask(text):
            self._entry.clear()

    # -- what the session says -----------------------------------------------------------------------------------

    @Slot(object, object)
    def _changed(self, state: State, event: object) -> None:
        match event:
            case LayerRan():
                return
            case TextProduced(text=text, tokens=tokens):
                self._count(len(tokens))
                if self._live is not None:
                    self._live.append(text)
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
        turns = self._session.turns
        wanted = {turn.id for turn in turns}
        for number in [number for number in self._views if number not in wanted]:
            view = self._views.pop(number)
            self._turns.removeWidget(view)
            view.hide()
            view.deleteLater()
        answering = self._session.answering
        for turn in turns:
            if turn.id not in self._views:
                self._views[turn.id] = TurnView(turn)
                self._turns.addWidget(self._views[turn.id])
            view = self._views[turn.id]
            live = answering is not None and turn.id == answering.id
            if not live:
                view.end(turn)
            view.show_live(live)
            if live:
                self._live = view
        if answering is None:
            self._live = None

    def _show_result(self, result: RunResult) -> None:
        if self._live is not None:
            self._live.set_text(result.text)
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
        waiting = running and self._tokens == 0
        if waiting:
            self._speed.setText("Reading the prompt")
            self._first.setText("")
            self._first.setToolTip("")

    # -- scrolling -----------------------------------------------------------------------------------------------

    @Slot(int, int)
    def _range_changed(self, _least: int, most: int) -> None:
        """Follows the answer, unless the reader has scrolled up."""
        if self._follow:
            self._area.verticalScrollBar().setValue(most)

    @Slot(int)
    def _scrolled(self, value: int) -> None:
        self._follow = value >= self._area.verticalScrollBar().maximum() - 24

    def _draw_gauge(self, p: QPainter, r: QRectF, t: Theme) -> None:
        p.setPen(Qt.PenStyle.NoPen)
        p.setBrush(QColor(t.line))
        p.drawRoundedRect(r, 2, 2)
        if self._share:
            p.setBrush(QColor(t.danger if self._share > 0.95 else t.ink2))
            p.drawRoundedRect(QRectF(0, 0, max(4.0, r.width() * min(1.0, self._share)), r.height()), 2, 2)


class TurnView(QWidget):
    """One question in its bubble, or one answer."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._question = turn.role == "user"
        self._prose = Prose(turn.content)
        self._foot = label("", "3", wrap=True)
        self._foot.hide()
        who = "You" if self._question else "Answer"
        self._prose.setAccessibleName(f"{who}: {turn.content[:200]}")
        if self._question:
            bubble = framed(column(self._prose, margins=(12, 7, 12, 7), gap=0), "bubble")
            self.setLayout(column(bubble, gap=0))
        else:
            self.setLayout(column(self._prose, self._foot, gap=4))

    @property
    def text(self) -> str:
        return self._prose.text

    def append(self, text: str) -> None:
        self._prose.append(text)

    def set_text(self, text: str) -> None:
        if text != self._prose.text:
            self._prose.set_text(text)
        self._prose.setAccessibleName(f"Answer: {text[:200]}")

    def show_live(self, live: bool) -> None:
        self._prose.show_caret(live)

    def end(self, turn: Turn) -> None:
        """The turn as it was stored, with what is worth knowing about how it ended."""
        if self._question:
            return
        self.set_text(turn.content)
        result = turn.result
        words = []
        if result is None:
            words.append("Broken off; this part was kept.")
        else:
            if result.ended in ENDED:
                words.append(ENDED[result.ended])
            words.append(f"Seed {result.seed}")
        self._foot.setText("  ".join(words))
        self._foot.setVisible(bool(words))


class Entry(QPlainTextEdit):
    """Enter sends, Shift+Enter makes a new line; neither while a word is being composed."""

    submitted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._composing = False
        self.setPlaceholderText("Write a message")
        self.setAccessibleName("Message")
        self.setTabChangesFocus(True)
        self.setFixedHeight(64)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if enter and self._composing:
            event.accept()
            return
        if enter and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            event.accept()
            self.submitted.emit()
            return
        super().keyPressEvent(event)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)
