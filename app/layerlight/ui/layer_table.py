"""The map's facts as a table model: a row per layer, measured where something was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from layerlight.core.messages import LayerActivity, PlacedLayer
from layerlight.core.plan import Placement, Plan
from layerlight.core.state import State
from layerlight.ui.lanes import Lane, Unit, shown_plan
from layerlight.ui.words import count, duration, short_size

Index = QModelIndex | QPersistentModelIndex
SORT = Qt.ItemDataRole.UserRole
"""The role of the value that a column is sorted by."""
FIGURE = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
WORDS = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
Value = str | int | float


@dataclass(frozen=True, slots=True)
class LayerRow:
    """What is known of one layer. Bytes and seconds; seconds are of one token."""

    unit: Unit
    rests: str
    """Title of the place."""
    runs: str
    dtype: str
    parameters: int
    moved: int
    """Bytes brought in a pass."""
    share: float
    """Of a token's time."""
    measured: bool
    """Whether its seconds were measured."""
    reason: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, what is read in it, and what it is sorted by."""

    title: str
    words: Callable[[LayerRow], str]
    value: Callable[[LayerRow], Value]
    figure: bool = False


COLUMNS = (
    Column("Layer", lambda row: row.unit.label, lambda row: row.unit.order),
    Column("Rests on", lambda row: row.rests, lambda row: row.rests),
    Column("Runs on", lambda row: row.runs, lambda row: row.runs),
    Column("Weights", lambda row: short_size(_weights(row)), lambda row: _weights(row), True),
    Column("KV cache", lambda row: short_size(row.unit.kv) if row.unit.kv else "", lambda row: row.unit.kv, True),
    Column("A token", lambda row: duration(row.unit.seconds) if row.unit.seconds else "",
           lambda row: row.unit.seconds, True),
    Column("Share", lambda row: f"{row.share:.1%}" if row.share else "", lambda row: row.share, True),
    Column("Waits", lambda row: duration(row.unit.waited) if row.unit.waited else "",
           lambda row: row.unit.waited, True),
    Column("Moved a pass", lambda row: short_size(row.moved) if row.moved else "", lambda row: row.moved, True),
    Column("dtype", lambda row: row.dtype, lambda row: row.dtype),
    Column("State", lambda row: _state(row.unit), lambda row: _state(row.unit)),
    Column("Time is", lambda row: "measured" if row.measured else "predicted", lambda row: int(row.measured)),
    Column("Parameters", lambda row: count(row.parameters), lambda row: row.parameters, True),
    Column("Module", lambda row: row.unit.key, lambda row: row.unit.key),
    Column("Why it is there", lambda row: row.reason, lambda row: row.reason),
)  # fmt: skip


def rows_of(lanes: tuple[Lane, ...], state: State, prefer_next: bool = False) -> tuple[LayerRow, ...]:
    """The layers of all lanes in the model's order."""
    plan = shown_plan(state, prefer_next)
    if plan is None:
        return ()
    titles = {lane.place: lane.title for lane in lanes}
    units = sorted((unit for lane in lanes for unit in lane.units if unit.order >= 0), key=lambda unit: unit.order)
    total = sum(unit.seconds for unit in units)
    placements = {each.layer: each for each in plan.placements}
    real = plan is state.loaded_plan
    moved = {each.layer: each.bytes for each in plan.prediction.carried}
    placed = {each.layer: each for each in state.places} if real else {}
    activity = {each.layer: each for each in state.activity} if real else {}
    ran = {name for name, _ in state.result.seconds_per_layer} if real and state.result else set()
    return tuple(
        _row(
            unit,
            titles,
            plan,
            placements[unit.key],
            placed.get(unit.key),
            moved.get(unit.key, 0),
            activity.get(unit.key),
            total,
            unit.key in activity or unit.key in ran,
        )
        for unit in units
        if unit.key in placements
    )


class LayerTable(QAbstractTableModel):
    """Rows keep their place while only their values change, so that what is selected stays selected."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: tuple[LayerRow, ...] = ()

    @property
    def rows(self) -> tuple[LayerRow, ...]:
        return self._rows

    def show_rows(self, rows: tuple[LayerRow, ...]) -> None:
        before, names = self._rows, [row.unit.key for row in rows]
        if [row.unit.key for row in before] != names:
            self.beginResetModel()
            self._rows = rows
            self.endResetModel()
            return
        self._rows = rows
        changed = [number for number, (old, new) in enumerate(zip(before, rows, strict=True)) if old != new]
        if changed:
            self.dataChanged.emit(self.index(changed[0], 0), self.index(changed[-1], len(COLUMNS) - 1))

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008  Qt's own signature
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> str | Qt.AlignmentFlag | None:
        if orientation is not Qt.Orientation.Horizontal or not 0 <= section < len(COLUMNS):
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[section].title
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return FIGURE if COLUMNS[section].figure else WORDS
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid() or index.row() >= len(self._rows):
            return None
        row, column = self._rows[index.row()], COLUMNS[index.column()]
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.ToolTipRole:
                return column.words(row)
            case Qt.ItemDataRole.AccessibleTextRole:
                return f"{column.title}: {column.words(row) or 'none'}"
            case Qt.ItemDataRole.TextAlignmentRole:
                return FIGURE if column.figure else WORDS
            case _ if role == SORT:
                return column.value(row)
            case _:
                return None


def _row(
    unit: Unit,
    titles: dict[str, str],
    plan: Plan,
    placement: Placement,
    placed: PlacedLayer | None,
    moved: int,
    activity: LayerActivity | None,
    total: float,
    measured: bool,
) -> LayerRow:
    layer = plan.model.layer(unit.key)
    if activity is not None and activity.passes:
        moved = activity.bytes_moved // activity.passes
    return LayerRow(
        unit,
        titles.get(unit.rests_on, unit.rests_on),
        titles.get(unit.runs_on, unit.runs_on),
        placed.dtype if placed else placement.dtype,
        layer.parameters,
        moved,
        unit.seconds / total if total else 0.0,
        measured,
        placement.reason,
    )


def _weights(row: LayerRow) -> int:
    return row.unit.size - row.unit.kv


def _state(unit: Unit) -> str:
    return f"loading, {unit.fill:.0%}" if unit.state == "loading" else unit.state
