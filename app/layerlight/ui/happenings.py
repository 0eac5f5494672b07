"""What happens inside the window and needs no engine; sent with `Session.changed` like the engine's events."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """A person chose something: limits, precision, sampling, theme."""


@dataclass(frozen=True, slots=True)
class ConversationChanged:
    """Turns came, went or belong to another conversation."""


@dataclass(frozen=True, slots=True)
class Noticed:
    """A sentence that a person should see and that is no failure."""

    words: str


@dataclass(frozen=True, slots=True)
class PlanChanged:
    """The plan was made again, or could not be made: see `Session.problem`."""


@dataclass(frozen=True, slots=True)
class RequestChanged:
    """A request was sent or has been answered: see `Session.waiting`."""


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The error or the notice was put away."""


@dataclass(frozen=True, slots=True)
class AdviceChanged:
    """It was found what would be better than the plan: see `Planning.advice` and `Planning.fixes`."""


@dataclass(frozen=True, slots=True)
class MachineChosen:
    """It is planned for another machine now: see `Session.elsewhere`."""
