"""Where this program keeps its own files on this person's machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from layerlight.core.errors import BadRequest

APP = "layerlight"
HOME_VARIABLE = "LAYERLIGHT_HOME"
"""When set, everything lives below this one folder: for tests, and for a portable installation."""


@dataclass(frozen=True, slots=True)
class Folders:
    """The program's folders. None of them is made before something is written there."""

    data: Path
    """Chats and starter models: what a person would miss."""
    cache: Path
    """What can be fetched or made again."""
    config: Path
    log: Path

    @property
    def settings(self) -> Path:
        return self.config / "settings.json"

    @property
    def chats(self) -> Path:
        return self.data / "chats.sqlite3"

    @property
    def measurements(self) -> Path:
        return self.data / "measurements.sqlite3"

    @property
    def models(self) -> Path:
        """Starter models, each a normal model folder."""
        return self.data / "models"

    @property
    def offload(self) -> Path:
        """Where layers rest on disk when their files can't be read in place."""
        return self.cache / "offload"


def own_folders() -> Folders:
    """The folders of this person, as their system has it; below LAYERLIGHT_HOME when that is set.

    Raises BadRequest where that begins with the home of a person who is not here.
    """
    home = os.environ.get(HOME_VARIABLE)
    if home:
        root = expanded(home, HOME_VARIABLE).absolute()
        return Folders(root / "data", root / "cache", root / "config", root / "log")
    found = platformdirs.PlatformDirs(APP, appauthor=False)
    return Folders(
        Path(found.user_data_path), Path(found.user_cache_path), Path(found.user_config_path), Path(found.user_log_path)
    )


def expanded(words: str | Path, called: str = "path") -> Path:
    """The path, with `~` and `~name` as the home they stand for. Raises BadRequest where there is no such home."""
    try:
        return Path(words).expanduser()
    except RuntimeError as error:
        raise BadRequest(
            f"The {called} “{words}” begins with a home folder that is not known here.",
            hint="Write the whole path, from the root on.",
        ) from error
