"""The layer map's paint times in a process of its own: how long a light takes to move, and a whole repaint.

python -m layerlight.bench.paint_probe LAYERS [LAYERS …]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtWidgets import QApplication

from layerlight.core.device import Budget
from layerlight.core.inspecting.config_model import model_from_config
from layerlight.core.load_request import load_request
from layerlight.core.machines.machine_files import read_machine
from layerlight.core.machines.public_models import find_public_model
from layerlight.core.messages import (
    DevicesSurveyed,
    LayerActivity,
    LayerRan,
    LoadStarted,
    ModelInspected,
    ModelLoaded,
    PlacedLayer,
    Planned,
    PromptCounted,
    Request,
)
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan
from layerlight.core.settings import Settings
from layerlight.store.chats import ChatStore
from layerlight.ui.layer_map import LayerMap
from layerlight.ui.session import Session
from layerlight.ui.theme import ThemeSwitch, font

MODEL, MACHINE = "llama-3.1-8b", "laptop-rtx4060-8gb"
"""A model whose number of layers is changed, and a machine where it lies on a card, in RAM and on disk."""
SIZE = (856, 600)
CONTEXT = 4096
STEPS, REPAINTS = 200, 40


class SilentEngine(QObject):
    """What a session sends is not heard."""

    arrived = Signal(object)

    def start(self) -> None:
        """Nothing is started."""

    def send(self, request: Request) -> None:
        """Nothing is done."""

    def replace(self, reason: str) -> None:
        """There is nothing to replace."""

    def close(self) -> None:
        """There is nothing to end."""


def probe(words: Sequence[str]) -> int:
    """Prints JSON: by number of layers `moving` and `whole`, lists of ms."""
    app = QApplication(sys.argv[:1])
    app.setFont(font(13))
    ThemeSwitch(app, "light")
    with tempfile.TemporaryDirectory(prefix="layerlight-bench-") as folder:
        found = {layers: _paint(app, int(layers), Path(folder)) for layers in words}
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def plan_of(layers: int) -> Plan:
    """A plan for a model of so many layers on the machine."""
    config = {**find_public_model(MODEL).config, "num_hidden_layers": layers}
    model = model_from_config(config, f"{MODEL} with {layers} layers")
    return make_plan(model, read_machine(MACHINE), Budget(context=CONTEXT))


def _paint(app: QApplication, layers: int, folder: Path) -> dict[str, list[float]]:
    plan = plan_of(layers)
    engine = SilentEngine()
    session = Session(engine, Settings(), ChatStore(folder / f"{layers}.sqlite"))
    session.planning.close()  # the plan is given
    shown = LayerMap(session)
    shown.resize(*SIZE)
    placed = tuple(
        PlacedLayer(each.layer, each.rests_on, each.runs_on, each.size, each.dtype) for each in plan.placements
    )
    where = load_request(plan).folder
    told = (
        DevicesSurveyed(plan.machine), ModelInspected(plan.model), Planned(plan), LoadStarted(where, 0, len(placed)),
        ModelLoaded(where, 1.0, placed, ()), PromptCounted(24, CONTEXT, CONTEXT - 24),
    )  # fmt: skip
    for event in told:
        engine.arrived.emit([event])
    shown.show()
    app.processEvents()
    moving = [_timed(app, partial(engine.arrived.emit, [_snapshot(placed, at)])) for at in range(STEPS)]
    whole = [_timed(app, partial(_repaint, shown)) for _ in range(REPAINTS)]
    session.close()
    shown.close()
    return {"moving": moving, "whole": whole}


def _snapshot(placed: Sequence[PlacedLayer], step: int) -> LayerRan:
    """In the middle of a token: a third of the layers further with each step, as at ten tokens a second and more."""
    running = (step * max(1, len(placed) // 3) + step) % len(placed)
    activity = tuple(
        LayerActivity(each.layer, step + 1, (step + 1) * 2e-3, 0.0, 0, 2e-3 + 1e-5 * (at % 7))
        for at, each in enumerate(placed)
    )
    return LayerRan(placed[running].layer, activity)


def _repaint(shown: LayerMap) -> None:
    """As in another theme: nothing that was drawn is kept."""
    QApplication.sendEvent(shown, QEvent(QEvent.Type.PaletteChange))
    shown.repaint()


def _timed(app: QApplication, work: Callable[[], object]) -> float:
    """ms of the work with all painting that it leads to, computed by this thread: other programs don't count."""
    began = time.thread_time()
    work()
    app.processEvents()
    return 1000 * (time.thread_time() - began)


if __name__ == "__main__":
    sys.exit(probe(sys.argv[1:]))
