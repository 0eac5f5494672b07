"""MeasurementStore: how fast machines were measured to be, and what every real run took, in SQLite."""

from __future__ import annotations

import logging
from pathlib import Path

from layerlight.core.device import Machine
from layerlight.core.errors import StoreFailed
from layerlight.core.pacing.calibration import Calibration, identity_of, with_rates
from layerlight.core.pacing.correction import Run, corrected
from layerlight.core.plan import Plan
from layerlight.store.database import Kept
from layerlight.store.kept_file import KeptFile, dumped, loaded, open_or_in_memory

log = logging.getLogger(__name__)

MOST_RUNS = 1000
"""Runs that are kept of each machine; the oldest go first."""
_SCHEMA = """
CREATE TABLE calibrations (machine TEXT PRIMARY KEY, body TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE runs (id INTEGER PRIMARY KEY, machine TEXT NOT NULL, body TEXT NOT NULL, created REAL NOT NULL);
CREATE INDEX runs_by_machine ON runs (machine, id);
"""
_KEPT = Kept("measurements", _SCHEMA, 1)


class MeasurementStore(KeptFile):
    """Measurements in one SQLite file."""

    def __init__(self, path: Path | None) -> None:
        """Raises StoreFailed as every KeptFile does."""
        super().__init__(path, _KEPT)

    # -- calibrations ----------------------------------------------------------------------------------------------

    def keep_calibration(self, calibration: Calibration) -> None:
        """In place of the one before it of the same machine. Raises StoreFailed."""
        values = (calibration.machine, dumped(calibration), calibration.when)
        with self._writing() as database:
            database.execute("INSERT OR REPLACE INTO calibrations (machine, body, created) VALUES (?, ?, ?)", values)

    def calibration(self, machine: Machine) -> Calibration | None:
        """The last one of this machine. Raises StoreFailed."""
        rows = self._read("SELECT body FROM calibrations WHERE machine = ?", (identity_of(machine),))
        return loaded(rows[0][0], Calibration) if rows else None

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
            values = (run.machine, dumped(run), run.when)
            database.execute("INSERT INTO runs (machine, body, created) VALUES (?, ?, ?)", values)
            database.execute(
                "DELETE FROM runs WHERE machine = ?1 AND id <="
                " (SELECT id FROM runs WHERE machine = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
                (run.machine, MOST_RUNS),
            )

    def runs(self, machine: Machine) -> tuple[Run, ...]:
        """Runs on this machine, the newest first. Raises StoreFailed."""
        rows = self._read("SELECT body FROM runs WHERE machine = ? ORDER BY id DESC", (identity_of(machine),))
        return tuple(run for row in rows if (run := loaded(row[0], Run)) is not None)

    def corrected(self, plan: Plan) -> Plan:
        """The plan with its seconds corrected by what runs on its machine took. Never fails."""
        try:
            return corrected(plan, self.runs(plan.machine))
        except StoreFailed as failure:
            log.warning("%s", failure)
            return plan


def open_measurements(path: Path) -> MeasurementStore:
    """The store at `path`; one in memory, with a notice, when there can be none. Never fails."""
    return open_or_in_memory(MeasurementStore, path, _KEPT)
