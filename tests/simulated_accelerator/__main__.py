"""Runs a terminal command, or the engine process, on simulated devices.

python -m tests.simulated_accelerator --devices 64MiB,48MiB [--unified] -- run FOLDER …
python -m tests.simulated_accelerator --devices 64MiB -- --engine-host
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from layerlight.core.device import parse_size
from layerlight.core.environment import engine_environment
from layerlight.core.errors import LayerlightError
from tests.simulated_accelerator import NoCompiler, install


def main(words: Sequence[str]) -> int:
    """Exit code of the command; 2 for a bad request of our own, 1 where the backend can't be built."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulated_accelerator", usage=__doc__)
    parser.add_argument("--devices", required=True, help="total bytes of each device, for example 64MiB,48MiB")
    parser.add_argument("--unified", action="store_true", help="the devices share RAM, as a Mac's does")
    parser.add_argument("command", nargs="+", help="after --: what layerlight would take, or --engine-host")
    asked = parser.parse_args(words)
    try:
        devices = [parse_size(size) for size in asked.devices.split(",")]
    except LayerlightError as error:
        parser.error(str(error))
    os.environ.update(engine_environment(os.environ))
    try:
        install(devices, asked.unified)
    except (NoCompiler, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return _run(asked.command)


def _run(command: Sequence[str]) -> int:
    # Imported late: what these import may import torch, whose environment has to be set before.
    if command[0] == "--engine-host":
        from layerlight.engine.host import main as engine_host

        sys.argv = ["layerlight.engine.host", *command[1:]]
        return engine_host() or 0
    from layerlight.__main__ import main as layerlight

    sys.argv = ["layerlight", *command]
    return layerlight()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
