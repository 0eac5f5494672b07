"""`--export`: a plan for elsewhere, to a file or to stdout."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from layerlight.core.errors import BadRequest, StoreFailed
from layerlight.core.export import device_map, plan_json, python_snippet
from layerlight.core.folders import expanded
from layerlight.core.plan import Plan

FORMATS = {
    "python": python_snippet,
    "device-map": lambda plan: json.dumps(device_map(plan), indent=2, ensure_ascii=False) + "\n",
    "json": plan_json,
}


@dataclass(frozen=True, slots=True)
class Export:
    """A format, and the file it goes to; None is stdout."""

    format: str
    file: str | None = None

    @classmethod
    def of(cls, words: list[str]) -> Export:
        """Raises BadRequest for an unknown format."""
        name, *rest = words
        if name not in FORMATS or len(rest) > 1:
            raise BadRequest(
                f"“--export {' '.join(words)}” can't be understood.",
                hint=f"Write --export {'|'.join(FORMATS)}, and after it a file to write to.",
            )
        return cls(name, rest[0] if rest else None)

    def text(self, plan: Plan, loads_from: str) -> str:
        """The plan in this format; `loads_from` is the folder or repository that the snippet loads."""
        return FORMATS[self.format](replace(plan, model=replace(plan.model, folder=loads_from)))

    def write(self, text: str) -> None:
        """Raises StoreFailed where the file can't be written."""
        if self.file is None:
            return
        try:
            expanded(self.file, "file").write_text(text, "utf-8")
        except (OSError, ValueError) as error:
            raise StoreFailed(
                f"The plan could not be written to {self.file}: {getattr(error, 'strerror', None) or error}.",
                hint="Check that the folder is there and may be written to.",
            ) from error
