"""The layer map: every place a lane, every byte the same area, the model read from top to bottom."""

from __future__ import annotations

import time

from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal, Slot
from PySide6.QtGui import (
    QAccessible,
    QAccessibleEvent,
    QColor,
    QContextMenuEvent,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QRegion,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import QMenu, QSizePolicy, QWidget

from layerlight.core.messages import LayerRan
from layerlight.core.state import Phase, State
from layerlight.ui import arrangement
from layerlight.ui.arrangement import RULER, Arrangement, arrange
from layerlight.ui.lanes import Lane, shown_plan
from layerlight.ui.layer_card import LayerCard, facts_of
from layerlight.ui.layer_table import rows_of
from layerlight.ui.map_hand import Hand, letters_of
from layerlight.ui.map_heat import PLACES, Heat, draw_scale, heat_of
from layerlight.ui.map_legend import draw_legend
from layerlight.ui.map_light import Halo, draw_light, light_areas
from layerlight.ui.map_painter import MapPainter
from layerlight.ui.map_repair import changed_region
from layerlight.ui.map_steps import Block, across, along
from layerlight.ui.move_menu import move_menu
from layerlight.ui.palette import theme_of
from layerlight.ui.session import Session
from layerlight.ui.stamps import Stamps
from layerlight.ui.still import Still

COMMANDS = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier | Qt.KeyboardModifier.MetaModifier
LEGEND_HEIGHT = 32
TIMES_EVERY = 1.0
"""Seconds between two updates of the times written in the blocks: faster than this nobody reads."""

FAR = 10**6
"""More blocks than there are."""
STAYS = (
    Qt.FocusReason.PopupFocusReason,
    Qt.FocusReason.MenuBarFocusReason,
    Qt.FocusReason.ActiveWindowFocusReason,
)
"""Reasons for which the focus goes and will be back."""


class LayerMap(QWidget):
    """Lanes and blocks come from a kept picture; blocks that changed are repainted in it, what moves goes on top."""

    focused = Signal(str)
    moved = Signal()
    """Blocks were moved by hand."""

    def __init__(self, session: Session, legend: bool = True) -> None:
        super().__init__()
        self._session = session
        self._legend = legend
        self._prefer_next = False
        self._lanes: tuple[Lane, ...] = ()
        self._plan = Arrangement(1.0)
        self._still = Still(self, self._draw_still)
        self._halo = Halo()
        self._stamps = Stamps()
        self._mode = PLACES
        self._heat: Heat | None = None
        self._lit: str | None = None
        self._focus: tuple[int, str] | None = None
        self._times_shown = 0.0
        self._stale = False
        self._hand = Hand()
        self._card = LayerCard(self)
        self.setMinimumSize(360, 300)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Layer map")
        self.setAccessibleDescription(
            "Where every layer rests. Arrow keys move from block to block, with Shift they choose several; a place’s "
            "letter moves them there."
        )
        session.changed.connect(self._changed)
        self._rearrange()

    def sizeHint(self) -> QSize:
        return QSize(856, 560)

    @property
    def arranged(self) -> Arrangement:
        """The geometry now shown."""
        return self._plan

    @property
    def chosen(self) -> tuple[str, ...]:
        """The layers that a move by hand would move."""
        return self._hand.keys

    @property
    def lit(self) -> str | None:
        """The layer that is drawn as running."""
        return self._lit

    @property
    def heat(self) -> Heat | None:
        """The shades that blocks have now; None while they have the colours of their places."""
        return self._heat

    def show_heat(self, mode: str) -> None:
        """Colours blocks by `places`, `time` or `moved`."""
        if mode != self._mode:
            self._mode = mode
            self._heat = self._heat_now()
            self._still.change()

    def _heat_now(self) -> Heat | None:
        if self._mode == PLACES:
            return None
        return heat_of(rows_of(self._lanes, self._session.state, self._prefer_next), self._mode)

    def prefer_next(self, prefer: bool) -> None:
        """Shows the plan being made instead of what is in memory."""
        if prefer != self._prefer_next:
            self._prefer_next = prefer
            self._update_lanes()

    # -- from the session ----------------------------------------------------------------------------------------

    @Slot(object, object)
    def _changed(self, state: State, event: object) -> None:
        if not self.isVisible():
            self._stale = True
            return
        if isinstance(event, LayerRan):
            self._update_light(state.running)
            if time.monotonic() - self._times_shown > TIMES_EVERY:
                self._update_lanes()
            return
        if state.running != self._lit:
            self._update_light(state.running)
        self._update_lanes()

    def _update_light(self, running: str | None) -> None:
        if running == self._lit:
            return
        for each in (self._lit, running):
            self._lit = each
            for area in light_areas(self._plan, each):
                self.update(area)

    def _update_lanes(self) -> None:
        """Redraws only blocks that changed while nothing moved; else the whole picture."""
        self._times_shown = time.monotonic()
        lanes = self._session.lanes(self._prefer_next)
        if lanes == self._lanes:
            return
        before, self._lanes = self._plan, lanes
        self._plan = arrange(lanes, self._area())
        heat, self._heat = self._heat, self._heat_now()
        region = changed_region(before, self._plan) if heat == self._heat and self._still.is_new else None
        if region is None:
            self._still.change()
        else:
            self._repair(region)
        self._update_card()

    def _repair(self, region: QRegion) -> None:
        """Paints a part of the kept picture anew."""
        p = self._still.painter()
        MapPainter(self._plan, theme_of(self), self._area(), region, self._stamps, self._heat).paint(p)
        p.end()
        self.update(region)

    def _rearrange(self) -> None:
        self._lanes = self._session.lanes(self._prefer_next)
        self._plan = arrange(self._lanes, self._area())
        self._heat = self._heat_now()
        self._still.drop()

    def prepare(self) -> None:
        """Draws the map before it is shown."""
        self._catch_up()
        self._still.prepare()

    def _catch_up(self) -> None:
        """What it did not follow while nobody saw it."""
        if self._stale:
            self._stale = False
            self._update_light(self._session.state.running)
            self._update_lanes()

    def showEvent(self, _event: QShowEvent) -> None:
        self._catch_up()

    def _area(self) -> QRectF:
        below = LEGEND_HEIGHT + 22 if self._legend else 30
        return QRectF(16, 4, max(320, self.width() - 32), max(200, self.height() - below))

    # -- painting ------------------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        p = QPainter(self)
        self._still.paint(p, event.rect())
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self._lit is not None and self._shows_truth():
            draw_light(p, self._plan, self._lit, theme_of(self), self._halo)
        self._draw_focus(p)
        self._hand.draw(p, self._plan, theme_of(self))

    def _draw_still(self, p: QPainter) -> None:
        t = theme_of(self)
        p.fillRect(self.rect(), QColor(t.window))
        MapPainter(self._plan, t, self._area(), stamps=self._stamps, heat=self._heat).paint(p)
        if self._legend and any(lane.units for lane in self._lanes):
            box = QRectF(16 + RULER, self.height() - LEGEND_HEIGHT, self.width() - 32 - RULER, LEGEND_HEIGHT)
            if self._heat is not None:
                draw_scale(p, box, self._heat, t)
                return
            hue = next(lane.hue for lane in self._lanes if lane.units)
            pinned = any(unit.pinned for lane in self._lanes for unit in lane.units)
            experts = any(unit.experts for lane in self._lanes for unit in lane.units)
            draw_legend(p, box, hue, t, pinned, experts)

    def _shows_truth(self) -> bool:
        state = self._session.state
        return state.phase is Phase.RUNNING and shown_plan(state, self._prefer_next) is state.loaded_plan

    def _draw_focus(self, p: QPainter) -> None:
        slot = self._focus_slot()
        if slot is None:
            return
        p.setPen(QPen(QColor(theme_of(self).ink), 2))
        p.setBrush(Qt.BrushStyle.NoBrush)
        p.drawRoundedRect(slot.rect.adjusted(-2, -1.5, 2, 1.5), 4, 4)

    # -- focus: mouse and keys -----------------------------------------------------------------------------------

    def focus_block(self, key: str, lane: int | None = None, extend: bool = False) -> None:
        """Puts the focus on a block and shows its card. `extend` chooses all from the first chosen one to it."""
        lanes = range(len(self._lanes)) if lane is None else (lane,)
        self._focus = next(((each, key) for each in lanes if (each, key) in self._plan.by_key), None)
        self._hand.choose(key, self._plan, extend)
        self._update_card()
        self.update()

    def _focus_slot(self) -> arrangement.Slot | None:
        if self._focus is None:
            return None
        found = self._plan.by_key.get(self._focus)
        return None if found is None else self._plan.slots[found]

    def _update_card(self) -> None:
        slot, state = self._focus_slot(), self._session.state
        plan = shown_plan(state, self._prefer_next)
        if slot is None or slot.unit is None or plan is None or self._hand.is_moving:
            self._card.hide()
            return
        facts = facts_of(slot.unit, self._plan.lanes[slot.lane], plan, state, self._ways(slot))
        lanes = [box for boxes in self._plan.columns for box in boxes]
        self._card.show_at(facts, slot.rect, self._bounds(), lanes)
        self.setAccessibleDescription(facts.spoken())
        if QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleEvent(self, QAccessible.Event.DescriptionChanged))
        self.focused.emit(slot.unit.key)

    def _bounds(self) -> QRectF:
        """Where a card may lie: all but the legend."""
        return QRectF(self.rect()).adjusted(8, 8, -8, -LEGEND_HEIGHT if self._legend else -8)

    def _ways(self, slot: arrangement.Slot) -> str:
        """`G RTX 4060, R RAM`: where the letters would move this block."""
        if slot.unit is None or slot.unit.order < 0 or self._session.busy:
            return ""
        titles = {lane.place: lane.title for lane in self._lanes}
        return ", ".join(
            f"{letter} {titles[place]}"
            for letter, place in letters_of(self._lanes).items()
            if place != self._plan.lanes[slot.lane].place
        )

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._hand.move(event.position(), self._plan):
            self._card.hide()
            self.setCursor(Qt.CursorShape.ClosedHandCursor)
            self.update()
            return
        if event.buttons() or len(self._hand.keys) > 1:
            return
        slot = self._plan.slot_at(event.position())
        if slot is None or slot.unit is None:
            if self._focus is not None and not self.hasFocus():
                self._clear_focus()
            return
        if (slot.lane, slot.unit.key) != self._focus:
            self.focus_block(slot.unit.key, slot.lane)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        slot = self._plan.slot_at(event.position())
        if slot is None or slot.unit is None:
            self._clear_focus()
            return
        extend = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        if extend or slot.unit.key not in self._hand.keys:
            self.focus_block(slot.unit.key, slot.lane, extend)
        if event.button() == Qt.MouseButton.LeftButton and self._can_move():
            self._hand.press(event.position())

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        carried = self._hand.is_moving
        place = self._hand.release(self._plan)
        self.unsetCursor()
        self.update()
        if place is not None:
            self._move_to(place)
        elif not carried and event.button() == Qt.MouseButton.LeftButton and len(self._hand.keys) > 1:
            slot = self._plan.slot_at(event.position())
            if slot is not None and slot.unit and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
                self.focus_block(slot.unit.key, slot.lane)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        slot = self._focus_slot()
        if slot is None or not self._hand.keys or not self._can_move():
            return
        by_key = event.reason() == QContextMenuEvent.Reason.Keyboard
        at = self.mapToGlobal(slot.rect.center().toPoint()) if by_key else event.globalPos()
        menu = self.move_menu()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(at)

    def move_menu(self) -> QMenu:
        """What can be done with the chosen blocks."""
        return move_menu(self, self._session, self._lanes, self._hand.keys, self._move_to, self._reset)

    def _reset(self) -> None:
        self._session.reset_plan()
        self.moved.emit()

    def _can_move(self) -> bool:
        return not self._session.busy and self._session.state.plan is not None

    def _move_to(self, place: str | None) -> None:
        """Pins what is chosen, or sets it free."""
        if self._hand.keys and self._can_move():
            self._session.pin(self._hand.keys, place)
            self.moved.emit()

    def leaveEvent(self, _event: QEvent) -> None:
        if not self.hasFocus():
            self._clear_focus()

    def focusInEvent(self, event: QFocusEvent) -> None:
        first = next((slot for slot in self._plan.sweep()), None)
        by_key = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        if by_key and self._focus is None and first is not None and first.unit is not None:
            self.focus_block(first.unit.key, first.lane)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """What is chosen stays chosen for a menu, and for whoever comes back from another window."""
        if event.reason() not in STAYS:
            self._clear_focus()

    def _clear_focus(self) -> None:
        self._focus = None
        self._hand.forget()
        self._card.hide()
        self.unsetCursor()
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1, Qt.Key.Key_PageDown: 10, Qt.Key.Key_PageUp: -10}
        side = {Qt.Key.Key_Right: 1, Qt.Key.Key_Left: -1}
        key = Qt.Key(event.key())
        extend = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        letters = {} if event.modifiers() & COMMANDS else letters_of(self._lanes)
        if key in step:
            self._step_to(along(self._plan, self._focus, step[key]), extend)
        elif self._hand.keys and event.text().upper() in letters:
            self._move_to(letters[event.text().upper()])
        elif key in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace) and self._hand.keys:
            self._move_to(None)
        elif key in side:
            here = self._focus_slot()
            self._step_to(along(self._plan, None, 1) if here is None else across(self._plan, here, side[key]))
        elif key in (Qt.Key.Key_Home, Qt.Key.Key_End):
            self._step_to(along(self._plan, self._focus, -FAR if key == Qt.Key.Key_Home else FAR), extend)
        elif key == Qt.Key.Key_Escape and self._focus is not None:
            self._clear_focus()
        else:
            super().keyPressEvent(event)

    def _step_to(self, block: Block | None, extend: bool = False) -> None:
        if block is not None:
            lane, key = block
            self.focus_block(key, lane, extend)

    # -- size and theme ------------------------------------------------------------------------------------------

    def resizeEvent(self, _event: QResizeEvent) -> None:
        self._rearrange()
        self._update_card()

    def changeEvent(self, event: QEvent) -> None:
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange):
            self._still.drop()
        super().changeEvent(event)
