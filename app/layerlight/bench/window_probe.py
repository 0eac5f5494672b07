"""One window in a process of its own, timed from within.

python -m layerlight.bench.window_probe empty|layerlight BEGAN [FOLDER]

Without FOLDER it ends as soon as it was painted.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtWidgets import QApplication, QWidget

from layerlight.bench.beat import Beat, FirstPaint
from layerlight.bench.stalls import STALLS, Stalls

if TYPE_CHECKING:
    from layerlight.core.state import State
    from layerlight.ui.program import Program
    from layerlight.ui.session import Session

EMPTY = "empty"
OURS = "layerlight"
LASTS = 6.0
"""Seconds an empty window is watched."""
DRAG = 30
"""ms between two moves of the dragged limit."""
TOKENS = 24
QUESTION = "Why is it four minutes a token?"


def probe(words: list[str]) -> int:
    """Prints JSON: `painted` (seconds since BEGAN), `gaps` (net ms by phase), `long` ones, `stolen` seconds."""
    app = QApplication(sys.argv[:1])
    kind, began, *folder = words
    if kind == EMPTY:
        return _empty(app, float(began), bool(folder))
    return _layerlight(app, float(began), folder)


def _empty(app: QApplication, began: float, stays: bool) -> int:
    window = QWidget()
    window.resize(1440, 900)
    paint = FirstPaint(window, began)
    window.show()
    beat = Beat(window)
    beat.enter("empty window")
    if stays:
        QTimer.singleShot(int(LASTS * 1000), app.quit)
    else:
        paint.noted.connect(app.quit)
    app.exec()
    return _report(paint, beat)


def _layerlight(app: QApplication, began: float, folder: list[str]) -> int:
    # Imported here: an empty window is measured without them.
    from layerlight.core.folders import own_folders
    from layerlight.ui.app import Opening

    opening = Opening(app, own_folders(), argv=folder)
    paint = FirstPaint(opening.window, began)
    opening.window.show()
    beat = Beat(opening.window, Stalls() if STALLS in os.environ else None)
    beat.enter("engine imports")
    tellers = Tellers(beat)
    opening.ready.connect(tellers.begin)
    opening.start()
    if not folder:
        paint.noted.connect(app.quit)
    code = app.exec()
    opening.finish()
    if not folder:
        return _report(paint, beat)
    failure = tellers.story.failure if tellers.story else "The window was closed before it stood."
    if failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return _report(paint, beat) or code


class Tellers(QObject):
    """Begins the story when the program stands."""

    def __init__(self, beat: Beat) -> None:
        super().__init__()
        self.story: Story | None = None
        self._beat = beat

    @Slot(object)
    def begin(self, program: Program) -> None:
        self.story = Story(program.session, self._beat)


class Story(QObject):
    """What a person does in the first minute: waits for the engine, loads, asks, asks again dragging a limit."""

    def __init__(self, session: Session, beat: Beat) -> None:
        super().__init__(session)
        self.failure = ""
        self._session, self._beat = session, beat
        self._asked = 0
        self._drag = QTimer(self)
        self._drag.setInterval(DRAG)
        self._drag.timeout.connect(self._drag_limit)
        self._step = 0
        beat.enter("engine imports")
        session.changed.connect(self._heard)
        session.change_settings(max_new_tokens=TOKENS, temperature=0.0, dtype="float32")

    @Slot(object, object)
    def _heard(self, state: State, event: object) -> None:
        from layerlight.core.messages import EngineWarmed, Failed, ModelLoaded, Planned, RunFinished

        match event:
            case Failed(failure=failure):
                self._end(f"{failure.title}: {failure.message}")
            case Planned() | EngineWarmed() if self._beat.phase == "engine imports":
                if state.engine_warm and state.plan is not None and state.machine and state.machine.torch_build:
                    self._beat.enter("loads 1 GB")
                    self._session.load()
            case ModelLoaded():
                self._ask("answers")
            case RunFinished() if self._asked == 1:
                self._drag.start()
                self._ask("answers, limit dragged")
            case RunFinished():
                self._end("")
            case _:
                pass

    def _ask(self, phase: str) -> None:
        self._beat.enter(phase)
        self._asked += 1
        if not self._session.ask(QUESTION):
            self._end("The question was not taken.")

    @Slot()
    def _drag_limit(self) -> None:
        """To and fro between 4 and 8 GiB, as a hand on the slider would."""
        self._step += 1
        place = abs(self._step % 80 - 40) / 40
        self._session.set_limit("cpu", int((4 + 4 * place) * 2**30))

    def _end(self, failure: str) -> None:
        self.failure = failure
        self._drag.stop()
        QTimer.singleShot(0, self, QApplication.quit)


def _report(paint: FirstPaint, beat: Beat) -> int:
    long = [asdict(gap) for gap in beat.long]
    told = {"painted": paint.seconds, "gaps": beat.gaps, "long": long, "stolen": beat.stolen}
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(probe(sys.argv[1:]))
