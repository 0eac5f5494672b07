"""Room for open files: a model may lie in hundreds of them, and some systems allow 256 at first."""

from __future__ import annotations

import logging
import sys

log = logging.getLogger(__name__)

_OTHERS = 256
"""Files that a process has open anyway, generously: libraries, pipes, logs."""


def allow_open_files(count: int) -> None:
    """Raises this process's own limit so that `count` more files can be open, as far as the system lets it."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _OTHERS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        log.warning("%d files may be open, %d are wanted: %s", soft, wanted, error)
