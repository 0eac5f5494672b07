"""Joining events keeps every character, every layer and the order of what matters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from layerlight.core.messages import (
    Event,
    LayerPlaced,
    LayerRan,
    LoadProgressed,
    MemoryMeasured,
    PlacedLayer,
    PromptCounted,
    TextProduced,
)
from layerlight.core.state import State, apply
from layerlight.ui.batching import joined

events = st.lists(
    st.one_of(
        st.builds(lambda n: TextProduced(f"{n} ", (n,)), st.integers(0, 99)),
        st.builds(lambda n: LayerRan(f"layer {n}", ()), st.integers(0, 9)),
        st.builds(lambda n: LoadProgressed("x", n, 100, 0, 1), st.integers(0, 100)),
        st.builds(lambda n: LayerPlaced(PlacedLayer(f"layer {n}", "cpu", "cpu", 1, "float32")), st.integers(0, 9)),
        st.just(MemoryMeasured(())),
        st.just(PromptCounted(1, 2, 1)),
    ),
    max_size=30,
)


def folded(told: list[Event]) -> State:
    state = State()
    for event in told:
        state = apply(state, event)
    return state


@given(events)
def test_joined_events_lead_to_the_same_state(told: list[Event]) -> None:
    assert folded(joined(told)) == folded(told)


def test_a_burst_becomes_one_event_of_each_kind() -> None:
    burst: list[Event] = [event for n in range(500) for event in (TextProduced("a", (n,)), LayerRan(str(n), ()))]
    assert [type(event).__name__ for event in joined(burst)] == ["TextProduced", "LayerRan"]
