"""The turns of the chat on the screen: the newest ones, and earlier ones on request."""

from __future__ import annotations

import time

from PySide6.QtCore import QPoint, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QFrame, QMenu, QScrollArea, QVBoxLayout, QWidget

from layerlight.store.turns import Turn
from layerlight.ui.controls import button, column, row
from layerlight.ui.session import Session
from layerlight.ui.steps import ENOUGH
from layerlight.ui.turn_view import TurnView

PAGE = 24
"""Turns that are shown of a long chat, and added by each wish for earlier ones."""
AT_ONCE = 4
"""Turns that are always made without waiting."""
COPIED = 1500
"""ms for which the button says that it has copied."""
NEAR = 24
"""px from the end within which the reader follows the answer."""


class Talk(QScrollArea):
    """Makes a view for each turn, a few at a time; follows the answer unless the reader has scrolled up."""

    edit_wanted = Signal()
    """The last question is to be asked in other words."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._views: dict[int, TurnView] = {}
        self._live: TurnView | None = None
        self._turns: tuple[Turn, ...] = ()
        self._first = 0
        """The number of the earliest turn that is shown."""
        self._follow = True
        self._from_end: int | None = None
        """How far the reader is from the end while earlier turns are put in above."""
        self._making = QTimer(self, singleShot=True, interval=0)
        self._making.timeout.connect(self._make)
        self._build()
        self._update_bar()

    def _build(self) -> None:
        self._earlier = button("", "quiet", "The turns before these")
        self._earlier.clicked.connect(self._show_earlier)
        self._earlier.hide()
        self.copy_button = button("Copy", "quiet", "The last answer, as the model wrote it")
        self.copy_button.setAccessibleName("Copy the last answer")
        self.copy_button.clicked.connect(self.copy_answer)
        self.again_button = button("Answer again", "quiet", "Another answer to the last question; this one is kept")
        self.again_button.clicked.connect(self._session.answer_again)
        self.edit_button = button("Edit question", "quiet", "Ask the last question in other words; this one is kept")
        self.edit_button.clicked.connect(self.edit_wanted)
        self._bar = QWidget()
        self._bar.setLayout(row(self.again_button, self.edit_button, self.copy_button, None, gap=0))
        self._copied = QTimer(self, singleShot=True, interval=COPIED)
        self._copied.timeout.connect(self._say_copy)
        self._column = QVBoxLayout()
        self._column.setSpacing(12)
        self._column.setContentsMargins(0, 0, 6, 0)
        inner = QWidget()
        inner.setLayout(column(self._earlier, self._column, self._bar, None, gap=4))
        self.setWidget(inner)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.viewport().setAutoFillBackground(False)
        inner.setAutoFillBackground(False)
        self._to_end = button("To the end", hint="Where the answer is being written")
        self._to_end.setParent(self)
        self._to_end.clicked.connect(self.follow)
        self._to_end.hide()
        bar = self.verticalScrollBar()
        bar.rangeChanged.connect(self._range_changed)
        bar.valueChanged.connect(self._scrolled)
        bar.actionTriggered.connect(self._reader_scrolls)

    # -- what is shown -------------------------------------------------------------------------------------------

    @property
    def texts(self) -> list[str]:
        """The texts of the turns on the screen, oldest first."""
        return [view.text for view in self._views.values()]

    @property
    def views(self) -> list[TurnView]:
        return list(self._views.values())

    @property
    def earlier_button(self) -> QWidget:
        return self._earlier

    @property
    def to_end_button(self) -> QWidget:
        return self._to_end

    @property
    def is_live(self) -> bool:
        return self._live is not None

    def show_turns(self, turns: tuple[Turn, ...], answering: Turn | None) -> None:
        """Shows these turns; the one that is being written grows by `append`."""
        self._turns, self._from_end = turns, None
        kept = {turn.id for turn in turns}
        if not kept & self._views.keys() or (answering and self._follow and len(self._views) > 4 * PAGE):
            self._first = turns[-PAGE].id if len(turns) > PAGE else 0
            self._follow = True
        gone = [number for number in self._views if number not in kept or number < self._first]
        for number in gone:
            view = self._views.pop(number)
            self._column.removeWidget(view)
            view.hide()
            view.deleteLater()
        self._make(AT_ONCE)
        if gone and self._views:
            self._order_tabs()
        self._live = None
        for turn in turns:
            view_or_none = self._views.get(turn.id)
            if view_or_none is None:
                continue
            live = answering is not None and turn.id == answering.id
            if live:
                self._live = view_or_none
            elif view_or_none.turn != turn or not turn.result:
                view_or_none.end(turn)
            view_or_none.show_live(live)
        self._update_bar()

    def append(self, text: str) -> None:
        if self._live is not None:
            self._from_end = None
            self._live.append(text)

    def set_text(self, text: str) -> None:
        """What the answer holds in the end."""
        if self._live is not None:
            self._live.set_text(text)

    @Slot()
    def follow(self) -> None:
        """Goes to the end and stays with it."""
        self._follow, self._from_end = True, None
        self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())
        self._place_to_end()

    def refresh(self) -> None:
        """What can be done with the last turns now."""
        self._update_bar()

    @Slot()
    def _make(self, at_once: int = 1) -> None:
        """Makes views that are missing, the newest first, until it has taken long enough."""
        began = time.perf_counter()
        missing = [turn for turn in reversed(self._turns) if turn.id >= self._first and turn.id not in self._views]
        for made, turn in enumerate(missing):
            if made >= at_once and time.perf_counter() - began > ENOUGH:
                self._making.start()
                break
            self._add(turn)
        if missing:
            self._order_tabs()
        self._tell_earlier()

    def _add(self, turn: Turn) -> None:
        view = TurnView(turn)
        if self._session.answering is None or self._session.answering.id != turn.id:
            view.end(turn)
        view.alternative_wanted.connect(self._session.conversations.choose)
        view.menu_wanted.connect(self._show_menu)
        self._column.insertWidget(sum(number < turn.id for number in self._views), view)
        self._views = dict(sorted({**self._views, turn.id: view}.items()))

    def _order_tabs(self) -> None:
        """From the earliest turn to the latest, then to what can be done with that."""
        stop: QWidget = self._earlier
        last = self.views[-1]
        for view in self._views.values():
            view.allow_tab(view is last)
            for each in view.tab_stops:
                QWidget.setTabOrder(stop, each)
                stop = each
        QWidget.setTabOrder(stop, self.again_button)

    def _tell_earlier(self) -> None:
        hidden = sum(turn.id < self._first for turn in self._turns)
        self._earlier.setText(f"Show earlier turns ({hidden:,})")
        self._earlier.setVisible(hidden > 0)

    @Slot()
    def _show_earlier(self) -> None:
        hidden = [turn for turn in self._turns if turn.id < self._first]
        if hidden:
            bar = self.verticalScrollBar()
            self._from_end = bar.maximum() - bar.value()
            self._follow = False
            self._first = hidden[-PAGE].id if len(hidden) > PAGE else 0
            self._make()

    def _update_bar(self) -> None:
        session = self._session
        idle = bool(self._turns) and session.answering is None
        self._bar.setVisible(idle)
        self.copy_button.setEnabled(any(turn.role == "assistant" for turn in self._turns))
        self.again_button.setEnabled(session.can_answer_again)
        self.edit_button.setEnabled(session.can_answer_again)

    # -- what a person does --------------------------------------------------------------------------------------

    @Slot()
    def copy_answer(self) -> None:
        answer = next((turn for turn in reversed(self._turns) if turn.role == "assistant"), None)
        if answer is not None:
            view = self._views.get(answer.id)
            copy_text(view.text if view is not None else answer.content)
            self.copy_button.setText("Copied")
            self._copied.start()

    @Slot()
    def _say_copy(self) -> None:
        self.copy_button.setText("Copy")

    @Slot(object, QPoint)
    def _show_menu(self, view: TurnView, at: QPoint) -> None:
        menu = self.menu_of(view)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(at)

    def menu_of(self, view: TurnView) -> QMenu:
        """What can be done with a turn."""
        session, menu = self._session, QMenu(self)
        what = "question" if view.is_question else "answer"
        selected, text = view.selected, view.text
        if selected:
            menu.addAction("Copy the selection", lambda: copy_text(selected))
        menu.addAction(f"Copy the {what}", lambda: copy_text(text))
        current = session.conversations.current
        if current is not None:
            number = current.id
            menu.addAction("Copy the chat as Markdown", lambda: session.conversations.copy(number))
        last = session.chats.last_question
        if last is not None and view.turn.id >= last.id:
            menu.addSeparator()
            again = menu.addAction("Answer again", session.answer_again)
            edit = menu.addAction("Edit the question", self.edit_wanted.emit)
            for action in (again, edit):
                action.setEnabled(session.can_answer_again)
        return menu

    @Slot()
    def focus_before(self) -> None:
        """Leads the keyboard to the turn before, from elsewhere to the last one."""
        self._focus_by(-1)

    @Slot()
    def focus_after(self) -> None:
        self._focus_by(1)

    def _focus_by(self, step: int) -> None:
        """From the turn that has the focus to the next one; from elsewhere to the last."""
        views = self.views
        at = next((number for number, view in enumerate(views) if view.focused), None)
        there = len(views) - 1 if at is None else at + step
        if 0 <= there < len(views):
            views[there].take_focus()
            self.ensureWidgetVisible(views[there], 0, 8)

    # -- scrolling -----------------------------------------------------------------------------------------------

    @Slot(int, int)
    def _range_changed(self, _least: int, most: int) -> None:
        """Follows the answer, or stays with what is read while more is put in above it."""
        bar = self.verticalScrollBar()
        if self._from_end is not None:
            bar.setValue(most - self._from_end)
        elif self._follow:
            bar.setValue(most)
        self._place_to_end()

    @Slot(int)
    def _scrolled(self, value: int) -> None:
        if self._from_end is None:
            self._follow = value >= self.verticalScrollBar().maximum() - NEAR
        self._place_to_end()

    @Slot()
    def _reader_scrolls(self) -> None:
        self._from_end = None

    def _place_to_end(self) -> None:
        away = self.verticalScrollBar().maximum() - self.verticalScrollBar().value() > NEAR
        self._to_end.setVisible(away and not self._follow)
        if away:
            size = self._to_end.sizeHint()
            self._to_end.setGeometry(
                (self.width() - size.width()) // 2, self.height() - size.height() - 6, size.width(), size.height()
            )
            self._to_end.raise_()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_to_end()


def copy_text(text: str) -> None:
    QGuiApplication.clipboard().setText(text)
