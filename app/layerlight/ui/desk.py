"""The desk: everything in the window that a session fills: menus, notices, the welcome, the working view."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QFileDialog, QMenu, QStackedWidget, QWidget

from layerlight.core.messages import LayerPlaced, LayerRan, LoadProgressed, MemoryMeasured, TextProduced
from layerlight.core.state import Phase, State
from layerlight.ui.chat_panel import ChatPanel
from layerlight.ui.command_palette import CommandPalette
from layerlight.ui.commands import Command, commands_of
from layerlight.ui.controls import column, row, rule
from layerlight.ui.export_menu import ExportMenu
from layerlight.ui.fixes_panel import FixesPanel
from layerlight.ui.happenings import SettingsChanged
from layerlight.ui.layer_map import LayerMap
from layerlight.ui.log_panel import LogPanel
from layerlight.ui.menus import Menus
from layerlight.ui.notice_bar import NoticeBar
from layerlight.ui.past_chats import PastChats
from layerlight.ui.pick_menus import MachineMenu, ShapeMenu
from layerlight.ui.plan_panel import PlanPanel
from layerlight.ui.possible import possible
from layerlight.ui.reveal import Reveal
from layerlight.ui.session import Session
from layerlight.ui.shelf import Shelf
from layerlight.ui.steering import Steering
from layerlight.ui.steps import at_once
from layerlight.ui.strategy_panel import StrategyPanel
from layerlight.ui.theme import ThemeSwitch
from layerlight.ui.title_bar import TitleBar
from layerlight.ui.welcome_panel import WelcomePanel
from layerlight.ui.window import Window
from layerlight.ui.work_panel import PARTS, WorkPanel

if TYPE_CHECKING:
    from layerlight.ui.unseen_dialog import UnseenDialog

MEASURE_EVERY = 2000
"""ms between two looks at the machine; at RAM too while the engine can't look yet."""


@dataclass(slots=True)
class DeskParts:
    """What a desk is put together from."""

    machines: MachineMenu
    shapes: ShapeMenu
    exports: ExportMenu
    welcome: WelcomePanel
    lanes: LayerMap


def make_parts(session: Session, shelf: Shelf) -> Generator[None, None, DeskParts]:
    """Makes them one by one, in steps."""
    machines, shapes, exports = MachineMenu(session, shelf), ShapeMenu(shelf), ExportMenu(session)
    yield
    welcome = WelcomePanel(session)
    yield
    lanes = LayerMap(session, legend=False)
    yield
    return DeskParts(machines, shapes, exports, welcome, lanes)


class Desk(QWidget):
    """Hands what people do to the session, and shows the page that its state asks for."""

    close_wanted = Signal()
    full_screen_wanted = Signal()
    named = Signal(str)
    """What the window should be called."""

    def __init__(
        self, session: Session, log: Path, themes: ThemeSwitch | None = None, parts: DeskParts | None = None
    ) -> None:
        super().__init__()
        self._session, self._log, self._themes = session, log, themes
        self._menus: Menus
        self.title: TitleBar
        whole = parts is None
        parts = parts or at_once(make_parts(session, Shelf()))
        self.machines, self.shapes, self.exports = parts.machines, parts.shapes, parts.exports
        self.machines.picked.connect(session.plan_for)
        self.shapes.picked.connect(session.open_public)
        self._unseen: UnseenDialog | None = None
        self._work: WorkPanel | None = None
        self._turned = False
        self._steering = Steering(session, self)
        self._layer_menu: QMenu | None = None
        self._command_palette: CommandPalette | None = None
        self.welcome, self._lanes = parts.welcome, parts.lanes
        self.welcome.opened.connect(self._open)
        self.welcome.starter_wanted.connect(session.fetch_starter)
        self.welcome.chat_wanted.connect(self._steering.show_chat)
        self.welcome.unseen_wanted.connect(self._name_model)
        self._lanes.setFixedWidth(560)
        self._first = QWidget()
        self._first.setLayout(row(column(self._lanes, margins=(0, 24, 0, 16)), self.welcome, gap=0))
        self._pages = QStackedWidget()
        self._pages.addWidget(self._first)
        self._notice = NoticeBar(session)
        self._outer = column(rule(), self._notice, gap=0)
        self._outer.addWidget(self._pages, 1)
        self.setLayout(self._outer)
        self._clock = QTimer(self, interval=MEASURE_EVERY)
        self._clock.timeout.connect(self._measure)
        self._turning = QTimer(self, singleShot=True, interval=0)
        self._turning.timeout.connect(self._turn_to_work)
        if whole:
            at_once(self.crown())

    def crown(self) -> Generator[None, None, None]:
        """Adds menus and title bar, and begins to follow the session: once, when it was given its parts. In steps."""
        session = self._session
        within: dict[str, QMenu] = {"machines": self.machines, "models": self.shapes, "export": self.exports}
        self._menus = Menus(self, self._commands(), self._choose_theme, within)
        self._menus.choose_theme(session.settings.theme)
        yield
        self.title = TitleBar(session, self._menus.bar, self.machines)
        self.title.search.clicked.connect(self._toggle_commands)
        self._outer.insertWidget(0, self.title)
        session.changed.connect(self._changed)
        self._update()

    @property
    def work(self) -> WorkPanel:
        """The working view; made when it is first needed, so that the window is up at once."""
        return self._work or self._stand_up(WorkPanel(self._session, self._log))

    def front(self) -> WorkPanel:
        """Brings the working view to the front."""
        self._pages.setCurrentWidget(self.work)
        return self.work

    @property
    def command_palette(self) -> CommandPalette:
        if self._command_palette is None:
            self._command_palette = CommandPalette(self._collect_commands, self)
            self.shelf.filled.connect(self._command_palette.refill)
        return self._command_palette

    def furnish(self, window: Window) -> None:
        """Stands in a window: takes its drops and its end."""
        Reveal(self, (self._lanes, self.welcome, self.title))
        window.fill(self)
        window.dropped.connect(self._session.open_folder)
        window.closing.connect(self._close)
        self.close_wanted.connect(window.close)
        self.full_screen_wanted.connect(window.toggle_full_screen)
        self.named.connect(window.rename)

    def make_work(self) -> Generator[None, None, None]:
        """Makes the working view before it is needed, in steps."""
        parts: list[QWidget] = []
        session = self._session
        past = PastChats(session)
        yield
        fixes = FixesPanel(session)
        yield
        strategies = StrategyPanel(session)
        yield
        self.command_palette.hide()  # made here, when it costs least
        yield
        for make in (
            *(partial(kind, session) for kind in PARTS if kind not in (PlanPanel, ChatPanel)),
            partial(PlanPanel, session, fixes, strategies),
            partial(ChatPanel, session, past),
            partial(LogPanel, self._log),
        ):
            parts.append(make())
            yield
        work = self._stand_up(WorkPanel(self._session, self._log, parts))
        yield
        yield from work.settle()

    def draw_first(self, window: Window) -> Iterator[None]:
        """Lays the first page out as the window will have it and draws its map, in steps, before it is shown."""
        self.resize(window.size())
        for layout in (self._outer, self._first.layout()):
            if layout is not None:
                layout.activate()
            yield
        self._lanes.prepare()
        yield

    def prepare(self) -> Iterator[None]:
        """Draws the working view before it is shown, in steps, while the engine warms up."""
        self.work.resize(self._pages.size())
        yield from self.work.prepare()

    @Slot(str)
    def _close(self, geometry: str) -> None:
        """At any moment: the engine ends by itself, the last words of an answer are stored."""
        self._clock.stop()
        self._session.change_settings(window_geometry=geometry)
        self._session.close()

    def _stand_up(self, work: WorkPanel) -> WorkPanel:
        self._work = work
        work.acted.connect(self._act)
        work.plan.take_export(self.exports)
        self._pages.addWidget(work)
        return work

    @property
    def working(self) -> bool:
        return self._work is not None and self._pages.currentWidget() is self._work

    @property
    def shelf(self) -> Shelf:
        return self.machines.shelf

    @property
    def menus(self) -> Menus:
        return self._menus

    @property
    def notice(self) -> str:
        return self._notice.words

    # -- what a person does --------------------------------------------------------------------------------------

    def _commands(self) -> dict[str, Callable[[], object]]:
        session = self._session
        return {
            "open": self._choose_folder,
            "starter": session.fetch_starter,
            "unseen": self._name_model,
            "quit": self.close_wanted.emit,
            "load": session.load,
            "unload": session.unload,
            "stop": session.stop,
            "survey": session.survey,
            "calibrate": session.calibrate,
            "undo": session.undo,
            "redo": session.redo,
            "reset": session.reset_plan,
            "new_chat": session.new_conversation,
            "answer_again": session.answer_again,
            **self._steering.commands(),
            "bring_back": session.conversations.bring_back,
            "full_screen": self.full_screen_wanted.emit,
            "notifications": self._toggle_notifications,
            "reduced_motion": self._toggle_motion,
            "commands": self._toggle_commands,
            "about": self._about,
        }

    def _toggle_commands(self) -> None:
        self.command_palette.toggle()

    def _collect_commands(self) -> tuple[Command, ...]:
        """All of the menus; before them what can be done with the chosen layers."""
        menus = list(self._menus.menus)
        if self._layer_menu is not None:
            self._layer_menu.deleteLater()
        self._layer_menu = self._make_layer_menu()
        if self._layer_menu is not None:
            menus.insert(0, ("Chosen layers", self._layer_menu))
        return commands_of(menus)

    def _make_layer_menu(self) -> QMenu | None:
        session = self._session
        if not self.working or session.busy or session.state.plan is None:
            return None
        if self.work.view == "map":
            return self.work.map.move_menu() if self.work.map.chosen else None
        return self.work.table.menu() if self.work.table.chosen else None

    @Slot(str)
    def _open(self, folder: str) -> None:
        if folder:
            self._session.open_folder(folder)
        else:
            self._choose_folder()

    def _choose_folder(self) -> None:
        start = self._session.settings.last_folder or str(Path.home())
        folder = QFileDialog.getExistingDirectory(self, "Open a model folder", start)
        if folder:
            self._session.open_folder(folder)

    @Slot()
    def _name_model(self) -> None:
        """What was typed there stays for the next time: a name may be wrong by a letter."""
        from layerlight.ui.unseen_dialog import UnseenDialog

        if self._unseen is None:
            self._unseen = UnseenDialog(self.shelf, self)
            self._unseen.named.connect(self._session.open_hub)
            self._unseen.picked.connect(self._session.open_public)
        self._unseen.open()

    @property
    def unseen(self) -> UnseenDialog | None:
        """The dialog that names a model one doesn't have, once it was opened."""
        return self._unseen

    @Slot(str)
    def _act(self, action: str) -> None:
        session = self._session
        match action:
            case "load":
                session.load()
            case "unload":
                session.unload()
            case "cancel":
                session.stop()
            case "dismiss":
                session.dismiss()
            case "details":
                self._steering.show_log()
            case "apply":
                wishes = session.planning.advice.wishes if session.planning.advice else None
                if wishes is not None:
                    session.change_settings(quantization=wishes.quantization)

    def _toggle_notifications(self) -> None:
        self._session.change_settings(notifications=not self._session.settings.notifications)

    def _toggle_motion(self) -> None:
        self._session.change_settings(reduced_motion=not self._session.reduced_motion)

    def _choose_theme(self, choice: str) -> None:
        self._menus.choose_theme(choice)
        self._session.change_settings(theme=choice)
        if self._themes is not None:
            self._themes.choose(choice)

    def _about(self) -> None:
        from layerlight.ui.about import AboutDialog

        AboutDialog(self._session.state, self._log, self).open()

    # -- what the session says -----------------------------------------------------------------------------------

    @Slot(object, object)
    def _changed(self, _state: State, event: object) -> None:
        if not isinstance(event, LayerRan | TextProduced | MemoryMeasured | LoadProgressed | LayerPlaced):
            self._update(isinstance(event, SettingsChanged))

    def _update(self, settings: bool = True) -> None:
        session, state = self._session, self._session.state
        needs_work = state.model is not None or state.error is not None or session.problem is not None
        fetching = state.phase in (Phase.FETCHING, Phase.CALIBRATING) or session.waiting in (
            "StarterRequest",
            "CalibrateRequest",
        )
        if (needs_work or fetching) and not self.working:
            self._turning.start()
        elif not needs_work and not fetching and self.working and not session.turns:
            self._pages.setCurrentIndex(0)
        name = state.model.name if state.model else ""
        self.named.emit(f"{name} — Layerlight" if name else "Layerlight")
        actions = self._menus.actions
        for key, can in possible(session, self.working).items():
            actions[key].setEnabled(can)
        if settings:
            actions["reduced_motion"].setChecked(session.reduced_motion)
            actions["notifications"].setChecked(session.settings.notifications)
            self._menus.show_recent(session.settings.recent_folders, session.open_folder)
            if self._command_palette is not None:
                self._command_palette.refill()

    @Slot()
    def _turn_to_work(self) -> None:
        """In a step of its own; the first time its parts are painted one by one."""
        if not self._turned:
            self._turned = True
            self.work.reveal()
        self._pages.setCurrentWidget(self.work)
        self.work.focus_layers()

    @Slot()
    def _measure(self) -> None:
        if not self.isVisible():
            return
        self._session.watch.look()
        if not self._session.state.engine_warm:
            self._session.measure_ram()

    def showEvent(self, _event: QShowEvent) -> None:
        self._clock.start()
        if self.window().focusWidget() is None:
            self._lanes.setFocus(Qt.FocusReason.OtherFocusReason)
