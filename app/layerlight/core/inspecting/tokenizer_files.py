"""What a folder offers to turn text into tokens, and whether it has a chat template."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerlight.core.inspecting.plain_file import is_plain, read_json

_WHOLE = ("tokenizer.json", "tekken.json", "vocab.txt")
_PIECES = ("vocab.json", "merges.txt")
_SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model")


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    found: bool
    chat_template: bool
    problem: str = ""
    hint: str = ""


def find_tokenizer(folder: Path, names: frozenset[str]) -> TokenizerFiles:
    """The tokenizer of a folder with these entries. Its files are looked at, never run."""
    template = has_chat_template(folder, names)
    names = frozenset(
        name for name in (*_WHOLE, *_PIECES, *_SENTENCEPIECE) if name in names and is_plain(folder / name)
    )
    if any(name in names for name in _WHOLE) or names.issuperset(_PIECES):
        return TokenizerFiles(True, template)
    sentencepiece = next((name for name in _SENTENCEPIECE if name in names), None)
    if sentencepiece is None:
        return TokenizerFiles(
            False, template, "There are no tokenizer files in the folder.", "Download tokenizer.json too."
        )
    absent = [name for name in ("sentencepiece", "tiktoken") if importlib.util.find_spec(name) is None]
    if len(absent) == 2:
        return TokenizerFiles(
            False,
            template,
            f"The tokenizer is only there as {sentencepiece}, which needs the package “sentencepiece” to convert it.",
            "Install it with “pip install sentencepiece protobuf”, or download tokenizer.json.",
        )
    return TokenizerFiles(True, template)


def has_chat_template(folder: Path, names: frozenset[str]) -> bool:
    """Whether messages can be put into the model's own form: in a file of its own or in the tokenizer's settings."""
    if "chat_template.jinja" in names:
        return True
    if "additional_chat_templates" in names and any((folder / "additional_chat_templates").glob("default.jinja")):
        return True
    return any(
        _is_template(_settings(folder / name).get("chat_template"))
        for name in ("tokenizer_config.json", "chat_template.json", "processor_config.json")
        if name in names
    )


def processor_template(folder: Path) -> str | None:
    """The chat template of the folder's processor, where its tokenizer has none."""
    for name in ("chat_template.json", "processor_config.json"):
        template = _settings(folder / name).get("chat_template") if is_plain(folder / name) else None
        if isinstance(template, str) and template:
            return template
    return None


def _is_template(value: Any) -> bool:
    """A template, or a list of named ones of which one is the default."""
    if isinstance(value, list):
        return any(isinstance(each, dict) and each.get("name") == "default" for each in value)
    return bool(value) and isinstance(value, str | dict)


def _settings(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
