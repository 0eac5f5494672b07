"""Runs a terminal command, the engine process, or the window on simulated devices.

python -m tests.simulated_accelerator --devices 64MiB,48MiB [--unified] -- run FOLDER …
python -m tests.simulated_accelerator --devices 64MiB -- --engine-host
python -m tests.simulated_accelerator --devices 64MiB
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from layerlight.__main__ import main as layerlight
from layerlight.core.device import parse_size
from layerlight.core.environment import engine_environment
from layerlight.core.errors import LayerlightError
from tests.simulated_accelerator import MOST_DEVICES, NoCompiler, install


def main(words: Sequence[str]) -> int:
    """Exit code of the command; 2 for a bad request of our own, 1 where the backend can't be built."""
    ours, command = _split(words)
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulated_accelerator", usage="%(prog)s --devices SIZE,… [--unified] [-- COMMAND…]"
    )
    parser.add_argument("--devices", required=True, help="total bytes of each device, for example 64MiB,48MiB")
    parser.add_argument("--unified", action="store_true", help="the devices share RAM, as a Mac's does")
    asked = parser.parse_args(ours)
    try:
        devices = [parse_size(size) for size in asked.devices.split(",")]
    except LayerlightError as error:
        parser.error(str(error))
    if len(devices) > MOST_DEVICES:
        parser.error(f"{len(devices)} devices are more than {MOST_DEVICES}")
    if not command:
        return _open_window([sys.executable, "-m", "tests.simulated_accelerator", *ours, "--", "--engine-host"])
    os.environ.update(engine_environment(os.environ))  # before `install` imports torch
    try:
        install(devices, asked.unified)
    except NoCompiler as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return layerlight(command)


def _open_window(engine: Sequence[str]) -> int:
    """The window with this engine; torch is imported in the engine's process only."""
    from layerlight.ui.app import main as open_window

    return open_window(engine=engine)


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is ours, and what after the first `--` is layerlight's."""
    words = list(words)
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
