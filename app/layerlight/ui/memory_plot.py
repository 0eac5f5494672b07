"""The memory plot: how much of a place was in use over the last minutes, ours in its colour and others in grey."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QWidget

from layerlight.ui.machine_watch import KEPT, Sample
from layerlight.ui.palette import theme_of

WIDTH, HEIGHT = 72, 18
LEAST = 30.0
"""Seconds that its width stands for at first."""


class MemoryPlot(QWidget):
    """To scale: its height is all of the place, its width the time that was watched, up to now."""

    def __init__(self, hue: str) -> None:
        super().__init__()
        self._hue = hue
        self._samples: Sequence[Sample] = ()
        self.setFixedSize(WIDTH, HEIGHT)
        minutes = f"{KEPT / 60:.0f} minutes"
        self.setToolTip(f"Memory in use over the last minutes, at most {minutes}: ours in colour, other programs’ grey")

    def show_samples(self, samples: Sequence[Sample], hue: str) -> None:
        """Draws them; the newest is at the right edge."""
        self._samples, self._hue = samples, hue
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        p, t = QPainter(self), theme_of(self)
        r = QRectF(self.rect()).adjusted(0, 1, 0, -1)
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        p.setPen(Qt.PenStyle.NoPen)
        p.setBrush(QColor(t.well))
        p.drawRoundedRect(r, 3, 3)
        if len(self._samples) < 2:
            return
        ours = self._line(r, others=False)
        both = self._line(r, others=True)
        p.setPen(Qt.PenStyle.NoPen)
        p.setBrush(QColor(t.other))
        p.drawPolygon(QPolygonF([*both, *reversed(ours)]))
        floor = [QPointF(ours[-1].x(), r.bottom()), QPointF(ours[0].x(), r.bottom())]
        p.setBrush(t.tint(self._hue, 0.34))
        p.drawPolygon(QPolygonF([*ours, *floor]))
        p.setPen(QPen(QColor(t.place(self._hue).line), 1.2))
        p.drawPolyline(QPolygonF(ours))
        p.setPen(QPen(QColor(t.edge), 1))
        p.drawPolyline(QPolygonF(both))

    def _line(self, r: QRectF, others: bool) -> list[QPointF]:
        """Of our part, or of all that is in use."""
        end = self._samples[-1].when
        span = max(LEAST, end - self._samples[0].when)
        return [
            QPointF(
                r.right() - (end - each.when) / span * r.width(),
                r.bottom() - min(1.0, each.ours + (each.others if others else 0.0)) * r.height(),
            )
            for each in self._samples
        ]
