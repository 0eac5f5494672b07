"""An engine process without torch: speaks the JSON lines and misbehaves on request (`python fake_engine.py MODE`)."""

from __future__ import annotations

import os
import sys
import threading
import time

from layerlight.core.device import Device, Machine
from layerlight.core.messages import (
    DevicesSurveyed,
    EngineStarted,
    EngineWarmed,
    Event,
    Failed,
    Failure,
    LoadProgressed,
    LoadRequest,
    LoadStarted,
    MemoryMeasured,
    ModelLoaded,
    PlacedLayer,
    PromptCounted,
    QuitRequest,
    RunFinished,
    RunResult,
    StopRequest,
    SurveyRequest,
    TextProduced,
    TextRequest,
    decode_request,
    encode,
)

MACHINE = Machine((Device("cpu", "cpu", "RAM", 2**34, 2**33), Device("disk", "disk", "Disk", 2**40, 2**39)))
MODE = sys.argv[1] if len(sys.argv) > 1 else "good"
stop = threading.Event()


def tell(event: Event) -> None:
    sys.stdout.buffer.write(encode(event))
    sys.stdout.buffer.flush()


def load(request: LoadRequest) -> None:
    """Slow on purpose: a minute, unless it is stopped; `deaf` never hears the stop."""
    total = sum(each.size for each in request.placements)
    tell(LoadStarted(request.folder, total, len(request.placements)))
    if MODE in ("slow", "deaf"):
        for step in range(600):
            tell(LoadProgressed("file 1 of 1", total * step // 600, total, 0, len(request.placements)))
            time.sleep(0.1)
            if stop.is_set() and MODE == "slow":
                tell(Failed(Failure("Stopped", "Stopped at your request.", "", "Stopped"), "LoadRequest"))
                return
    placed = tuple(PlacedLayer(e.layer, e.rests_on, e.runs_on, e.size, e.dtype) for e in request.placements)
    tell(ModelLoaded(request.folder, 0.1, placed, ()))


def generate(request: TextRequest) -> None:
    tell(PromptCounted(10, 4096, 4086))
    text = ""
    for n in range(5000):
        piece = f"word{n} "
        text += piece
        tell(TextProduced(piece, (n,)))
        if stop.wait(0.001):
            break
    tell(RunFinished(RunResult(text, tuple(range(n)), 10, request.seed, "stopped", 1.0, 0.1, 100.0)))


def main() -> None:
    if MODE == "dies":
        sys.stderr.write("RuntimeError: no good reason\n")
        sys.exit(3)
    tell(EngineStarted(os.getpid()))
    if MODE == "garbage":
        sys.stdout.buffer.write(b'Loading weights: 100%\n\xff\xfe\n{"is": "Nothing"}\n')
        sys.stdout.buffer.flush()
    tell(EngineWarmed((("torch", "none"),), 0.1))
    for line in sys.stdin.buffer:
        match request := decode_request(line):
            case SurveyRequest():
                tell(DevicesSurveyed(MACHINE))
            case LoadRequest():
                stop.clear()
                threading.Thread(target=load, args=(request,), daemon=True).start()
            case TextRequest():
                stop.clear()
                threading.Thread(target=generate, args=(request,), daemon=True).start()
            case StopRequest():
                stop.set()
            case QuitRequest() if MODE != "stays":
                os._exit(0)
            case _:
                tell(MemoryMeasured(()))
    if MODE == "stays":
        time.sleep(60)
    os._exit(0)


if __name__ == "__main__":
    main()
