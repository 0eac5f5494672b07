"""Nothing a library prints reaches the pipe to the window, and nothing it asks is answered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

NOISY = """
import logging, os, sys
from pathlib import Path
from layerlight.engine.logs import redirect_output, start_logging
pipe = os.dup(1)
redirect_output(Path(sys.argv[1]) if sys.argv[1:] else None)
start_logging()
os.write(1, b"from C\\n")
print("from Python", flush=True)
logging.getLogger("a.library").warning("from a logger")
os.write(pipe, b"{}\\n")
try:
    input("trust it? ")
except EOFError:
    os.write(pipe, b"not asked\\n")
"""


@pytest.mark.parametrize("to_file", [True, False])
def test_prints_go_to_the_log(to_file: bool, tmp_path: Path) -> None:
    """E12: from C, from Python, from loggers; a question finds the end of its input."""
    log = tmp_path / "logs" / "engine.log"
    ran = subprocess.run(
        [sys.executable, "-c", NOISY, *([str(log)] if to_file else [])], input="y\n", capture_output=True, text=True
    )
    assert ran.stdout == "{}\nnot asked\n"
    logged = log.read_text() if to_file else ran.stderr
    for words in ("from C", "from Python", "WARNING a.library: from a logger"):
        assert words in logged
