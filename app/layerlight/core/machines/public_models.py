"""Shapes of public models, 3 to 671 billion parameters: numbers of their configs, so that each can be planned."""

from __future__ import annotations

import difflib
from functools import cache

import msgspec

from layerlight.core.errors import BadRequest
from layerlight.core.inspecting.config_model import model_from_config
from layerlight.core.machines.resources import resource_folder
from layerlight.core.model import Model


class PublicModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model: the part of its config.json that decides memory, and where that comes from."""

    name: str
    repository: str
    parameters: int
    """Counted by transformers on an empty model with this config."""
    label: str
    """What its makers call its size."""
    config: dict[str, object]
    source: str
    confidence: str
    """`specified`: the config was read in the repository or a faithful copy; `recalled`: checked only by its count."""


@cache
def public_models() -> tuple[PublicModel, ...]:
    """All of them, by size."""
    data = (resource_folder("models") / "public_models.json").read_bytes()
    found = msgspec.json.decode(data, type=list[PublicModel])
    return tuple(sorted(found, key=lambda each: each.parameters))


def public_model_names() -> tuple[str, ...]:
    """Their names, e.g. `qwen3-8b`, by size."""
    return tuple(each.name for each in public_models())


def public_model(name: str) -> Model:
    """The model with this name, without any file. Raises BadRequest with near names for an unknown one."""
    return model_from_config(find_public_model(name).config, name)


def find_public_model(name: str) -> PublicModel:
    """What is bundled under this name, or under the name of its repository."""
    wanted = name.strip().lower()
    for each in public_models():
        if wanted in (each.name, each.repository.lower()):
            return each
    names = public_model_names()
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.4)
    near += [each for each in names if wanted and wanted in each and each not in near][:3]
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known models: {', '.join(names)}."
    raise BadRequest(f"There is no public model “{name}” here.", hint=hint)
