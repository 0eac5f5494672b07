"""What was measured before: rates for a survey, corrections for a plan, and the memory of a run."""

from __future__ import annotations

import time

from layerlight.core.device import Machine
from layerlight.core.errors import StoreFailed
from layerlight.core.folders import own_folders
from layerlight.core.messages import MachineCalibrated, ModelLoaded, RunResult
from layerlight.core.pacing.calibration import calibrated
from layerlight.core.pacing.correction import run_of
from layerlight.core.plan import Plan
from layerlight.store.measurements import open_measurements


def rated(machine: Machine) -> Machine:
    """The machine with its measured rates, if it was calibrated."""
    path = own_folders().measurements
    if not path.exists():
        return machine
    with open_measurements(path) as store:
        return store.with_rates(machine)


def corrected(plan: Plan) -> Plan:
    """The plan with its seconds corrected by earlier runs."""
    path = own_folders().measurements
    if not path.exists():
        return plan
    with open_measurements(path) as store:
        return store.corrected(plan)


def remember(plan: Plan, loaded: ModelLoaded | None, result: RunResult) -> str:
    """Keeps what a run took for the next plan. A sentence where that failed or had to begin anew, else nothing."""
    with open_measurements(own_folders().measurements) as store:
        try:
            store.remember(run_of(plan, loaded, result, time.time()))
        except StoreFailed as failure:
            return str(failure)
        return store.notice


def keep(event: MachineCalibrated) -> str:
    """Keeps a calibration. A sentence where that failed or had to begin anew, else nothing."""
    with open_measurements(own_folders().measurements) as store:
        try:
            store.keep_calibration(calibrated(event.machine, event.spreads, time.time()))
        except StoreFailed as failure:
            return str(failure)
        return store.notice
