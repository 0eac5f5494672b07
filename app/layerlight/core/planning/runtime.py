"""What carries a plan out: what it brings along with a layer, and whether it computes meanwhile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Runtime:
    """A way to run layers away from where they rest."""

    name: str
    overlaps: bool
    """Brings a layer to an accelerator while the one before computes there, and reads its file meanwhile."""
    pinned: bool
    """Copies to an accelerator from page-locked RAM."""
    whole_tables: bool
    """Brings a whole table of embeddings where rows of it are looked up."""
    whole_experts: bool
    """Brings all experts of a layer to an accelerator, whichever the router chose."""

    def waits(self, carrying: float, working: float) -> float:
        """Seconds in which an accelerator waits for a layer that is carried for so long, and computes so long."""
        return max(0.0, carrying - working) if self.overlaps else carrying


ACCELERATE = Runtime("accelerate", overlaps=False, pinned=False, whole_tables=True, whole_experts=True)
"""Hooks that bring each module's tensors from ordinary RAM or from their file, then compute, then drop them."""

STAGED = Runtime("staged", overlaps=True, pinned=True, whole_tables=True, whole_experts=True)
"""Buffers of an accelerator that are filled from page-locked RAM while others are computed with."""

RING_BUFFERS = 3
"""Layers of which the CPU's ring holds the weights at once: one that is computed with, and two that are read ahead."""

STAGING_BUFFERS = 2
"""Layers of which an accelerator holds the carried weights at once: one that is computed with, and one on its way."""

TODAY = STAGED
"""What plans are made for: only what can be carried out is planned."""
