"""What carries a plan out: what it brings along with a layer, and whether it computes meanwhile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Runtime:
    """A way to run layers away from where they rest."""

    name: str
    overlaps: bool
    """Brings the next layers while others compute."""
    pinned: bool
    """Copies to an accelerator from page-locked RAM."""
    whole_tables: bool
    """Brings a whole table of embeddings where rows of it are looked up."""
    whole_experts: bool
    """Brings all experts of a layer to an accelerator, whichever the router chose."""

    def pass_seconds(self, carrying: float, working: float) -> float:
        """Seconds of one pass that carries weights for so long and computes for so long."""
        return max(carrying, working) if self.overlaps else carrying + working


ACCELERATE = Runtime("accelerate", overlaps=False, pinned=False, whole_tables=True, whole_experts=True)
"""Hooks that bring each module's tensors from ordinary RAM or from their file, then compute, then drop them."""

RING = Runtime("ring", overlaps=True, pinned=True, whole_tables=False, whole_experts=False)
"""A ring of page-locked buffers that is filled while others are computed on: known to the prices, not built yet for
accelerators."""

RING_BUFFERS = 3
"""Layers of which the CPU's ring holds the weights at once: one that is computed with, and two that are read ahead."""

STAGING_BUFFERS = 2
"""Layers of which an accelerator holds the carried weights at once: one that is computed with, and one on its way."""

TODAY = ACCELERATE
"""What plans are made for: only what can be carried out is planned."""
