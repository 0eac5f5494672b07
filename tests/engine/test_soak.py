"""Many answers in one engine, stopped and cut short, between loads of other plans: all right, and nothing leaks."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from layerlight.core.device import Machine
from layerlight.core.errors import PromptTooLong, Stopped
from layerlight.core.messages import LayerRan, LoadProgressed, LoadRequest, RunFinished, TextProduced
from layerlight.engine import progress
from layerlight.engine.device_memory import process_memory
from layerlight.engine.engine import TorchEngine
from layerlight.engine.loading import LoadedModel
from layerlight.engine.returning import give_back
from layerlight.engine.ring.layer_ring import LayerRing
from layerlight.engine.ring.page_buffer import PageBuffer
from layerlight.engine.ring.source_file import SourceFile
from layerlight.engine.streamed_layers import StreamedLayers
from tests.engine.events import Events, text_request
from tests.engine.tiny_models import machine, plain_tokens, request_for, write_model

MIB = 2**20
SLACK = 3 * MIB
HELD = (PreTrainedModel, LoadedModel, Cache, StreamedLayers, LayerRing, PageBuffer, SourceFile)
"""Of what belongs to a loaded model, nothing lives on after it."""
PROMPTS = ("x" * 20, "the cat sat on the mat and the dog sat on the log, then the cat sat", "abc" * 30, "Where? " * 12)
LONGEST = 24
SIZES: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 384, "head_dim": 32}
"""Large enough that a single set of weights left behind is more than the slack."""
Layout = Callable[[int, int], str]
RAM_AND_DISK: tuple[Layout, ...] = (
    lambda index, count: "cpu",
    lambda index, count: "disk" if index % 2 else "cpu",
    lambda index, count: "disk",
)
WITH_A_DEVICE: tuple[Layout, ...] = (
    lambda index, count: "sim:0",
    lambda index, count: ("sim:0", "cpu", "disk")[index % 3],
    lambda index, count: "cpu" if index else "sim:0",
)


@dataclass(frozen=True, slots=True)
class Footing:
    """What the process holds after an unload: bytes of its own, and how many of each thing."""

    anonymous: int
    threads: int
    files: int
    held: int


@dataclass
class Soak:
    """One warm engine, the models it may load, and what each prompt is answered with."""

    engine: TorchEngine
    folder: Path
    layouts: tuple[Layout, ...]
    on: Machine
    chance: random.Random = field(default_factory=lambda: random.Random(11))
    tokens: int = 0
    stopped: int = 0

    def __post_init__(self) -> None:
        self.expected = {prompt: plain_tokens(self.folder, prompt, "float32", LONGEST) for prompt in PROMPTS}

    def block(self, answers: int) -> Footing:
        """Every plan once, in any order, with limits of any kind, some cancelled first; then all of it goes."""
        for layout in self.chance.sample(self.layouts, len(self.layouts)):
            load = replace(
                request_for(self.folder, layout, on=self.on, context=self.chance.choice((100, 256))),
                prefill_chunk=self.chance.choice((7, 512)),
            )
            if self.chance.random() < 0.3:
                self._cancel(load)
            self.engine.load(load, Events().job())
            for _ in range(answers):
                self._answer(load.context)
            with pytest.raises(PromptTooLong):
                self.engine.generate(text_request("x" * 300, 5), Events().job())
        self.engine.unload(Events().job())
        return self._footing()

    def _answer(self, context: int) -> None:
        """In full, to the context's end, stopped after some tokens, or inside a pass; right as far as it goes."""
        prompt = self.chance.choice(PROMPTS)
        events, after = Events(), self.chance.randint(1, LONGEST)
        way = self.chance.choice(("in full", "after tokens", "inside a pass"))

        def stop(_: object) -> None:
            nonlocal after
            after -= 1
            if after <= 0:
                events.stop.set()

        if way != "in full":
            events.when(TextProduced if way == "after tokens" else LayerRan, stop)
        count, drafted = self.chance.randint(1, LONGEST), self.chance.choice((0, 0, 4))
        self.engine.generate(text_request(prompt, count, prompt_lookup=drafted), events.job())
        result = events.last(RunFinished).result
        assert list(result.tokens) == self.expected[prompt][: len(result.tokens)]
        assert result.ended == "stopped" or len(result.tokens) == min(count, context - len(prompt))
        self.tokens += len(result.tokens)
        self.stopped += result.ended == "stopped"

    def _cancel(self, load: LoadRequest) -> None:
        events = Events()
        events.when(LoadProgressed, lambda told: events.stop.set() if told.layers_done > 1 else None)
        with pytest.raises(Stopped):
            self.engine.load(load, events.job())

    def _footing(self) -> Footing:
        give_back(("cpu", *(device.id for device in self.on.devices if device.kind == "sim")))
        return Footing(
            process_memory().anonymous or 0,
            threading.active_count(),
            len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0,
            sum(issubclass(type(each), HELD) for each in gc.get_objects()),
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that never ends by itself."""

    def endless(model: PreTrainedModel) -> None:
        model.get_output_embeddings().weight.data[:2] = 0.0

    return write_model(tmp_path_factory.mktemp("soak") / "model", "tied", change=endless, **SIZES)


def _hold(soak: Soak, monkeypatch: pytest.MonkeyPatch, warming: int, blocks: int, answers: int) -> None:
    """Once warm, every block leaves what the one before it left."""
    monkeypatch.setattr(progress, "TELLING_INTERVAL", 0.0)
    monkeypatch.setattr("layerlight.engine.watching.SNAPSHOT_INTERVAL", 0.001)
    warm = [soak.block(answers) for _ in range(warming)]
    later = [soak.block(answers) for _ in range(blocks)]
    assert {each.threads for each in later} == {warm[-1].threads}
    assert {each.files for each in later} == {warm[-1].files}
    assert {each.held for each in later} == {warm[-1].held}
    if warm[-1].anonymous:
        grown = [each.anonymous - max(one.anonymous for one in warm) for each in later]
        assert max(grown) < SLACK, grown
    assert soak.stopped > blocks


def test_answers_stops_and_reloads_leave_nothing(
    engine: TorchEngine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RAM, half and all on disk: memory is flat, and no thread, file, buffer, cache or model stays."""
    soak = Soak(engine, folder, RAM_AND_DISK, machine())
    _hold(soak, monkeypatch, warming=1, blocks=3, answers=5)


@pytest.mark.simulated
def test_the_same_with_a_device(
    engine: TorchEngine,
    folder: Path,
    simulated: Callable[..., ModuleType],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All on it, carried to it from RAM, and from disk: its memory is given back to the last byte."""
    sim = simulated([64 * MIB])
    soak = Soak(engine, folder, WITH_A_DEVICE, machine("sim:0"))
    _hold(soak, monkeypatch, warming=1, blocks=2, answers=2)
    assert sim.memory_allocated(0) == 0
