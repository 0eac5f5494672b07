"""The working view: facts at the left, the map in the middle, plan, chat or log at the right."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QFrame, QStackedWidget, QWidget

from layerlight.core.messages import (
    EngineStopped,
    LayerPlaced,
    LayerRan,
    LoadProgressed,
    MemoryMeasured,
    ModelInspected,
    ModelLoaded,
    TextProduced,
)
from layerlight.core.state import State
from layerlight.ui.berth import Berth
from layerlight.ui.chat_panel import ChatPanel
from layerlight.ui.controls import Elided, Segments, column, row, rule
from layerlight.ui.happenings import MachineChosen
from layerlight.ui.layer_list import LayerList
from layerlight.ui.layer_map import LayerMap
from layerlight.ui.log_panel import LogPanel
from layerlight.ui.map_heat import MODES, PLACES
from layerlight.ui.model_panel import WIDTH as FACTS_WIDTH
from layerlight.ui.model_panel import ModelPanel
from layerlight.ui.panes import Panes
from layerlight.ui.plan_panel import WIDTH as SIDE_WIDTH
from layerlight.ui.plan_panel import PlanPanel
from layerlight.ui.reveal import Reveal
from layerlight.ui.session import Session
from layerlight.ui.steps import at_once, polish
from layerlight.ui.time_strip import TimeStrip
from layerlight.ui.verdict_bar import VerdictBar

Part = TypeVar("Part", bound=QWidget)
PARTS = (VerdictBar, ModelPanel, LayerMap, LayerList, TimeStrip, PlanPanel, ChatPanel)


def _taken(made: Iterable[QWidget], kind: type[Part]) -> Part | None:
    return next((each for each in made if isinstance(each, kind)), None)


class WorkPanel(QWidget):
    """Swaps the plan for the chat when a model has been loaded; a person may swap them at any time."""

    acted = Signal(str)

    def __init__(self, session: Session, log: Path, ready: Iterable[QWidget] | None = None) -> None:
        """`ready` are some of its parts, made before, and it makes the others: then they come in with `settle`."""
        super().__init__()
        self._session = session
        made = tuple(ready or ())
        self.verdict = _taken(made, VerdictBar) or VerdictBar(session)
        self.verdict.acted.connect(self.acted)
        self.facts = _taken(made, ModelPanel) or ModelPanel(session)
        self.map = _taken(made, LayerMap) or LayerMap(session)
        self.table = _taken(made, LayerList) or LayerList(session)
        self.strip = _taken(made, TimeStrip) or TimeStrip(session)
        self.plan = _taken(made, PlanPanel) or PlanPanel(session)
        self.chat = _taken(made, ChatPanel) or ChatPanel(session)
        self.log = _taken(made, LogPanel) or LogPanel(log)
        self.log.closed.connect(self._close_log)
        self.map.moved.connect(self._show_plan)
        self.table.moved.connect(self._show_plan)
        self._before_log = "plan"
        self._title = Elided("", size=14, weight=600, mode=Qt.TextElideMode.ElideRight)
        self.sides = Segments((("plan", "Plan"), ("chat", "Chat")), "Side panel")
        self.sides.chosen.connect(self.show_side)
        self._pages = QStackedWidget()
        head = QFrame()
        head.setFixedHeight(44)
        self.views = Segments((("map", "Map"), ("table", "Table")), "How the layers are shown")
        self.views.chosen.connect(self.show_view)
        self._layers = QStackedWidget()
        facts, verdict, strip = self._berths = tuple(Berth(part) for part in (self.facts, self.verdict, self.strip))
        for part in (self.map, self.table):
            self._layers.addWidget(part)
        self.heat = Segments(MODES, "What colours the blocks")
        self.heat.chosen.connect(self.show_heat)
        line = row(self.heat, 8, self.views, 8, self.sides, margins=(16, 8, 16, 4))
        line.insertWidget(0, self._title, 1)
        head.setLayout(line)
        middle = column(head, gap=0)
        middle.addWidget(self._layers, 1)
        middle.addWidget(strip)
        centre = QWidget()
        centre.setLayout(middle)
        least = (FACTS_WIDTH, SIDE_WIDTH)
        self.panes = Panes(facts, centre, self._pages, least, session.settings.window_state)
        self.panes.kept.connect(self._keep_widths)
        outer = column(verdict, rule(), gap=0)
        outer.addWidget(self.panes, 1)
        self.setLayout(outer)
        self.verdict.fit()
        session.changed.connect(self._changed)
        self.show_side("plan")
        self.show_view("map")
        self.heat.choose(PLACES)
        if ready is None:
            at_once(self.settle())

    def settle(self) -> Generator[None, None, None]:
        """Its parts come in one by one, in steps."""
        for berth in self._berths:
            yield from berth.take()
        for page in (self.plan, self.chat, self.log):
            self._pages.addWidget(page)
            yield
            yield from polish(page)
        self.show_side("plan")
        self.verdict.fit()

    def reveal(self) -> None:
        """Before it is shown for the first time: its parts are painted one by one."""
        Reveal(self, (self._layers, self.verdict, self.facts, self._pages, self.strip))

    def prepare(self) -> Iterator[None]:
        """Lays itself out and draws its pictures before it is shown, in steps."""
        layout = self.layout()
        if layout is not None:
            layout.activate()
        yield
        self.map.prepare()
        yield
        self.strip.prepare()
        yield

    @property
    def side(self) -> str:
        """`plan`, `chat` or `log`: what the right side shows."""
        return ("plan", "chat", "log")[max(0, self._pages.currentIndex())]

    @property
    def view(self) -> str:
        """`map` or `table`: how the layers are shown."""
        return ("map", "table")[self._layers.currentIndex()]

    @property
    def title(self) -> str:
        return self._title.accessibleName()

    @Slot(str)
    def show_heat(self, mode: str) -> None:
        """Colours the map's blocks by `places`, `time` or `moved`; the map comes to the front for it."""
        self.show_view("map")
        self.heat.choose(mode)
        self.map.show_heat(mode)

    @Slot(str)
    def show_view(self, view: str) -> None:
        """Map or table; what is chosen in one is chosen in the other."""
        if view == self.view:
            self.views.choose(view)
            return
        chosen = self.map.chosen if view == "table" else self.table.chosen
        self.views.choose(view)
        self._layers.setCurrentIndex(("map", "table").index(view))
        self.heat.setVisible(view == "map")
        if not chosen:
            return
        if view == "table":
            self.table.choose(chosen)
        else:
            self.map.focus_block(chosen[0])
            self.map.focus_block(chosen[-1], extend=True)

    @Slot(str)
    def show_side(self, side: str) -> None:
        if side == "log":
            self._before_log = self.side if self.side != "log" else self._before_log
            self.log.read()
        else:
            self.sides.choose(side)
        self._pages.setCurrentIndex(("plan", "chat", "log").index(side))
        self._update_preference()

    @Slot()
    def _show_plan(self) -> None:
        """What was moved by hand is the plan of the next load."""
        self.show_side("plan")

    @Slot()
    def _close_log(self) -> None:
        self.show_side(self._before_log)

    @Slot(str)
    def _keep_widths(self, state: str) -> None:
        self._session.change_settings(window_state=state)

    @Slot(object, object)
    def _changed(self, _state: State, event: object) -> None:
        match event:
            case LayerRan() | TextProduced() | MemoryMeasured() | LoadProgressed() | LayerPlaced():
                return
            case ModelLoaded():
                self.show_side("chat")
                self.chat.entry.setFocus()
            case ModelInspected() | EngineStopped() | MachineChosen():
                self.show_side("plan")
                self.focus_layers()
            case _:
                self._update_preference()

    def focus_layers(self) -> None:
        """Puts the keyboard's focus where the layers are shown."""
        shown = self.map if self.view == "map" else self.table
        shown.setFocus(Qt.FocusReason.OtherFocusReason)

    def _update_preference(self) -> None:
        """While the plan's levers are moved for a next load, map and verdict show that plan, and say so."""
        session = self._session
        loaded = session.state.loaded_plan is not None
        following = self.side == "plan" and loaded and not session.plan_is_loaded and not session.busy
        for part in (self.verdict, self.facts, self.map, self.table, self.strip):
            part.prefer_next(following)
        elsewhere = session.elsewhere
        if elsewhere is not None and (following or not loaded):
            self._title.say(f"Where the layers would live on {elsewhere.title}")
        elif following:
            self._title.say("Where the layers would live after the next load")
        else:
            self._title.say("Where the layers live" if loaded else "Where the layers would live")
