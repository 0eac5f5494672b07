"""MeasurementStore: how fast machines were measured to be, and what every real run took, in SQLite."""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from layerlight.core.device import Machine
from layerlight.core.errors import StoreFailed
from layerlight.core.pacing.calibration import Calibration, identity_of, with_rates
from layerlight.core.pacing.correction import Run, corrected
from layerlight.core.plan import Plan
from layerlight.store.database import Kept, open_database, saying, writing

log = logging.getLogger(__name__)

Kind = TypeVar("Kind")
MOST_RUNS = 1000
"""Runs that are kept of each machine; the oldest go first."""
_SCHEMA = """
CREATE TABLE calibrations (machine TEXT PRIMARY KEY, body TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE runs (id INTEGER PRIMARY KEY, machine TEXT NOT NULL, body TEXT NOT NULL, created REAL NOT NULL);
CREATE INDEX runs_by_machine ON runs (machine, id);
"""
_KEPT = Kept("measurements", _SCHEMA, 1)


class MeasurementStore:
    """Measurements in one SQLite file. Belongs to the thread that made it; several programs may have the file open."""

    def __init__(self, path: Path | None) -> None:
        """Opens or makes the file; None keeps measurements in memory. Raises StoreFailed where there can be none."""
        self._database, self.notice = open_database(path, _KEPT)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- calibrations ----------------------------------------------------------------------------------------------

    def keep_calibration(self, calibration: Calibration) -> None:
        """In place of the one before it of the same machine. Raises StoreFailed."""
        values = (calibration.machine, _dump(calibration), calibration.when)
        with self._writing() as database:
            database.execute("INSERT OR REPLACE INTO calibrations (machine, body, created) VALUES (?, ?, ?)", values)

    def calibration(self, machine: Machine) -> Calibration | None:
        """The last one of this machine. Raises StoreFailed."""
        rows = self._read("SELECT body FROM calibrations WHERE machine = ?", (identity_of(machine),))
        return _load(rows[0][0], Calibration) if rows else None

    def with_rates(self, machine: Machine) -> Machine:
        """The machine with its rates, if it was calibrated. Never fails."""
        try:
            return with_rates(machine, self.calibration(machine))
        except StoreFailed as failure:
            log.warning("%s", failure)
            return machine

    # -- runs ------------------------------------------------------------------------------------------------------

    def remember(self, run: Run) -> None:
        """Raises StoreFailed."""
        with self._writing() as database:
            values = (run.machine, _dump(run), run.when)
            database.execute("INSERT INTO runs (machine, body, created) VALUES (?, ?, ?)", values)
            database.execute(
                "DELETE FROM runs WHERE machine = ?1 AND id <="
                " (SELECT id FROM runs WHERE machine = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
                (run.machine, MOST_RUNS),
            )

    def runs(self, machine: Machine) -> tuple[Run, ...]:
        """Runs on this machine, the newest first. Raises StoreFailed."""
        rows = self._read("SELECT body FROM runs WHERE machine = ? ORDER BY id DESC", (identity_of(machine),))
        return tuple(run for row in rows if (run := _load(row[0], Run)) is not None)

    def corrected(self, plan: Plan) -> Plan:
        """The plan with its seconds corrected by what runs on its machine took. Never fails."""
        try:
            return corrected(plan, self.runs(plan.machine))
        except StoreFailed as failure:
            log.warning("%s", failure)
            return plan

    # -- the file --------------------------------------------------------------------------------------------------

    def _read(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with saying(_KEPT):
            return self._database.execute(query, values).fetchall()

    def _writing(self) -> AbstractContextManager[sqlite3.Connection]:
        return writing(self._database, _KEPT)


def open_measurements(path: Path) -> MeasurementStore:
    """The store at `path`; one in memory, with a notice, when there can be none. Never fails."""
    try:
        return MeasurementStore(path)
    except StoreFailed as failure:
        store = MeasurementStore(None)
        store.notice = f"Measurements of this session are not saved. {failure.message} {failure.hint}".strip()
        return store


def _dump(value: Calibration | Run) -> str:
    return json.dumps(msgspec.to_builtins(value))


def _load(text: str, kind: type[Kind]) -> Kind | None:
    """The saved value; None when another version wrote a shape that this one can't use."""
    try:
        return msgspec.convert(json.loads(text), kind)
    except (ValueError, msgspec.ValidationError):
        return None
