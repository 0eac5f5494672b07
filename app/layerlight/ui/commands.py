"""Commands: every action of the menus, found where the menus are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu

from layerlight.ui.fuzzy import score

ALSO = "also"
"""The property of an action that holds other words for it."""


@dataclass(frozen=True, slots=True)
class Command:
    """What an action is called, where it is found, and the keys that do the same."""

    words: str
    menu: str
    keys: str
    action: QAction
    also: str = ""
    picked: bool = False
    """Whether it picks one of a list, as a machine."""

    @property
    def possible(self) -> bool:
        return self.action.isEnabled()


def commands_of(menus: Iterable[tuple[str, QMenu]]) -> tuple[Command, ...]:
    """All commands of these menus (each with a title) and of the menus in them, in their order."""
    return tuple(each for title, menu in menus for each in _within(menu, title, "", ""))


def found(commands: Iterable[Command], typed: str, used: tuple[str, ...] = ()) -> tuple[Command, ...]:
    """Those that fit what was typed, the best first; with nothing typed those used last, and choices in lists last.

    What can't be done now comes after what can.
    """
    ranked: list[tuple[bool, float, int, bool, int, Command]] = []
    for at, each in enumerate(commands):
        points = score(typed, f"{each.words} {each.menu}")
        if points is None:
            points = score(typed, f"{each.words} {each.menu} {each.also}")
            if points is None:
                continue
            points -= 0.5
        before = used.index(each.words) if each.words in used else len(used)
        ranked.append((not each.possible, -round(points, 3), before, each.picked and not typed, at, each))
    ranked.sort(key=lambda each: each[:-1])
    return tuple(each for *_, each in ranked)


def _within(menu: QMenu, title: str, before: str, also: str) -> Iterator[Command]:
    menu.aboutToShow.emit()  # some are filled only then
    for action in menu.actions():
        words, _, keys = action.text().replace("&", "").partition("\t")
        inner = action.menu()
        other = f"{also} {action.property(ALSO) or ''}".strip()
        if isinstance(inner, QMenu):
            if action.isEnabled():
                yield from _within(inner, title, f"{before}{words}: ", other)
        elif words and not action.isSeparator():
            yield Command(before + words, title, keys or _keys(action), action, other, bool(before))


def _keys(action: QAction) -> str:
    return action.shortcut().toString(QKeySequence.SequenceFormat.NativeText)
