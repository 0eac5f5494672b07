"""A device: its name, its memory as one bar in the map's grammar, and what is free."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QFrame

from layerlight.core.device import DISK
from layerlight.ui.controls import Elided, Painted, column, label, row
from layerlight.ui.hatching import hatch
from layerlight.ui.icons import draw_icon
from layerlight.ui.lanes import Lane
from layerlight.ui.machine_watch import Sample
from layerlight.ui.memory_plot import MemoryPlot
from layerlight.ui.palette import Theme
from layerlight.ui.words import short_size


class DeviceCard(QFrame):
    """Shows a lane's memory; told anew by `show_lane`."""

    def __init__(self, lane: Lane) -> None:
        super().__init__()
        self.setObjectName("card")
        self._lane = lane
        self._said = ""
        mark = Painted(16, lambda p, _r, t: draw_icon(p, self._lane.hue, 0, 0, t.place(self._lane.hue).line), 16)
        self._title = Elided("", size=13, weight=600, mode=Qt.TextElideMode.ElideMiddle)
        self._share = label("", size=12, weight=600)
        self._bar = Painted(8, self._draw)
        self._free = label("", "3")
        self._ours = label("", "3")
        self._facts = Elided("", "3", mode=Qt.TextElideMode.ElideRight)
        self._plot = MemoryPlot(lane.hue)
        self._warning = label("", "bad", wrap=True)
        head = row(mark)
        head.addWidget(self._title, 1)
        head.addWidget(self._share)
        lately = row(gap=10)
        lately.addWidget(self._facts, 1)
        lately.addWidget(self._plot)
        self.setLayout(
            column(
                head, self._bar, row(self._free, None, self._ours), lately, self._warning,
                margins=(12, 9, 12, 9), gap=6,
            )
        )  # fmt: skip
        for each in (self._facts, self._plot, self._warning):
            each.hide()
        self.show_lane(lane)

    @property
    def lane(self) -> Lane:
        return self._lane

    def show_lane(self, lane: Lane) -> None:
        self._lane = lane
        self._title.say(lane.title)
        self.setToolTip(lane.detail)
        here = sum(unit.size - unit.kv for unit in lane.units if unit.state == "resting" and unit.order >= 0)
        if lane.over:
            self._free.setText(f"{short_size(lane.over)} short")
        elif lane.free is None:
            self._free.setText("free memory unknown")
        else:
            self._free.setText(f"{short_size(max(0, lane.free))} free")
        planned = sum(unit.size for unit in lane.units)
        self._ours.setText(
            f"{short_size(here)} loaded" if here else f"{short_size(planned)} planned" if planned else ""
        )
        share = f"{lane.used / lane.total:.0%}" if lane.total and lane.place != DISK else ""
        self._share.setText("too full" if lane.over else share)
        self._name()
        self._bar.update()

    def show_watch(self, samples: Sequence[Sample] = (), facts: str = "", warning: str = "") -> None:
        """What was seen of the device lately; nothing of one that is planned for and not here."""
        self._plot.show_samples(samples, self._lane.hue)
        self._plot.setVisible(len(samples) > 1)
        if facts != self._said or warning != self._warning.text():
            self._said = facts
            self._facts.say(facts)
            self._warning.setText(warning)
            self._name()
        self._facts.setVisible(bool(facts))
        self._warning.setVisible(bool(warning))

    def _name(self) -> None:
        said = (f"{self._lane.title}: {self._free.text()}", self._ours.text(), self._said, self._warning.text())
        self.setAccessibleName(". ".join(words.rstrip(".") for words in said if words))

    def _draw(self, p: QPainter, r: QRectF, t: Theme) -> None:
        lane = self._lane
        p.setPen(Qt.PenStyle.NoPen)
        p.setBrush(QColor(t.line))
        p.drawRoundedRect(r, 3, 3)
        total = lane.total if lane.place != DISK else 2 * lane.taken
        if not total:
            return
        p.setClipRect(r)
        layers = [unit for unit in lane.units if unit.order >= 0]
        here = sum(unit.size - unit.kv for unit in layers if unit.state == "resting")
        coming = sum(unit.size - unit.kv for unit in layers) - here
        cache = sum(unit.kv for unit in layers) + sum(unit.size for unit in lane.units if unit.kind == "kv")
        work = sum(unit.size for unit in lane.units if unit.kind in ("working", "berth"))
        x = 0.0
        parts = (
            (here, QColor(t.place(lane.hue).fill)),
            (coming, t.tint(lane.hue, 0.34)),
            (cache, t.tint(lane.hue, 0.60)),
            (work, t.tint(lane.hue, 0.22)),
        )
        for size, colour in parts:
            wide = size / total * r.width()
            p.fillRect(QRectF(x, r.top(), wide, r.height()), colour)
            x += wide
        end = r.right() - lane.other / total * r.width()
        p.fillRect(QRectF(end, r.top(), r.right() - end, r.height()), QColor(t.other))
        margin = lane.margin / total * r.width()
        hatch(p, QRectF(end - margin, r.top(), margin, r.height()), t.edge, 4, 1)
