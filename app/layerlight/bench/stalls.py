"""What held up a beat: the Python stacks of all threads at the moment when one was late."""

from __future__ import annotations

import sys
import threading
import time
from types import CodeType, FrameType

STALLS = "LAYERLIGHT_BENCH_STALLS"
"""When it is set in its environment, a probe keeps the stacks of long gaps too."""
LATE = 0.013
"""Seconds without a beat after which the stacks are kept, and again after each as many more."""
DEEP = 7
"""Frames of a stack that are told, the innermost first."""


class Stalls:
    """Armed at every beat. Its thread needs the interpreter's lock: of a stall that holds it the end is seen."""

    def __init__(self) -> None:
        self._armed = time.perf_counter()
        self._seen: list[str] = []
        self._own = threading.Thread(target=self._watch, name="stalls", daemon=True)
        self._own.start()

    def arm(self) -> None:
        self._armed = time.perf_counter()

    def since_armed(self) -> str:
        """The stacks kept since the last beat; empty when it was in time."""
        seen, self._seen = self._seen, []
        return "\n".join(seen)

    def _watch(self) -> None:
        times = 1
        while True:
            time.sleep(0.002)
            late = time.perf_counter() - self._armed
            if late < LATE:
                times = 1
            elif late > times * LATE:
                times += 1
                self._seen.append(f"after {late * 1000:.0f} ms\n{self._stacks()}")

    def _stacks(self) -> str:
        """Copied at once and put in words later: a frame that is held keeps its locals, a painter among them."""
        found = [(ident, _copied(frame)) for ident, frame in sys._current_frames().items() if ident != self._own.ident]
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return "\n".join(f"  {names.get(ident, ident)}: {_words(stack)}" for ident, stack in found)


def _copied(frame: FrameType | None) -> list[tuple[CodeType, int]]:
    stack: list[tuple[CodeType, int]] = []
    while frame is not None and len(stack) < DEEP:
        stack.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return stack


def _words(stack: list[tuple[CodeType, int]]) -> str:
    return " < ".join(f"{code.co_filename.rpartition('/')[2]}:{line} {code.co_name}" for code, line in stack)
