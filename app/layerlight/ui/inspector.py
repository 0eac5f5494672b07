"""The inspector: reads model folders on a thread, for they may lie on a slow or sleeping disk."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, Qt, Signal, Slot

from layerlight.core.errors import LayerlightError, Unexpected
from layerlight.core.model import Model
from layerlight.ui.planning import identity_of

SHAPE_ALONE = "This is the shape of a model, without its weights: nothing can be loaded."
ON_THE_HUB = "{} is on the Hub, not on this machine: to load it, download it and open its folder."
NO_WEIGHTS_YET = "This folder holds a config and no weights yet: nothing can be loaded."


@dataclass(frozen=True, slots=True)
class Found:
    model: Model
    identity: str
    """A name for its files as they are now; empty when there are none."""
    config: str | None = None
    """JSON of config.json for a model without a folder."""
    unloadable: str = ""
    """Why it can be planned and not loaded; empty when its weights are here."""


class Inspector(QObject):
    """`found` carries a Found or a LayerlightError: of several requests the newest one's answer only."""

    found = Signal(object)
    _read = Signal(int, object)

    def __init__(self, inspect: Callable[[str], Model] | None = None) -> None:
        super().__init__()
        self._inspect_model = inspect or inspect_model
        self._ask_hub: Callable[[str], Found] = hub_model
        self._number = self._answered = 0
        self._read.connect(self._take, Qt.ConnectionType.QueuedConnection)

    @property
    def pending(self) -> bool:
        """Whether the newest request has not been answered yet."""
        return self._answered != self._number

    def inspect(self, folder: str) -> None:
        """Reads a folder, or the folder of a file."""
        self._begin(self._in_folder, folder)

    def look_up(self, name: str) -> None:
        """Makes the model that a bundled public shape describes."""
        self._begin(public_model, name)

    def ask_hub(self, name: str) -> None:
        """Asks the Hugging Face Hub for the config and the headers of a model's files."""
        self._begin(self._ask_hub, name)

    def close(self) -> None:
        self._number += 1
        self._answered = self._number

    def _in_folder(self, folder: str) -> Found:
        found = self._inspect_model(folder)
        model = planned_by_config(found)
        return Found(model, identity_of(model), unloadable=NO_WEIGHTS_YET if model is not found else "")

    def _begin(self, read: Callable[[str], Found], what: str) -> None:
        self._number += 1
        words = (self._number, read, what)
        threading.Thread(target=self._run, args=words, name="inspection", daemon=True).start()

    def _run(self, number: int, read: Callable[[str], Found], what: str) -> None:
        answer: Found | LayerlightError
        try:
            answer = read(what)
        except LayerlightError as failure:
            answer = failure
        except Exception as error:  # noqa: BLE001  a thread's edge
            answer = Unexpected(f"{what} could not be inspected: {error!r}.", "Please report it with the log.")
        if number == self._number:
            self._read.emit(number, answer)

    @Slot(int, object)
    def _take(self, number: int, answer: Found | LayerlightError) -> None:
        if number == self._number:
            self._answered = number
            self.found.emit(answer)


def inspect_model(folder: str) -> Model:
    """Imported late: reading headers is no part of the window's start."""
    from layerlight.core.inspection import inspect_folder

    return inspect_folder(folder)


def planned_by_config(found: Model) -> Model:
    """The model that a folder's config promises where its weights are not there yet; else the same."""
    from layerlight.core.inspecting.config_folder import is_config_alone, require_plannable

    try:
        return require_plannable(found, tokenizer=False) if is_config_alone(found) else found
    except LayerlightError:
        return found  # what is wrong with it is told as of every folder


def public_model(name: str) -> Found:
    from layerlight.core.machines import public_models

    config = public_models.find_public_model(name).config
    return Found(public_models.public_model(name), "", json.dumps(config), SHAPE_ALONE)


def hub_model(name: str) -> Found:
    """Half a second of imports, and only for those who ask."""
    from layerlight.core.inspection import require_runnable
    from layerlight.hub import repository

    model, config = repository.hub_model(name)
    return Found(require_runnable(model, tokenizer=False), "", json.dumps(config), ON_THE_HUB.format(name))
