"""Work: bytes of a pass beside weights and cache."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """What is alive at once while a pass computes."""

    most: int
    """In its most demanding stage."""
    in_modules: int
    """The most while a module computes that has weights: what lies beside weights carried for a pass."""

    def at_least(self, size: int) -> Work:
        """The same where something else needs so many bytes at another time."""
        return self if size <= self.most else Work(size, self.in_modules)

    def beside(self, size: int) -> Work:
        """The same where each module also needs so many bytes while it computes."""
        return Work(max(self.most, self.in_modules + size), self.in_modules + size)
