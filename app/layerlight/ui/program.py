"""The program: everything that lives as long as the window does, and how it is put together in steps."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from layerlight.core.environment import engine_environment
from layerlight.core.folders import Folders
from layerlight.core.settings import read_settings
from layerlight.ui.attention import Attention
from layerlight.ui.desk import Desk, make_parts
from layerlight.ui.faults import Faults
from layerlight.ui.link import Link, engine_command
from layerlight.ui.measurement_keeper import MeasurementKeeper
from layerlight.ui.motion import SystemMotion
from layerlight.ui.session import Session
from layerlight.ui.settings_keeper import SettingsKeeper
from layerlight.ui.shelf import Shelf
from layerlight.ui.steps import polish
from layerlight.ui.theme import ThemeSwitch
from layerlight.ui.window import Window

MOTION_AFTER = 3000
"""ms after which the system is asked whether it wants less motion: nothing moves before a model is loaded."""


@dataclass(slots=True)
class Program:
    """All that lives as long as the window does."""

    session: Session
    window: Window
    desk: Desk
    link: Link
    keeper: SettingsKeeper
    measurements: MeasurementKeeper
    themes: ThemeSwitch
    faults: Faults

    def finish(self) -> None:
        """After the event loop: no process and no unsaved setting is left behind."""
        self.session.close()
        self.keeper.finish()
        self.measurements.finish()
        self.link.finish()


def assemble(
    window: Window, themes: ThemeSwitch, folders: Folders, engine: Sequence[str] | None = None
) -> Generator[None, None, Program]:
    """Everything but the start, in steps: the desk is in the window, nothing runs yet."""
    settings, notice = read_settings(folders.settings)
    log = folders.log / "layerlight.log"
    link = Link(engine or engine_command(), engine_environment(os.environ, settings.engine_environment), log)
    session = Session(link, settings)
    keeper = SettingsKeeper(session, folders.settings)
    measurements = MeasurementKeeper(session, folders.measurements)
    faults = Faults(session, log)
    faults.install()
    yield
    themes.dress(window)
    yield
    parts = yield from make_parts(session, Shelf())
    desk = Desk(session, log, themes, parts)
    yield
    yield from desk.crown()
    yield
    window.hold(desk)
    yield
    yield from polish(desk)
    yield from desk.make_work()
    yield from desk.draw_first(window)
    desk.furnish(window)
    Attention(session, window)  # the window's, as long as it lives
    SystemMotion(session).start(MOTION_AFTER)
    if notice:
        session.notify(notice)
    return Program(session, window, desk, link, keeper, measurements, themes, faults)
