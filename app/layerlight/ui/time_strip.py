"""The time strip: the last token as a bar per layer, and the same token as one line to scale."""

from __future__ import annotations

import time
from itertools import groupby

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Slot
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from layerlight.core.messages import LayerRan
from layerlight.core.state import Phase, State
from layerlight.ui.controls import draw_words
from layerlight.ui.hatching import hatch
from layerlight.ui.lanes import Lane, Unit
from layerlight.ui.palette import Theme, theme_of
from layerlight.ui.session import Session
from layerlight.ui.still import Still
from layerlight.ui.words import duration

RIGHT, CENTRE = Qt.AlignmentFlag.AlignRight, Qt.AlignmentFlag.AlignHCenter
LEFT, EDGE, TOP, FLOOR, LINE_AT = 56.0, 16.0, 44.0, 100.0, 122.0
EVERY = 0.6


class TimeStrip(QWidget):
    """Bars are redrawn now and then; only the lit one moves with every event."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._prefer_next = False
        self._steps: list[tuple[Unit, str]] = []
        self._shown: object = None
        self._still = Still(self, self._draw, 14)
        self._drawn = 0.0
        self._lit: str | None = None
        self.setFixedHeight(150)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Time of a token, layer by layer")
        session.changed.connect(self._changed)
        self._update_steps()

    def sizeHint(self) -> QSize:
        return QSize(856, 150)

    def prefer_next(self, prefer: bool) -> None:
        if prefer != self._prefer_next:
            self._prefer_next = prefer
            self._update_steps()

    @property
    def title(self) -> str:
        state = self._session.state
        if state.activity:
            return f"Token {max(each.passes for each in state.activity)}, measured"
        if state.result is not None and state.loaded and not self._prefer_next:
            return "A token of the last answer, measured"
        return "A token, predicted"

    @Slot(object, object)
    def _changed(self, state: State, event: object) -> None:
        if state.running != self._lit:
            self._lit = state.running
            self.update(0, 24, self.width(), 80)
        if not isinstance(event, LayerRan) or time.monotonic() - self._drawn > EVERY:
            self._update_steps()

    def _update_steps(self) -> None:
        lanes = self._session.lanes(self._prefer_next)
        found = [(unit, _hue(unit, lane)) for lane in lanes for unit in lane.units if unit.order >= 0]
        steps = sorted(found, key=lambda step: step[0].order)
        self._drawn = time.monotonic()
        self._steps = steps
        shown = (self.title, self._is_pale(), [_drawn(*step) for step in steps])
        if shown != self._shown:
            self._shown = shown
            self.setAccessibleDescription(self._summary())
            self._still.change()

    def _summary(self) -> str:
        total = sum(unit.seconds for unit, _ in self._steps)
        waits = sum(unit.waited for unit, _ in self._steps)
        if not total:
            return ""
        waiting = f"of which {duration(waits)} waiting" if waits > total / 1000 else "nothing waits"
        return f"{duration(total)}, {waiting}"

    def _is_pale(self) -> bool:
        """Whether the bars are a prediction."""
        state = self._session.state
        return not state.activity and (state.result is None or self._prefer_next)

    # -- painting ------------------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        p = QPainter(self)
        self._still.paint(p, event.rect())
        if self._lit is not None and self._session.state.phase is Phase.RUNNING and not self._prefer_next:
            p.setRenderHint(QPainter.RenderHint.Antialiasing)
            self._draw_lit(p, theme_of(self))

    def _draw(self, p: QPainter) -> None:
        t = theme_of(self)
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        p.fillRect(self.rect(), QColor(t.panel))
        p.fillRect(QRectF(0, 0, self.width(), 1), QColor(t.line))
        right = self.width() - EDGE
        draw_words(p, QRectF(16, 10, 400, 18), self.title if self._steps else "", t.ink, 12, 600)
        draw_words(p, QRectF(LEFT, 10, right - LEFT, 18), self._summary(), t.ink2, 12, align=RIGHT)
        if not self._steps:
            return
        peak = self._peak()
        for value, y in ((peak, TOP), (0.0, FLOOR)):
            p.setPen(QPen(QColor(t.line), 1))
            p.drawLine(QPointF(LEFT, y), QPointF(right, y))
            words = duration(value) if value else "0"
            draw_words(p, QRectF(0, y - 8, LEFT - 6, 16), words, t.ink3, 10, align=RIGHT)
        marks = next(k for k in (5, 10, 20, 50, 100, 200, 500) if len(self._steps) / k <= 12 or k == 500)
        p.setRenderHint(QPainter.RenderHint.Antialiasing, False)  # upright edges: as sharp, in half the time
        for i, (unit, hue) in enumerate(self._steps):
            self._bar(p, self._column(i), peak, unit, hue, t)
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        for i, (unit, _) in enumerate(self._steps):
            r = self._column(i)
            if unit.kind == "layer" and unit.index is not None and unit.index % marks == 0:
                box = QRectF(r.center().x() - 20, FLOOR + 2, 40, 14)
                draw_words(p, box, str(unit.index), t.ink3, 10, align=CENTRE)
        self._line(p, right, t)

    def _peak(self) -> float:
        return max((unit.seconds for unit, _ in self._steps), default=0.0) or 1e-9

    def _column(self, i: int) -> QRectF:
        pitch = (self.width() - EDGE - LEFT) / len(self._steps)
        wide = max(1.0, pitch - (2 if pitch > 6 else 0.5))
        return QRectF(LEFT + i * pitch, TOP, wide, FLOOR - TOP)

    def _bar(self, p: QPainter, r: QRectF, peak: float, unit: Unit, hue: str, t: Theme) -> None:
        """Solid: computing. Hatched: waiting for bytes. Pale: predicted."""
        full = max(1.5, r.height() * unit.seconds / peak)
        waits = unit.waited
        work = min(full, max(1.5, r.height() * (unit.seconds - waits) / peak))
        whole = QRectF(r.left(), r.bottom() - full, r.width(), full)
        pale = self._is_pale()
        p.fillRect(whole, t.tint(hue, 0.10 if pale else 0.22))
        if waits:
            hatch(p, whole.adjusted(0, 0, 0, -work), t.tint(hue, 0.45 if pale else 0.95), 4, 1)
        solid = QRectF(r.left(), r.bottom() - work, r.width(), work)
        p.fillRect(solid, t.tint(hue, 0.45) if pale else QColor(t.place(hue).fill))
        if full > 4 and r.width() > 3:
            p.setBrush(Qt.BrushStyle.NoBrush)
            p.setPen(QPen(t.tint(hue, 0.8), 1))
            p.drawRect(whole.adjusted(0.5, 0.5, -0.5, 0))

    def _draw_lit(self, p: QPainter, t: Theme) -> None:
        at = next((i for i, (unit, _) in enumerate(self._steps) if unit.key == self._lit), None)
        if at is None:
            return
        r = self._column(at)
        full = max(4.0, r.height() * self._steps[at][0].seconds / self._peak())
        whole = QRectF(r.left(), r.bottom() - full, max(3.0, r.width()), full)
        p.fillRect(whole, QColor(t.light))
        p.setPen(QPen(QColor(t.rim), 1))
        p.setBrush(Qt.BrushStyle.NoBrush)
        p.drawRect(whole)
        p.setPen(Qt.PenStyle.NoPen)
        p.setBrush(QColor(t.ink))
        tip = QPointF(r.center().x(), whole.top() - 4)
        p.drawPolygon([QPointF(tip.x() - 4, tip.y() - 6), QPointF(tip.x() + 4, tip.y() - 6), tip])

    def _line(self, p: QPainter, right: float, t: Theme) -> None:
        """The whole token, its width to scale, in the order of the sweep."""
        total = sum(unit.seconds for unit, _ in self._steps) or 1e-9
        draw_words(p, QRectF(0, LINE_AT, LEFT - 6, 16), "all", t.ink3, 10, align=RIGHT)
        x = LEFT
        for (hue, place), steps in groupby(self._steps, key=lambda step: (step[1], step[0].rests_on)):
            units = [unit for unit, _ in steps]
            seconds = sum(unit.seconds for unit in units)
            waits = sum(unit.waited for unit in units)
            wide = seconds / total * (right - LEFT)
            box = QRectF(x, LINE_AT, max(1.5, wide - 1), 16)
            share = box.width() * (seconds - waits) / seconds if seconds else 0.0
            p.fillRect(box, t.tint(hue, 0.16))
            hatch(p, box.adjusted(share, 0, 0, 0), t.tint(hue, 0.6), 4, 1)
            p.fillRect(QRectF(box.left(), LINE_AT, share, 16), QColor(t.place(hue).fill))
            self._line_words(p, box, share, f"{place}  {duration(seconds)}", f"{place} waits {duration(waits)}", hue, t)
            x += wide

    def _line_words(self, p: QPainter, box: QRectF, share: float, works: str, waits: str, hue: str, t: Theme) -> None:
        room = len(waits) * 6.4 + 20
        if box.width() - share > room + 30:
            at = QRectF(box.left() + share, LINE_AT, room, 16)
            p.fillRect(at, QColor(t.panel))
            draw_words(p, at, waits, t.place(hue).line, 11, 600, CENTRE)
        elif share > len(works) * 6.4 + 10:
            draw_words(p, box.adjusted(7, 0, 0, 0), works, t.place(hue).text, 11, 600)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self._still.drop()
        super().changeEvent(event)

    def prepare(self) -> None:
        """Draws the bars before they are shown."""
        self._still.prepare()


def _drawn(unit: Unit, hue: str) -> tuple[object, ...]:
    """All of a step that can be seen."""
    return unit.key, hue, unit.rests_on, unit.seconds, unit.waited


def _hue(unit: Unit, lane: Lane) -> str:
    return "ram" if unit.runs_on == "cpu" and unit.rests_on == "cpu" else lane.hue
