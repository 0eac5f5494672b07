"""Window with no arguments, terminal with one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

ENGINE_HOST = "--engine-host"
"""First argument that makes this the engine process: in a bundle there is no other executable to start."""


def main(argv: Sequence[str] | None = None) -> int:
    """Starts Layerlight; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == [ENGINE_HOST]:
        from layerlight.engine.host import main as serve

        return serve(words[1:])
    if words:
        try:
            from layerlight.cli import main as carry_out

            return carry_out(words)
        except KeyboardInterrupt:  # while the commands themselves were being imported
            return 130
    return _open_window()


def no_display(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether no window can be shown here: on Linux and its kin Qt would abort the process."""
    if platform in ("win32", "darwin"):
        return False
    return not any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"))


def _open_window() -> int:
    if no_display(os.environ):
        sys.stderr.write(
            "There is no display here, so there can be no window.\n"
            "“layerlight demo” shows a model at work in the terminal; “layerlight --help” lists all commands.\n"
        )
        return 1
    try:
        from layerlight.ui.app import main as open_window
    except ImportError as error:
        sys.stderr.write(
            f"The window can't be opened: {error}.\n"
            "Qt misses something: “python3 packaging/run.py” from a checkout installs it, or says what to install.\n"
        )
        return 1
    return int(open_window())


if __name__ == "__main__":
    sys.exit(main())
