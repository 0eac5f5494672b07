"""The real window with its real engine, living through a story in a process of its own.

python -m tests.ui.real_window FOLDER engine-killed|closed|left-loading
Prints a JSON object for each thing that happened.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtWidgets import QApplication

from layerlight.core.folders import own_folders
from layerlight.core.messages import (
    DevicesSurveyed,
    EngineStopped,
    Failed,
    LoadProgressed,
    ModelLoaded,
    Planned,
    RunFinished,
)
from layerlight.core.state import Phase, State
from layerlight.ui.app import Opening
from layerlight.ui.program import Program


class Story(QObject):
    """Loads in float32, so that loading takes a while, and does what the story says in the middle of it."""

    def __init__(self, app: QApplication, folder: str, name: str) -> None:
        super().__init__()
        self._folder, self._name = folder, name
        self._killed = False
        self._program: Program | None = None
        self.opening = Opening(app, own_folders())
        self.opening.ready.connect(self._begin)
        self.opening.window.show()
        self.opening.start()

    @Slot(object)
    def _begin(self, program: Program) -> None:
        self._program = program
        program.session.changed.connect(self._heard)
        program.session.change_settings(dtype="float32", context=64, max_new_tokens=3, temperature=0.0)
        program.session.open_folder(self._folder)

    @Slot(object, object)
    def _heard(self, state: State, event: object) -> None:
        assert self._program is not None
        session, link = self._program.session, self._program.link
        match event:
            case Planned() | DevicesSurveyed() if state.phase is Phase.EMPTY and state.plan and state.engine_warm:
                if state.machine and state.machine.torch_build and not session.busy:
                    session.load()
            case LoadProgressed(bytes_done=done, bytes_total=total) if total // 5 < done < total and not self._killed:
                self._killed = True
                self._in_the_middle(link.pid)
            case EngineStopped(expected=False):
                tell(died=True, loaded=state.loaded, title=state.error.title if state.error else None)
            case ModelLoaded():
                tell(loaded=state.loaded, engine=link.pid)
                session.ask("Hello?")
            case RunFinished(result=result):
                tell(tokens=len(result.tokens))
                self._program.window.close()
            case Failed(failure=failure):
                tell(failed=failure.title, message=failure.message)
            case _:
                pass

    def _in_the_middle(self, engine: int | None) -> None:
        assert self._program is not None
        assert engine is not None
        tell(loading=engine)
        match self._name:
            case "engine-killed":
                os.kill(engine, signal.SIGKILL)
            case "closed":
                QTimer.singleShot(0, self._program.window, self._program.window.close)
            case _:
                pass


def tell(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(words: list[str]) -> int:
    app = QApplication(words[:1])
    story = Story(app, words[1], words[2])
    code = app.exec()
    story.opening.finish()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv))
