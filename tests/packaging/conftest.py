"""Makes the set-up scripts importable: packaging/ is no package, and must not become one."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))
