"""Set-up steps: run in order, remembered one by one, and resumed where the last run stopped."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


class StepFailed(Exception):
    """A step could not be done: `reason` in one sentence, `hint` what the person can do."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True)
class Step:
    """One step: `name` in the ledger, `words` for people, `key` changes when it must be done again."""

    name: str
    words: str
    key: str
    action: Callable[[], None]
    optional: bool = False
    """An optional step that fails is said, not recorded, and does not hold up the rest."""


class Ledger:
    """Which steps are done, as a small JSON file inside the environment: it goes when the environment goes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, str]:
        """Step name → key; empty where there is no ledger or it can't be read."""
        try:
            entries = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(k): str(v) for k, v in entries.items()} if isinstance(entries, dict) else {}

    def has(self, step: Step) -> bool:
        return self.read().get(step.name) == step.key

    def forget(self) -> None:
        """Drops all entries, for an environment that has lost its interpreter."""
        self.path.unlink(missing_ok=True)

    def record(self, name: str, key: str) -> None:
        """Writes one entry, atomically: a kill in the middle leaves the old ledger."""
        entries = self.read()
        entries[name] = key
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps(entries, indent=1), encoding="utf-8")
        os.replace(draft, self.path)


def run_steps(steps: Sequence[Step], ledger: Ledger, say: Callable[[str], None]) -> int:
    """Does the steps that are not done, in order, and returns how many. Raises StepFailed with the step named in it."""
    count = 0
    for number, step in enumerate(steps, start=1):
        # Asked anew for every step: making the environment afresh empties the ledger, and with it what came after.
        if ledger.has(step):
            continue
        say(f"Step {number} of {len(steps)}: {step.words}")
        try:
            step.action()
        except StepFailed as failure:
            if step.optional:
                say("\n".join(part for part in (f"  {failure.reason}", failure.hint) if part))
                continue
            place = f"Step {number} of {len(steps)} ({step.words}) failed: {failure.reason}"
            raise StepFailed(place, failure.hint) from failure
        ledger.record(step.name, step.key)
        count += 1
    return count
