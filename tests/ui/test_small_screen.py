"""A screen that is small, or has much scaling, holds the whole window."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SHOW = """
import json
from PySide6.QtWidgets import QApplication
from layerlight.ui.window import Window
app = QApplication([])
window = Window()
window.show()
room = window.screen().availableSize()
print(json.dumps([window.width(), window.height(), window.minimumWidth(), window.minimumHeight(), *room.toTuple()]))
"""


@pytest.mark.parametrize("factor", ["1", "2", "3"])
def test_no_window_is_larger_than_its_screen(factor: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen", "QT_SCALE_FACTOR": factor},
    )
    width, height, least_width, least_height, room_width, room_height = json.loads(done.stdout)
    assert width <= room_width
    assert height <= room_height
    assert least_width <= width
    assert least_height <= height
