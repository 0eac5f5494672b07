"""Settings: what a person chose, read and written as JSON, atomically."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from layerlight.core.device import Machine
from layerlight.core.errors import StoreFailed

RECENT_FOLDERS = 12
LARGEST_FILE = 4 * 2**20
"""Bytes: no settings are nearly as large."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that outlives a session and is no chat. The defaults are what a first start uses."""

    theme: str = "system"
    """`system`, `light` or `dark`."""
    last_folder: str | None = None
    recent_folders: tuple[str, ...] = ()
    """Newest first."""
    limits: tuple[tuple[str, int], ...] = ()
    """(place, bytes); places of another machine may be among them: see `limits_on`."""
    context: int | None = None
    """Tokens; None leaves it to the plan."""
    dtype: str | None = None
    quantization: str | None = None
    attention: str = "sdpa"
    offload_folder: str | None = None
    system: str = ""
    """The system message of a new chat."""
    max_new_tokens: int = 512
    temperature: float = 0.7
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    seed: int | None = None
    """None draws a new one for every answer."""
    engine_environment: bool = True
    """Off leaves the variables that torch reads at its start (mps fallback and watermarks) as they are."""
    window_geometry: str = ""
    """base64, as the window wrote it."""
    window_state: str = ""
    """Widths of the side panels: see `Panes`."""
    unknown: tuple[tuple[str, str], ...] = ()
    """(key, JSON) of keys that a newer version wrote: kept for it."""
    strategy: str = "fastest"
    """What a plan is made for: see `Wishes.strategy`."""
    kv: str = ""
    """What keys and values are kept in: see `Wishes.kv`."""
    notifications: bool = True
    """Whether the end of long work is told while the window is not looked at."""
    reduced_motion: bool | None = None
    """None does as the system asks."""
    prompt_lookup: int = 0
    """Tokens to draft for each pass: see `TextRequest`."""

    def with_folder(self, folder: str) -> Settings:
        """These settings after `folder` was opened."""
        recent = (folder, *(other for other in self.recent_folders if other != folder))
        return replace(self, last_folder=folder, recent_folders=recent[:RECENT_FOLDERS])

    def limits_on(self, machine: Machine) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
        """(limits that hold on this machine, places of others that it doesn't have)."""
        here = tuple(limit for limit in self.limits if machine.has(limit[0]))
        return here, tuple(place for place, _ in self.limits if not machine.has(place))


_KEYS = tuple(field.name for field in fields(Settings) if field.name != "unknown")


def read_settings(path: Path) -> tuple[Settings, str]:
    """(settings, notice). Never fails: what can't be read is kept aside and the defaults stand in for it.

    The notice is empty when all is well, else a sentence for the person.
    """
    try:
        _require_plain(path)
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return Settings(), ""
    except (OSError, ValueError, RecursionError) as error:
        return Settings(), _notice(path, "could not be read", error)
    if not isinstance(found, dict):
        return Settings(), _notice(path, "do not hold settings")
    values, wrong = _fitting(found)
    settings = Settings(**values, unknown=_unknown(found))
    if not wrong:
        return settings, ""
    return settings, _notice(path, f"had a value of the wrong kind for {', '.join(wrong)}", whole=False)


def write_settings(path: Path, settings: Settings) -> None:
    """Replaces the file in one step. Raises StoreFailed when it can't be written; the old file then stands."""
    data = {name: getattr(settings, name) for name in _KEYS}
    data |= {key: json.loads(value) for key, value in settings.unknown}
    text = json.dumps(data, indent=2) + "\n"
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
        raise StoreFailed(
            f"The settings could not be written to {path}: {error.strerror or error}.",
            hint="Check that the disk has room and that the folder may be written to.",
        ) from error


def keep_aside(path: Path) -> Path:
    """Moves a broken file to a free name beside it and returns that. Raises OSError when it can't be moved."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}.broken-{stamp}")
    count = 1
    while aside.exists():
        count += 1
        aside = path.with_name(f"{path.name}.broken-{stamp}-{count}")
    return path.rename(aside)


def _require_plain(path: Path) -> None:
    """Raises OSError for what is no file or too large: a pipe would be waited for without end."""
    seen = path.stat()
    if not stat.S_ISREG(seen.st_mode):
        raise OSError("it is not a plain file")
    if seen.st_size > LARGEST_FILE:
        raise OSError(f"it is larger than {LARGEST_FILE // 2**20} MiB")


def _fitting(found: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """(values that can be by key, keys whose value is of another type or impossible)."""
    types, possible = get_type_hints(Settings), _possible()
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for key in _KEYS:
        if key not in found:
            continue
        try:
            value = msgspec.convert(found[key], types[key])
        except msgspec.ValidationError:
            wrong.append(key)
            continue
        if key in possible and not possible[key](value):
            wrong.append(key)
        else:
            values[key] = value
    return values, wrong


def _possible() -> dict[str, Callable[[Any], bool]]:
    """Whether a value of the right type can be, by key. NaN is in no range. Imported late: few starts need them all."""
    from layerlight.core.memory import QUANTIZATIONS
    from layerlight.core.model import FLOAT_DTYPES
    from layerlight.core.placing import ENGINE_STRATEGIES, STRATEGIES
    from layerlight.core.planning.kv_choice import KV_CACHES
    from layerlight.core.sampling import COLDEST, LARGEST_SEED, MOST_DRAFTED

    return {
        "theme": lambda name: name in ("system", "light", "dark"),
        "limits": lambda limits: all(size >= 0 for _, size in limits),
        "context": lambda tokens: tokens is None or tokens >= 1,
        "dtype": lambda name: name is None or name in FLOAT_DTYPES,
        "quantization": lambda name: name is None or name in QUANTIZATIONS,
        "attention": lambda name: name in ("sdpa", "eager"),
        "strategy": lambda name: name in (*STRATEGIES, *ENGINE_STRATEGIES),
        "kv": lambda name: name in ("", *KV_CACHES),
        "max_new_tokens": lambda tokens: tokens >= 1,
        "temperature": lambda warmth: warmth == 0 or COLDEST <= warmth <= 100,
        "top_p": lambda share: 0 < share <= 1,
        "top_k": lambda tokens: tokens >= 0,
        "repetition_penalty": lambda penalty: 0.1 <= penalty <= 10,
        "seed": lambda seed: seed is None or 0 <= seed <= LARGEST_SEED,
        "prompt_lookup": lambda tokens: 0 <= tokens <= MOST_DRAFTED,
    }


def _unknown(found: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    keys: Iterable[str] = (key for key in found if key not in _KEYS)
    return tuple((key, json.dumps(found[key])) for key in keys)


def _notice(path: Path, what: str, error: Exception | None = None, whole: bool = True) -> str:
    reason = f" ({error})" if error else ""
    instead = "The defaults are used." if whole else "The default is used there."
    try:
        aside = keep_aside(path)
    except OSError:
        return f"The settings in {path} {what}{reason}. {instead}"
    return f"The settings {what}{reason}. {instead} The old file is kept as {aside.name}."
