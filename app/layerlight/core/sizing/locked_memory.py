"""How much of RAM may be page-locked: the system can't take such memory back while a model is loaded."""

from __future__ import annotations

SHARE = 2
"""At most one part in so many of all RAM is locked."""
KEPT_FREE = 8
"""Of so many parts of RAM one stays free for everything else."""


def lockable(total: int | None, free: int | None) -> int:
    """Bytes that may be page-locked beside what is in use now; none where RAM can't be read."""
    if total is None or free is None:
        return 0
    return max(0, min(total // SHARE, free - total // KEPT_FREE))
