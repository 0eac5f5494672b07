"""Takes the pictures of the window for the README: at rest, loading, answering, in error, each light and dark.

    python packaging/screenshots.py                          a scripted engine, for a look at the window alone
    python packaging/screenshots.py MODEL_FOLDER             the real engine and a real model
    python packaging/screenshots.py MODEL_FOLDER --engine "python -m tests.simulated_accelerator …" --limit cpu=150MiB

Run it from the checkout, on Linux under xvfb-run or with QT_QPA_PLATFORM=offscreen where there is no display.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from layerlight.core.state import State
    from layerlight.ui.program import Program
    from layerlight.ui.theme import ThemeSwitch

ROOT = Path(__file__).resolve().parent.parent
SIZE = (1440, 900)
QUESTION = "What is the capital of France? Tell me three things about it."
SCENES = ("rest", "loading", "answering", "error")
PATIENCE = 300_000
"""ms for the whole story."""


def main(argv: Sequence[str]) -> int:
    """Returns 0 when every picture was taken."""
    asked = _options(argv)
    os.environ["QT_SCALE_FACTOR"] = str(asked.scale)
    sys.path[:0] = [str(ROOT), str(ROOT / "app")]
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="layerlight-screenshots-") as home:
        os.environ["LAYERLIGHT_HOME"] = home
        missing = _real(asked) if asked.folder else _scripted(asked)
    if missing:
        print(f"Not taken: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", help="a model folder; without it the engine is scripted")
    parser.add_argument("--engine", type=shlex.split, help="the command that starts the engine")
    parser.add_argument("--limit", action="append", default=[], metavar="PLACE=SIZE", help="as in the terminal")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--scale", type=float, default=1.0, help="device pixels per pixel")
    parser.add_argument("--out", type=Path, default=ROOT / "resources" / "screenshots")
    return parser.parse_args(argv)


class Camera:
    """Saves the window in both themes, in the state it is in now: nothing is heard meanwhile."""

    def __init__(self, window: QWidget, themes: ThemeSwitch, out: Path) -> None:
        self._window, self._themes, self._out = window, themes, out
        self.taken: set[str] = set()

    def take(self, scene: str) -> None:
        from PySide6.QtCore import QCoreApplication, QEvent

        if scene in self.taken:
            return
        self.taken.add(scene)
        for theme in ("light", "dark"):
            self._themes.choose(theme)
            QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest)
            path = self._out / f"{scene}-{theme}.png"
            self._window.grab().save(str(path))
            print(path)

    @property
    def missing(self) -> list[str]:
        return [scene for scene in SCENES if scene not in self.taken]


# -- the real program ------------------------------------------------------------------------------------------------


def _real(asked: argparse.Namespace) -> list[str]:
    from PySide6.QtCore import QTimer
    from PySide6.QtWidgets import QApplication

    from layerlight.core.folders import own_folders
    from layerlight.ui.app import Opening

    app = QApplication([])
    opening = Opening(app, own_folders(), asked.engine, [str(Path(asked.folder).resolve())])
    opening.window.resize(*SIZE)
    opening.window.show()
    camera = Camera(opening.window, opening.themes, asked.out)
    tellers: list[Story] = []
    opening.ready.connect(lambda program: tellers.append(Story(program, camera, asked)))
    opening.start()
    QTimer.singleShot(PATIENCE, app.quit)
    app.exec()
    opening.finish()
    return camera.missing


class Story:
    """Opens, loads, asks, loads again and loses its engine, with a picture at each turn."""

    def __init__(self, program: Program, camera: Camera, asked: argparse.Namespace) -> None:
        from layerlight.core.device import parse_limit

        self._program, self._camera, self._asked = program, camera, asked
        self._session = program.session
        self._tokens = 0
        self._session.change_settings(
            limits=tuple(sorted(parse_limit(words) for words in asked.limit)), temperature=0.0, max_new_tokens=160
        )
        self._session.changed.connect(self._heard)

    def _heard(self, state: State, event: Any) -> None:
        match type(event).__name__:
            case "Planned" if (
                state.engine_warm and state.machine and state.machine.torch_build and "rest" not in self._camera.taken
            ):
                self._soon(self._rest, 800)
            case "LoadProgressed" | "LayerPlaced" if state.progress and state.progress.bytes_total:
                self._loading(state.progress.bytes_done / state.progress.bytes_total)
            case "ModelLoaded" if "answering" not in self._camera.taken:
                self._soon(lambda: self._session.ask(self._asked.question), 200)
            case "TextProduced":
                self._tokens += len(event.tokens)
            case "LayerRan" if self._tokens >= 4 and _in_the_middle(state):
                self._camera.take("answering")
            case "RunFinished":
                self._camera.take("answering")
                self._soon(self._session.load, 200)
            case "EngineStopped" if not event.expected:
                self._soon(self._error, 400)
            case _:
                pass

    def _rest(self) -> None:
        if "rest" in self._camera.taken or self._session.state.plan is None:
            return
        self._program.desk.work.map.focus_block("model.layers.12")
        self._camera.take("rest")
        self._session.load()

    def _loading(self, share: float) -> None:
        """The first load is shown half way; in the second one the engine is taken away."""
        if "loading" not in self._camera.taken:
            if share >= 0.35:
                self._camera.take("loading")
        elif "answering" in self._camera.taken and share > 0 and self._program.link.pid:
            os.kill(self._program.link.pid, signal.SIGKILL)

    def _error(self) -> None:
        from PySide6.QtWidgets import QApplication

        self._program.desk.work.show_side("log")
        self._camera.take("error")
        self._program.window.close()
        QApplication.quit()

    def _soon(self, do: Callable[[], object], wait: int) -> None:
        from PySide6.QtCore import QTimer

        QTimer.singleShot(wait, self._session, do)


def _in_the_middle(state: State) -> bool:
    """Whether a layer near the middle runs: a sweep is best seen there."""
    names = [placement.layer for placement in state.loaded_plan.placements] if state.loaded_plan else []
    return state.running in names[len(names) // 3 : 2 * len(names) // 3]


# -- a scripted engine -----------------------------------------------------------------------------------------------


def _scripted(asked: argparse.Namespace) -> list[str]:
    from PySide6.QtWidgets import QApplication

    from layerlight.core.messages import DevicesSurveyed, Failed, Failure, PromptCounted, TextProduced
    from layerlight.core.settings import Settings
    from layerlight.ui.desk import Desk
    from layerlight.ui.session import Session
    from layerlight.ui.theme import ThemeSwitch, font
    from layerlight.ui.window import Window
    from tests import fakes

    app = QApplication([])
    app.setFont(font(13))
    themes = ThemeSwitch(app, "light")
    machine, model = fakes.laptop(), fakes.fourteen_billion()
    engine = fakes.FakeEngine(machine)
    session = Session(engine, Settings(), inspect=fakes.inspecting(model))
    log = Path(os.environ["LAYERLIGHT_HOME"]) / "layerlight.log"
    log.write_text("14:02:19  RTX 4060 Laptop has 190 MiB free\n14:02:21  layer 13 asks for 630 MiB\n", "utf-8")
    window, desk = Window(), Desk(session, log, themes)
    themes.dress(window)
    desk.furnish(window)
    window.resize(*SIZE)
    window.show()
    camera = Camera(window, themes, asked.out)
    session.begin()
    engine.warm_up()
    engine.tell(DevicesSurveyed(machine))
    session.open_folder(model.folder)
    _wait(600)
    desk.work.map.focus_block("model.layers.33")
    camera.take("rest")
    desk.work.map.focus_block("")
    session.load()
    request = engine.last_load
    if request is None:
        raise SystemExit("The window did not load.")
    engine.tell(*fakes.load_began(request), *fakes.load_goes(request, 0.4))
    camera.take("loading")
    loaded = fakes.load_done(request, machine)
    engine.tell(loaded)
    session.ask("Why is it slow?")
    words = "35 of 40 layers do **not fit on the card**: they are carried to it for every token, some from the disk."
    engine.tell(PromptCounted(24, 4096, 4072), TextProduced(words, tuple(range(24))))
    engine.tell(fakes.layers_ran(loaded.placed, 18))
    _wait(300)
    camera.take("answering")
    failure = Failure(
        "Memory ran out",
        "Layer 13 needs 630 MiB on RTX 4060 Laptop, where 190 MiB are free.",
        "Close other programs on the card, or lower its limit, and load again.",
        "OutOfMemory",
    )
    engine.tell(*fakes.load_began(request), *fakes.load_goes(request, 0.3), Failed(failure, "LoadRequest"))
    desk.work.show_side("log")
    _wait(300)
    camera.take("error")
    window.close()
    return camera.missing


def _wait(ms: int) -> None:
    """QTest's wait keeps Python's lock, so that no thread of the program gets on."""
    from PySide6.QtCore import QEventLoop, QTimer

    loop = QEventLoop()
    QTimer.singleShot(ms, loop.quit)
    loop.exec()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
