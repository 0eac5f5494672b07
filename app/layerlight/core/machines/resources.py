"""The data that comes with the program: in the wheel beside the package, in a checkout two folders above it."""

from __future__ import annotations

from pathlib import Path

from layerlight.core.errors import LayerlightError

PACKAGE = Path(__file__).resolve().parents[2]


def resource_folder(name: str, package: Path = PACKAGE) -> Path:
    """The folder `resources/NAME`. Raises LayerlightError when neither place has it."""
    for root in (package / "resources", package.parent.parent / "resources"):
        if (root / name).is_dir():
            return root / name
    raise LayerlightError(
        f"The folder resources/{name} is missing.", hint="Install it again.", title="Layerlight is not whole"
    )
