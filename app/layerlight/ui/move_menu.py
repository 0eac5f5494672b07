"""What can be done with chosen layers: the menu of the map and of its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from PySide6.QtWidgets import QMenu, QWidget

from layerlight.ui.lanes import Lane
from layerlight.ui.map_hand import letters_of
from layerlight.ui.planning import spoken
from layerlight.ui.session import Session


def move_menu(
    parent: QWidget,
    session: Session,
    lanes: Iterable[Lane],
    layers: Sequence[str],
    move: Callable[[str | None], None],
    reset: Callable[[], None],
) -> QMenu:
    """`move` gets the place, or None to leave the layers to the plan."""
    menu = QMenu(parent)
    model = session.state.model
    menu.addSection(spoken(model, tuple(layers)).capitalize() if model else "")
    lanes = tuple(lanes)
    titles = {lane.place: lane.title for lane in lanes}
    for letter, place in letters_of(lanes).items():
        menu.addAction(f"Move to {titles[place]}\t{letter}").triggered.connect(partial(_moved, move, place))
    menu.addSeparator()
    free = menu.addAction("Leave it to the plan\tDel")
    free.triggered.connect(partial(_moved, move, None))
    free.setEnabled(any(name in layers for name, _ in session.planning.pins))
    menu.addAction("Reset to the fastest plan").triggered.connect(partial(_reset, reset))
    return menu


def _moved(move: Callable[[str | None], None], place: str | None, _checked: bool = False) -> None:
    move(place)


def _reset(reset: Callable[[], None], _checked: bool = False) -> None:
    reset()
