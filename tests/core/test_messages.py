"""Every message survives its line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerlight.core.device import Budget
from layerlight.core.errors import OutOfMemory, Stopped
from layerlight.core.messages import (
    CalibrateRequest,
    CalibrationProgressed,
    ChatMessage,
    DevicesSurveyed,
    Drafts,
    Event,
    Failed,
    Failure,
    LayerActivity,
    LayerPlaced,
    LayerRan,
    LoadRequest,
    MachineCalibrated,
    ModelInspected,
    ModelLoaded,
    PlacedLayer,
    PlaceMemory,
    Planned,
    QuitRequest,
    Request,
    RunFinished,
    RunResult,
    StopRequest,
    StrategiesMapped,
    StrategiesRequest,
    SurveyRequest,
    TextProduced,
    TextRequest,
    decode_event,
    decode_request,
    encode,
)
from layerlight.core.placing import make_plan
from tests.core.models import dense, machine

PLAN = make_plan(dense(), machine(), Budget(context=128))
MEMORY = (PlaceMemory("cpu", None, 2**40, 12, peak=13, anonymous=1),)

REQUESTS: tuple[Request, ...] = (
    SurveyRequest(),
    CalibrateRequest(),
    CalibrateRequest("/models", 2.5),
    StopRequest(),
    QuitRequest(),
    StrategiesRequest(3, PLAN),
    StrategiesRequest(4, PLAN, '{"model_type": "llama"}'),
    LoadRequest("/模型 é 📦", PLAN.placements, "bfloat16", 128, quantization="nf4"),
    LoadRequest("/models/\udce9t\udce9", (), "bfloat16", 128),
    TextRequest((ChatMessage("user", "F15: half \ud83d an emoji, \udd16 and 🤖"),), seed=1),
    TextRequest((ChatMessage("user", "line\nbreak 🤖 \u2028 \x00"),), seed=2**63 - 1, temperature=0),
)
EVENTS: tuple[Event, ...] = (
    DevicesSurveyed(machine()),
    StrategiesMapped(3, (("auto", tuple(PLAN.device_map().items())),)),
    StrategiesMapped(4, trouble="accelerate knows no such model."),
    CalibrationProgressed("Memory of cuda:0", 1.5, 15.0),
    MachineCalibrated(machine(), 14.5, (("cpu", 0.1),)),
    ModelInspected(dense()),
    Planned(PLAN),
    LayerPlaced(PlacedLayer("model.layers.0", "cpu", "cpu", 3, "bfloat16", mapped=True)),
    ModelLoaded("/m", 1.5, (), MEMORY),
    LayerRan(None, (LayerActivity("a", 1, 0.25, bytes_moved=7),)),
    TextProduced("é", (1, 2)),
    RunFinished(RunResult("x", (1,), 3, 4, "length", 0.5, None, None, (("a", 0.1),), MEMORY, 2, 5)),
    RunFinished(RunResult("x", (1,), 3, 4, "length", 0.5, None, None, drafts=Drafts(5, 20, 4))),
    Failed(Failure.of(OutOfMemory("m", "h")), "LoadRequest"),
)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_requests_survive_their_line(request_: Request) -> None:
    line = encode(request_)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_request(line) == request_


@pytest.mark.parametrize("event", EVENTS, ids=lambda each: type(each).__name__)
def test_events_survive_their_line(event: Event) -> None:
    line = encode(event)
    assert line.count(b"\n") == 1
    assert decode_event(line) == event


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello\n",
        b"{}",
        b"[]",
        b"null",
        b'{"is": "Nothing", "of": {}}',
        b'{"is": "TextProduced", "of": {"text": 1}}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    for decode in (decode_event, decode_request):
        with pytest.raises(ValueError, match="not a message"):
            decode(line)


def test_a_stop_is_no_failure() -> None:
    assert Failure.of(Stopped()).stopped
    assert not Failure.of(OutOfMemory("x")).stopped


@pytest.mark.parametrize(
    ("reused", "recomputed", "words"),
    [
        (0, 0, ()),
        (1212, 0, ("1,212 of 1,240 prompt tokens were kept",)),
        (0, 73, ("memory ran out once, and 73 tokens were computed again",)),
        (9, 73, ("9 of 1,240 prompt tokens were kept", "memory ran out once, and 73 tokens were computed again")),
    ],
)
def test_a_run_says_what_was_particular_about_it(reused: int, recomputed: int, words: tuple[str, ...]) -> None:
    result = RunResult("x", (1,), 1240, 4, "length", 0.5, None, None, reused=reused, recomputed=recomputed)
    assert result.notes == words


def test_a_run_says_what_drafting_gave() -> None:
    result = RunResult("x", (1,), 10, 4, "length", 0.5, None, None, drafts=Drafts(40, 1200, 32))
    assert result.notes == ("1.8 tokens a pass, as 32 of 1,200 drafted tokens were right",)
    assert replace(result, drafts=Drafts(0, 0, 0)).notes == ()
