"""The engine process's log: our words, the libraries' words, and whatever a library prints."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def redirect_output(log_file: Path | None) -> None:
    """Sends file descriptors 1 and 2 to the log, so that nothing a library prints reaches the pipe to the window.

    Without a log file both go to what stderr was. Standard input becomes empty: nothing can ask a question.
    """
    if log_file is not None:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        opened = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, 2)
        os.close(opened)
    os.dup2(2, 1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    sys.stdin = open(os.devnull)  # noqa: SIM115 - stays open as long as the process


def start_logging(level: int = logging.INFO) -> None:
    """Logs to stderr, which `redirect_output` has made the log."""
    logging.basicConfig(level=level, format=FORMAT, stream=sys.stderr, force=True)


def quiet_libraries() -> None:
    """Leaves the libraries' warnings to the log and takes away their progress bars and colours."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.disable_default_handler()
    transformers_logging.enable_propagation()
    logging.getLogger("accelerate.big_modeling").setLevel(logging.ERROR)
