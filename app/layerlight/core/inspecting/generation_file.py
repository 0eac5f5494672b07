"""generation_config.json: what transformers reads beside config.json, as far as it can keep a model from loading."""

from __future__ import annotations

from pathlib import Path

from layerlight.core.inspecting.plain_file import read_json

GENERATION = "generation_config.json"


def generation_problems(folder: Path) -> list[tuple[str, str]]:
    """(problem, hint) where it holds something else than settings; one that is no JSON at all is left out by all."""
    try:
        found = read_json(folder / GENERATION)
    except (OSError, ValueError):
        return []
    if isinstance(found, dict):
        return []
    return [(f"{GENERATION} holds no settings, but something else.", "Download it again, or remove it.")]
