"""Which model is meant: a folder, a public model by name, or one on the Hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layerlight.core.errors import BadRequest, NotAModel
from layerlight.core.folders import expanded
from layerlight.core.inspecting.config_folder import is_config_alone, require_plannable
from layerlight.core.inspection import inspect_folder, require_runnable
from layerlight.core.machines.public_models import find_public_model, public_model
from layerlight.core.model import Model

HUB = "hub:"


@dataclass(frozen=True, slots=True)
class Source:
    """A model that can be planned, and where it comes from."""

    model: Model
    kind: str = "folder"
    """`folder`, `config` (a folder without weights), `public` or `hub`."""
    config: Mapping[str, Any] | None = None
    """config.json where there is no folder."""
    repository: str = ""
    """Its name on the Hub, where it came from there."""

    @property
    def loads_from(self) -> str:
        """What transformers takes to load it."""
        return self.model.folder or self.repository


def find_source(words: str) -> Source:
    """The model that these words mean, to be planned. Raises what inspection and the Hub raise."""
    if words.startswith(HUB):
        from layerlight.hub.repository import hub_model  # half a second, and only for those who ask

        name = words.removeprefix(HUB)
        model, config = hub_model(name)
        return Source(require_runnable(model, tokenizer=False), "hub", config, name)
    if not _is_there(words) and _is_public(words):
        public = find_public_model(words)
        return Source(public_model(public.name), "public", public.config, public.repository)
    try:
        inspected = inspect_folder(words)
    except NotAModel as error:
        error.hint = _hint(words, error.hint)
        raise
    return Source(require_plannable(inspected), "config" if is_config_alone(inspected) else "folder")


def find_runnable(words: str) -> Source:
    """The model in a folder, whole enough to be run. Raises BadRequest for what can only be planned."""
    if words.startswith(HUB) or (not _is_there(words) and _is_public(words)):
        raise BadRequest(
            f"“{words}” can be planned, not run: its weights are not on this machine.",
            hint="Download the model, then give its folder.",
        )
    return Source(require_runnable(inspect_folder(words)))


def _is_there(words: str) -> bool:
    """Not, too, where it can't be: too long a name, or the home of a person who is not here."""
    try:
        return expanded(words).exists()
    except (OSError, BadRequest):
        return False


def _is_public(words: str) -> bool:
    try:
        find_public_model(words)
    except BadRequest:
        return False
    return True


def _hint(words: str, hint: str) -> str:
    """With names of public models that are near, where it may have been meant as one."""
    if _is_there(words):
        return hint
    try:
        find_public_model(words)
    except BadRequest as error:
        return f"{hint} {error.hint}" if error.hint.startswith("Did you mean") else hint
    return hint
