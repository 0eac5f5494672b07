"""The card that tells all about one block of the map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from layerlight.core.device import CPU, DISK
from layerlight.core.plan import Plan
from layerlight.core.state import State
from layerlight.ui.controls import draw_words
from layerlight.ui.lanes import Lane, Unit
from layerlight.ui.palette import theme_of
from layerlight.ui.theme import font
from layerlight.ui.words import count, duration, short_size

WIDTH = 292
LINE = 20
TOP = 54
REASON_LINE = 15


@dataclass(frozen=True, slots=True)
class Facts:
    """What the card says: `title` and `price` in its head, the module's name, rows, and why it is there."""

    title: str
    price: str
    module: str
    rows: tuple[tuple[str, str], ...]
    reason: str = ""

    def spoken(self) -> str:
        """The same as one sentence for screen readers."""
        parts = [self.title, self.price, *(f"{name} {value}" for name, value in self.rows), self.reason]
        return ". ".join(part for part in parts if part)


def facts_of(unit: Unit, lane: Lane, plan: Plan, state: State, ways: str = "") -> Facts:
    """The facts of a block; measured where something was measured. `ways` are letters that would move it."""
    if unit.order < 0:
        return _claim(unit, lane, plan)
    layer = plan.model.layer(unit.key)
    placement = plan.placement(unit.key)
    placed = next((each for each in state.places if each.layer == unit.key), None)
    activity = next((each for each in state.activity if each.layer == unit.key), None)
    dtype = placed.dtype if placed else placement.dtype
    weights = unit.size - unit.kv
    rows = [("Weights", f"{short_size(weights)}, {count(layer.parameters)} × {dtype}")]
    if unit.experts and plan.model.shape is not None:
        chosen = plan.model.shape.experts_per_token
        rows.append(("Experts", f"{unit.experts}, of which a token passes {chosen or 'some'}"))
    if unit.kv:
        rows.append(("KV cache", f"{short_size(unit.kv)} for {plan.budget.context:,} tokens"))
    where = unit.rests_on + (", in the file's own pages" if placed and placed.mapped else "")
    rows.append(("Rests on", where + (" (measured)" if placed else "")))
    rows.append(("Runs on", unit.runs_on + _brought(unit)))
    if unit.carried and not _is_carried(unit):
        rows.append(("Moves", f"{short_size(_moved(unit, plan))} of pages a token, those chosen"))
    elif activity and activity.bytes_moved:
        rows.append(("Moves", f"{short_size(activity.bytes_moved // max(1, activity.passes))} a pass"))
    elif _is_carried(unit):
        rows.append(("Moves", f"{short_size(_moved(unit, plan) or weights)} for every token"))
    if unit.waited:
        rows.append(("Waits", f"{duration(unit.waited)} of it for its bytes"))
    total = sum(seconds for _, seconds in plan.prediction.seconds_per_layer)
    measured = activity is not None or (state.result is not None and state.loaded_plan is plan)
    if total and unit.seconds and not measured:
        rows.append(("Share", f"{unit.seconds / total:.1%} of a token's time, predicted"))
    if ways:
        rows.append(("Move it", ways))
    price = f"{duration(unit.seconds)} a token" if unit.seconds else ""
    return Facts(unit.label[:1].upper() + unit.label[1:], price, unit.key, tuple(rows), placement.reason)


def _moved(unit: Unit, plan: Plan) -> int:
    """Bytes that the plan brings of it for a token."""
    return next((each.bytes for each in plan.prediction.carried if each.layer == unit.key), 0)


def _brought(unit: Unit) -> str:
    """How its weights come to where it runs."""
    if not _is_carried(unit):
        return ""
    return ", read ahead of every pass" if (unit.rests_on, unit.runs_on) == (DISK, CPU) else ", carried for every pass"


def _is_carried(unit: Unit) -> bool:
    """Whether all of it is brought elsewhere. Of experts on disk a CPU reads the pages that it needs."""
    return unit.carried and not (unit.experts and unit.runs_on == CPU)


def _claim(unit: Unit, lane: Lane, plan: Plan) -> Facts:
    match unit.kind:
        case "kv":
            kept_in = f", kept in {plan.wishes.kv}" if plan.wishes.kv else ""
            why = f"Keys and values of past tokens{kept_in}, for layers that rest elsewhere but run here."
        case "berth":
            why = "Carried layers land here, one after another, to be run."
        case _:
            why = f"Room for one pass of {plan.prefill_chunk} prompt tokens: activations, attention and logits."
    return Facts(unit.label[:1].upper() + unit.label[1:], "", lane.title, (("Size", short_size(unit.size)),), why)


def free_spot(size: QSizeF, block: QRectF, bounds: QRectF, others: Sequence[QRectF]) -> QRectF:
    """Where a card covers the least; of equal spots the nearest to the block, never on the block itself."""
    across = [block.right() + 18, block.left() - size.width() - 34, bounds.right() - size.width(), bounds.left()]
    down = [block.center().y() - size.height() / 2, block.bottom() + 14, block.top() - size.height() - 14]
    down += [bounds.top() + 44, bounds.bottom() - size.height()]
    best: tuple[float, QRectF] | None = None
    for x in across:
        for y in down:
            left = max(bounds.left(), min(x, bounds.right() - size.width()))
            top = max(bounds.top(), min(y, bounds.bottom() - size.height()))
            spot = QRectF(QPointF(left, top), size)
            covered = sum(_area(spot.intersected(other)) for other in others) + 100 * _area(spot.intersected(block))
            away = abs(spot.center().x() - block.center().x()) + abs(spot.center().y() - block.center().y())
            price = covered + 8 * away
            if best is None or price < best[0]:
                best = price, spot
    return best[1] if best else QRectF(bounds.topLeft(), size)


def _area(rect: QRectF) -> float:
    return max(0.0, rect.width()) * max(0.0, rect.height())


class LayerCard(QWidget):
    """Floats over the map; takes no clicks."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._facts = Facts("", "", "", ())
        self.hide()

    def show_at(self, facts: Facts, block: QRectF, bounds: QRectF, others: Sequence[QRectF] = ()) -> None:
        """Near the block and inside the bounds, where it covers the least of the `others`."""
        if facts != self._facts:
            self._facts = facts
            self.update()
        lines = self._reason_lines()
        height = TOP + LINE * len(facts.rows) + (8 + REASON_LINE * lines if lines else 0) + 12
        spot = free_spot(QSizeF(WIDTH, height), block, bounds, others)
        self.setGeometry(round(spot.left()) - 8, round(spot.top()) - 8, WIDTH + 16, round(height) + 16)
        self.show()
        self.raise_()

    def _reason_lines(self) -> int:
        if not self._facts.reason:
            return 0
        flags = int(Qt.TextFlag.TextWordWrap)
        box = QFontMetricsF(font(11)).boundingRect(QRectF(0, 0, WIDTH - 28, 400), flags, self._facts.reason)
        return min(6, round(box.height() / REASON_LINE + 0.4))

    def paintEvent(self, _event: QPaintEvent) -> None:
        p, t, facts = QPainter(self), theme_of(self), self._facts
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        card = QRectF(self.rect()).adjusted(8, 8, -8, -8)
        p.setPen(Qt.PenStyle.NoPen)
        for i in range(6):
            p.setBrush(QColor(0, 0, 0, 5 if t.name == "light" else 22))
            p.drawRoundedRect(card.adjusted(-i, 1 - i / 2, i, i + 2), 10 + i, 10 + i)
        p.setPen(QPen(QColor(t.line), 1))
        p.setBrush(QColor(t.raised))
        p.drawRoundedRect(card, 10, 10)
        left, wide = card.left() + 14, card.width() - 28
        draw_words(p, QRectF(left, card.top() + 10, wide, 18), facts.title, t.ink, 13, 600)
        draw_words(p, QRectF(left, card.top() + 10, wide, 18), facts.price, t.ink, 12, 600, Qt.AlignmentFlag.AlignRight)
        draw_words(p, QRectF(left, card.top() + 29, wide, 16), facts.module, t.ink3, 11, mono=True)
        y = card.top() + TOP
        for name, value in facts.rows:
            draw_words(p, QRectF(left, y, 64, 18), name, t.ink3, 11)
            fitted = QFontMetricsF(font(11)).elidedText(value, Qt.TextElideMode.ElideRight, wide - 64)
            draw_words(p, QRectF(left + 64, y, wide - 64, 18), fitted, t.ink, 11)
            y += LINE
        if facts.reason:
            p.setFont(font(11))
            p.setPen(QColor(t.ink2))
            p.drawText(QRectF(left, y + 6, wide, card.bottom() - y - 10), int(Qt.TextFlag.TextWordWrap), facts.reason)
