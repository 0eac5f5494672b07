"""The menus: every action of the window with its name and shortcut."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar, QWidget

from layerlight.ui.commands import ALSO

SHORTCUTS: dict[str, QKeySequence.StandardKey | str] = {
    "open": QKeySequence.StandardKey.Open,
    "starter": "Ctrl+G",
    "unseen": "Ctrl+P",
    "quit": QKeySequence.StandardKey.Quit,
    "load": "Ctrl+L",
    "unload": "Ctrl+U",
    "stop": "Ctrl+.",
    "survey": QKeySequence.StandardKey.Refresh,
    "new_chat": QKeySequence.StandardKey.New,
    "past_chats": "Ctrl+Shift+H",
    "answer_again": "Ctrl+Shift+A",
    "edit_question": "Ctrl+E",
    "copy_answer": "Ctrl+Shift+C",
    "save_chat": QKeySequence.StandardKey.Save,
    "bring_back": "Ctrl+Shift+T",
    "show_map": "Ctrl+M",
    "show_table": "Ctrl+T",
    "heat_places": "Ctrl+Alt+1",
    "heat_time": "Ctrl+Alt+2",
    "heat_moved": "Ctrl+Alt+3",
    "show_plan": "Ctrl+1",
    "show_chat": "Ctrl+2",
    "log": "Ctrl+Shift+L",
    "commands": "Ctrl+K",
    "wider_side": "Ctrl+[",
    "narrower_side": "Ctrl+]",
    "left_panel": "Ctrl+B",
    "full_screen": QKeySequence.StandardKey.FullScreen,
    "undo": QKeySequence.StandardKey.Undo,
    "redo": QKeySequence.StandardKey.Redo,
}
WORDS = {
    "open": "Open a model folder…",
    "starter": "Get the starter model",
    "unseen": "Plan a model you don’t have…",
    "quit": "Quit",
    "load": "Load as planned",
    "unload": "Unload",
    "stop": "Stop",
    "survey": "Look at this machine again",
    "calibrate": "Measure this machine (at most 15 s)",
    "undo": "Undo the change of the plan",
    "redo": "Redo it",
    "reset": "Reset to the fastest plan",
    "new_chat": "New chat",
    "past_chats": "Past chats",
    "answer_again": "Answer again",
    "edit_question": "Edit the last question",
    "copy_answer": "Copy the last answer",
    "copy_chat": "Copy the chat as Markdown",
    "save_chat": "Save the chat…",
    "bring_back": "Bring back the deleted chat",
    "show_map": "Layers as a map",
    "show_table": "Layers as a table",
    "heat_places": "Colour layers by their places",
    "heat_time": "Colour layers by the time they take",
    "heat_moved": "Colour layers by the bytes they move",
    "show_plan": "Plan",
    "show_chat": "Chat",
    "log": "Log",
    "commands": "Search commands",
    "wider_side": "Widen the right panel",
    "narrower_side": "Narrow the right panel",
    "left_panel": "Show or hide the left panel",
    "full_screen": "Full screen",
    "notifications": "Tell me when long work ends",
    "reduced_motion": "Reduce motion",
    "copy_facts": "Copy the model’s facts",
    "show_folder": "Show the model’s folder",
    "about": "About Layerlight",
}
MENUS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("&File", ("open", "recent", "starter", "unseen", "models", "-", "quit")),
    ("&Plan", ("undo", "redo", "reset", "-", "machines", "export")),
    ("&Model", ("load", "unload", "stop", "-", "survey", "calibrate", "-", "copy_facts", "show_folder")),
    ("&Chat", (
        "new_chat", "past_chats", "-", "answer_again", "edit_question", "-",
        "copy_answer", "copy_chat", "save_chat", "-", "bring_back",
    )),
    ("&View", (
        "show_map", "show_table", "heat_places", "heat_time", "heat_moved", "-",
        "show_plan", "show_chat", "log", "-",
        "left_panel", "wider_side", "narrower_side", "full_screen", "-", "theme", "notifications", "reduced_motion",
    )),
    ("&Help", ("commands", "-", "about")),
)  # fmt: skip
OTHER_WORDS = {
    "recent": "open recent history",
    "unseen": "hub hugging face name",
    "models": "well-known shape",
    "machines": "plan for what if simulate gpu mac card",
    "reduced_motion": "animation accessibility calm",
    "notifications": "notification message background alert",
    "wider_side": "size width",
    "narrower_side": "size width",
    "left_panel": "sidebar model machine",
    "theme": "dark mode light mode appearance colours",
    "export": "save device_map python json copy",
    "load": "start run",
    "unload": "free memory eject",
    "stop": "cancel abort",
    "survey": "refresh devices",
    "calibrate": "benchmark speed calibrate",
    "new_chat": "conversation",
    "past_chats": "history conversations search find",
    "answer_again": "regenerate retry another",
    "edit_question": "change prompt rewrite",
    "bring_back": "undo delete restore chat",
    "save_chat": "export markdown json",
    "about": "version licence",
}
"""What else people call them: the command palette finds these too."""
CHECKED = ("notifications", "reduced_motion")
"""Actions that are on or off."""
THEMES = {"system": "Like the system", "light": "Light", "dark": "Dark"}


class Menus:
    """Builds the menu bar from a table; `do` holds what each key does."""

    def __init__(
        self,
        parent: QWidget,
        do: dict[str, Callable[[], object]],
        theme: Callable[[str], None],
        within: dict[str, QMenu] | None = None,
    ) -> None:
        """`within` are menus made elsewhere, by their keys."""
        self.bar = QMenuBar(parent)
        self.actions: dict[str, QAction] = {}
        self.recent = QMenu("Open before", self.bar)
        self.recent.setTitle("Opened before")
        self._themes = QActionGroup(self.bar)
        self.menus: list[tuple[str, QMenu]] = []
        """(title, menu), as they stand in the bar."""
        for title, keys in MENUS:
            menu = self.bar.addMenu(title)
            self.menus.append((title.replace("&", ""), menu))
            for key in keys:
                match key:
                    case "-":
                        menu.addSeparator()
                    case "recent":
                        _also(menu.addMenu(self.recent), key)
                    case "theme":
                        inner = menu.addMenu("Theme")
                        _also(inner.menuAction(), key)
                        self._add_themes(inner, theme)
                    case _ if within and key in within:
                        _also(menu.addMenu(within[key]), key)
                    case _ if key in do:
                        menu.addAction(self._action(key, do[key], parent))

    def choose_theme(self, choice: str) -> None:
        for action in self._themes.actions():
            action.setChecked(action.data() == choice)

    def show_recent(self, folders: tuple[str, ...], open_folder: Callable[[str], None]) -> None:
        self.recent.clear()
        for folder in folders:
            action = self.recent.addAction(Path(folder).name or folder)
            action.setToolTip(folder)
            action.triggered.connect(partial(_call, open_folder, folder))
        self.recent.setEnabled(bool(folders))

    def _action(self, key: str, do: Callable[[], object], parent: QWidget) -> QAction:
        action = QAction(WORDS[key], parent)
        if key in SHORTCUTS:
            keys = SHORTCUTS[key]
            if isinstance(keys, QKeySequence.StandardKey):
                action.setShortcuts(QKeySequence.keyBindings(keys))
            else:
                action.setShortcut(QKeySequence(keys))
        action.setCheckable(key in CHECKED)
        if key == "about":
            action.setMenuRole(QAction.MenuRole.AboutRole)
        if key == "quit":
            action.setMenuRole(QAction.MenuRole.QuitRole)
        action.triggered.connect(partial(_run, do))
        _also(action, key)
        self.actions[key] = action
        return action

    def _add_themes(self, menu: QMenu, theme: Callable[[str], None]) -> None:
        for key, words in THEMES.items():
            action = menu.addAction(words)
            action.setCheckable(True)
            action.setData(key)
            action.triggered.connect(partial(_call, theme, key))
            self._themes.addAction(action)


def _also(action: QAction, key: str) -> None:
    action.setProperty(ALSO, OTHER_WORDS.get(key, ""))


def _call(do: Callable[[str], None], value: str, _checked: bool = False) -> None:
    do(value)


def _run(do: Callable[[], object], _checked: bool = False) -> None:
    do()
