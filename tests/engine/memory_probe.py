"""Loads, cancels and fails in a process of its own, as the engine's is, and prints what memory did, as JSON.

`python -m tests.engine.memory_probe MODEL BROKEN TINY MIXTURE`: bytes over those of the warmed engine.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from layerlight.engine.heap import keep_heap_tight
from layerlight.engine.warming import set_environment

SHARD = 8 * 2**20


@dataclass
class Probe:
    """One engine, and its memory against what it was when warm."""

    model: Path
    found: dict[str, int] = field(default_factory=dict)

    def run(self, broken: Path, tiny: Path, mixture: Path) -> dict[str, int]:
        from layerlight.engine import loading, progress
        from layerlight.engine.engine import TorchEngine
        from layerlight.engine.returning import give_back

        progress.TELLING_INTERVAL = 0.0
        loading.RELEASE_EVERY = SHARD // 2
        self.engine = TorchEngine()
        self._load(tiny, "float32")
        self._ask()
        self._unload()
        give_back()
        self.warm = self._memory().anonymous or 0
        self._cast()
        self._merged(mixture)
        self._views()
        self._cancelled("float32", 1)
        self._cancelled("float32", 8)
        self._cancelled("bfloat16", 1)
        self._failed(broken)
        return self.found

    def _cast(self) -> None:
        from layerlight.engine.device_memory import reset_peaks

        reset_peaks()
        before = self._memory().resident or 0
        self.found["cast rests"] = self._load(self.model, "float32")
        self.found["cast peak"] = (self._memory().peak or 0) - before
        self._ask()
        self.found["cast returned"] = self._unload()
        self.found["cast left"] = self._over()

    def _merged(self, mixture: Path) -> None:
        from layerlight.engine.device_memory import reset_peaks

        reset_peaks()
        before = self._memory().resident or 0
        self.found["merged rests"] = self._load(mixture, "float32")
        self.found["merged peak"] = (self._memory().peak or 0) - before
        self._unload()

    def _views(self) -> None:
        from layerlight.engine.file_pages import FileViews, weight_files

        self._load(self.model, "bfloat16")
        self.found["views held"] = self._over()
        self.found["views"] = len(FileViews().of(weight_files(self.model)))
        self._unload()

    def _cancelled(self, dtype: str, times: int) -> None:
        from layerlight.core.errors import Stopped
        from layerlight.core.messages import LoadProgressed
        from layerlight.engine.file_pages import FileViews, weight_files
        from tests.engine.events import Events
        from tests.engine.tiny_models import request_for

        most = 0
        for _ in range(times):
            events = Events()

            def at_half(told: LoadProgressed, events: Events = events) -> None:
                nonlocal most
                most = max(most, self._over())
                if told.bytes_done >= told.bytes_total // 2:
                    events.stop.set()

            request = request_for(self.model, dtype=dtype)
            try:
                self.engine.load(request, events.when(LoadProgressed, at_half).job())
            except Stopped as stopped:
                # measured here, where the error is still held, as a window that shows it would
                self.found[f"{dtype} cancelled {times}"] = self._over()
                self.found[f"{dtype} context"] = int(stopped.__context__ is not None)
        self.found[f"{dtype} most"] = most
        self.found[f"{dtype} views"] = len(FileViews().of(weight_files(self.model)))

    def _failed(self, broken: Path) -> None:
        from layerlight.core.errors import BrokenModel

        try:
            self._load(broken, "float32")
        except BrokenModel:
            self.found["failed"] = self._over()

    def _load(self, folder: Path, dtype: str) -> int:
        from layerlight.core.messages import ModelLoaded
        from tests.engine.events import Events
        from tests.engine.tiny_models import request_for

        events = Events()
        self.engine.load(request_for(folder, dtype=dtype), events.job())
        placed = [each for each in events.last(ModelLoaded).placed if each.size]
        if folder == self.model and {each.mapped for each in placed} != {dtype == "bfloat16"}:
            raise SystemExit(f"mapped is not told as it is: {placed}")
        return sum(each.size for each in placed)

    def _ask(self) -> None:
        from tests.engine.events import ask

        ask(self.engine)

    def _unload(self) -> int:
        from layerlight.core.messages import ModelUnloaded
        from tests.engine.events import Events

        events = Events()
        self.engine.unload(events.job())
        return dict(events.last(ModelUnloaded).returned).get("cpu", 0)

    def _memory(self):  # type: ignore[no-untyped-def]
        from layerlight.engine.device_memory import process_memory

        return process_memory()

    def _over(self) -> int:
        return (self._memory().anonymous or 0) - self.warm


if __name__ == "__main__":
    keep_heap_tight()
    set_environment()
    sys.stdout.write(json.dumps(Probe(Path(sys.argv[1])).run(*map(Path, sys.argv[2:]))) + "\n")
