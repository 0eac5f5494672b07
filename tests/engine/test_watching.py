"""Which layer runs, how often and how long, without slowing it down or holding on to it."""

from __future__ import annotations

import pytest
import torch

from layerlight.core.errors import Stopped
from layerlight.core.messages import LayerRan
from layerlight.engine.streaming import Carried
from layerlight.engine.watching import LayerWatch
from tests.engine.events import Events


class Clock:
    """A time that passes only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Waits(torch.nn.Module):
    """A layer whose pass takes as long as it is told."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__()
        self._clock, self.seconds = clock, seconds
        self.inner = torch.nn.Identity()

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self._clock.now += self.seconds
        return self.inner(value)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("layerlight.engine.watching.time.perf_counter", made)
    return made


def _model(clock: Clock, *seconds: float) -> torch.nn.Sequential:
    return torch.nn.Sequential(*(Waits(clock, each) for each in seconds))


def test_each_layer_is_timed_and_decode_apart(clock: Clock) -> None:
    model, events = _model(clock, 0.5, 0.25), Events()
    watch = LayerWatch(["0", "1"], {"1": Carried(bytes=7, seconds=0.125)}, events.job())
    with watch.on(model):
        model(torch.ones(1))
        watch.decoding()
        model[0].seconds = 0.1
        model(torch.ones(1))
        model(torch.ones(1))
    first, second = watch.activity()
    assert (first.passes, second.passes) == (3, 3)
    assert (first.seconds, second.seconds) == (pytest.approx(0.7), pytest.approx(0.75))
    assert first.last_seconds == pytest.approx(0.1)
    assert dict(watch.seconds_per_layer()) == {"0": pytest.approx(0.1), "1": pytest.approx(0.25)}
    assert (second.bytes_moved, second.waited) == (0, 0.0), "counts begin with the run"


def test_a_layers_time_is_without_those_inside_it(clock: Clock) -> None:
    """Experts are a layer of their own: what both take adds up to the pass, and the one that computes is told."""
    model, events = _model(clock, 0.5, 0.25), Events()
    model[0].inner = Waits(clock, 2.0)
    watch = LayerWatch(["0", "0.inner", "1"], {}, events.job())
    running: list[str | None] = []
    model[0].inner.register_forward_hook(lambda *_: running.append(watch.running))
    with watch.on(model):
        model[1].register_forward_pre_hook(lambda *_: running.append(watch.running))
        model(torch.ones(1))
        watch.decoding()
        model(torch.ones(1))
    outer, inner, other = watch.activity()
    assert (outer.seconds, inner.seconds, other.seconds) == (
        pytest.approx(1.0), pytest.approx(4.0), pytest.approx(0.5)
    )  # fmt: skip
    assert (outer.passes, inner.passes, other.passes) == (2, 2, 2)
    assert dict(watch.seconds_per_layer())["0"] == pytest.approx(0.5)
    assert running == ["0.inner", "1"] * 2


def test_at_most_thirty_snapshots_a_second(clock: Clock) -> None:
    """At 1,000 passes a second and at two: the last snapshot has the exact totals in both."""
    for seconds, passes, most in ((0.001, 1000, 31), (0.5, 4, 4)):
        model, events = _model(clock, seconds), Events()
        watch = LayerWatch(["0"], {}, events.job())
        with watch.on(model):
            for _ in range(passes):
                model(torch.ones(1))
        watch.tell()
        told = events.of(LayerRan)
        assert len(told) <= most + 1
        assert told[0].running == "0"
        assert told[-1].running is None
        assert told[-1].activity[0].passes == passes


def test_a_stop_is_heard_at_layers_and_between_their_parts(clock: Clock) -> None:
    model, events = _model(clock, 0.1, 0.1), Events()
    watch = LayerWatch(["0", "1"], {}, events.job())
    handle = model[0].register_forward_hook(lambda *_: events.stop.set())
    with pytest.raises(Stopped), watch.on(model):
        model(torch.ones(1))
    handle.remove()
    assert [each.passes for each in watch.activity()] == [1, 0]
    events.stop.set()
    model[0].seconds = 0.0
    with pytest.raises(Stopped), watch.on(model):
        model[1].inner(torch.ones(1))


@pytest.mark.parametrize(("seconds", "watched"), [(0.01, False), (0.5, True)])
def test_parts_are_watched_while_passes_are_long(seconds: float, watched: bool, clock: Clock) -> None:
    """While the prompt is computed always; while tokens follow quickly, a look at each layer is enough."""
    model, events = _model(clock, seconds), Events()
    watch = LayerWatch(["0"], {}, events.job())
    with watch.on(model):
        model(torch.ones(1))
        assert model[0].inner._forward_pre_hooks
        watch.decoding()
        assert bool(model[0].inner._forward_pre_hooks) == watched
    assert not model[0].inner._forward_pre_hooks


def test_nothing_is_left_on_the_model(clock: Clock) -> None:
    model = _model(clock, 0.1)
    with pytest.raises(RuntimeError), LayerWatch(["0"], {}, Events().job()).on(model):
        raise RuntimeError
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_device_that_queues_is_asked_for_its_own_time(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording fake of CUDA's events: finished ones count, queued ones wait for the next look."""
    finished = {"count": 0}

    class Mark:
        made = 0

        def __init__(self) -> None:
            Mark.made += 1
            self.number = Mark.made

        def record(self) -> None:
            pass

        def query(self) -> bool:
            return self.number <= finished["count"]

        def elapsed_time(self, other: Mark) -> float:
            return 40.0

    monkeypatch.setattr("layerlight.engine.watching._device_clock", lambda module: Mark)
    model = _model(clock, 0.001)
    watch = LayerWatch(["0"], {}, Events().job())
    with watch.on(model):
        model(torch.ones(1))
        model(torch.ones(1))
        assert watch.activity()[0].passes == 0
        finished["count"] = 2
        assert (watch.activity()[0].passes, watch.activity()[0].seconds) == (1, pytest.approx(0.04))
        finished["count"] = 4
        assert watch.activity()[0].passes == 2
