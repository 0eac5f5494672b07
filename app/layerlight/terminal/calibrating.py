"""`layerlight calibrate`: measures the machine, keeps what it found and shows it."""

from __future__ import annotations

from typing import Any

from layerlight.core.errors import LayerlightError
from layerlight.core.job import Job
from layerlight.core.messages import CalibrateRequest, Event, MachineCalibrated
from layerlight.core.state import State, apply
from layerlight.terminal import measured, tables
from layerlight.terminal.screens import PlainScreen
from layerlight.terminal.surroundings import Terminal

NOISY = 0.25
"""Samples that lie further apart than this part of their median are worth a word."""

UNITS = {"matrix": (1e9, "GFLOP/s"), "overhead": (1e-3, "ms"), "": (1e9, "GB/s")}


def calibrate(terminal: Terminal, request: CalibrateRequest) -> int:
    """Asks the engine, keeps the rates for the plans to come, and prints them."""
    console, screen = terminal.console, PlainScreen(terminal.console.err)
    console.say("Measuring this machine. Close what is busy: its noise would be measured too.")
    found: list[MachineCalibrated] = []
    state = State()

    def listen(event: Event) -> None:
        nonlocal state
        state = apply(state, event)
        screen.show(state, event)
        if isinstance(event, MachineCalibrated):
            found.append(event)

    engine = terminal.new_engine()
    try:
        terminal.at_work = True
        terminal.check()
        engine.calibrate(request, Job(listen, terminal.stop))
    finally:
        screen.close()
        engine.close()
        terminal.at_work = False
    if not found:
        raise LayerlightError("The engine ended the calibration without a result.")
    notice = measured.keep(found[-1])
    if notice:
        console.say(notice)
    console.give(of_calibration(found[-1]), in_words(found[-1]))
    return 0


def of_calibration(event: MachineCalibrated) -> dict[str, Any]:
    """What `--json` prints: rates in bytes/s, operations/s or seconds, by the names of `Machine.bandwidths`."""
    return {
        "rates": dict(event.machine.bandwidths),
        "spreads": dict(event.spreads),
        "seconds": event.seconds,
        "torch_build": event.machine.torch_build,
    }


def in_words(event: MachineCalibrated) -> str:
    """The rates in columns, and how sure they are."""
    apart = dict(event.spreads)
    rows = [("what", "measured", "", "samples apart by")]
    for name, rate in event.machine.bandwidths:
        size, unit = UNITS.get(name.partition(":")[0], UNITS[""])
        rows.append((name, f"{rate / size:.3g}", unit, f"{apart[name]:.0%}" if name in apart else "one sample"))
    noisy = [name for name, spread in apart.items() if spread > NOISY]
    lines = [tables.columns(rows, right=(1,)), f"Measured in {event.seconds:.1f} s."]
    if noisy:
        lines.append(f"The machine was busy with something else: {len(noisy)} of these may be far off.")
    if not event.machine.bandwidths:
        lines[0] = "Nothing could be measured in that time."
    return "\n".join(lines)
