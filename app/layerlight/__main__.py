"""Window with no arguments, terminal with one."""

from __future__ import annotations

import sys


def main() -> int:
    """Starts Layerlight; returns the exit code."""
    raise SystemExit(f"not built yet: {sys.argv[1:]}")


if __name__ == "__main__":
    sys.exit(main())
