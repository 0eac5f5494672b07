"""The cards tell what the machine does beside the model: who took memory, how busy it is, and the last minutes."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from layerlight.core.device import Machine
from layerlight.core.machines.machine_files import read_machine_file
from layerlight.core.machines.nvidia_cards import Card
from layerlight.core.machines.sensors import Holder, Readings
from layerlight.core.messages import PlaceMemory
from layerlight.core.state import State
from layerlight.ui.machine_watch import KEPT, STUCK, MachineWatch, Sample
from layerlight.ui.memory_plot import LEAST, MemoryPlot
from tests import fakes
from tests.core.models import GIB, MIB
from tests.ui.conftest import Bench


class Watched:
    """A watch over a scripted machine."""

    def __init__(self, qtbot: QtBot, machine: Machine) -> None:
        self._qtbot = qtbot
        self.state = State(machine=machine)
        self.readings, self.cards = Readings(), ()
        self.asked: list[bool] = []
        self.watch = MachineWatch(lambda: self.state, self._read, lambda: self.cards)

    def _read(self, largest: bool) -> Readings:
        self.asked.append(largest)
        return self.readings if largest else replace(self.readings, largest=None)

    def look(self, *memory: PlaceMemory) -> None:
        self.state = replace(self.state, memory=memory)
        before = len(self.asked)
        with self._qtbot.waitSignals([self.watch.seen] * (2 if self.cards else 1)):
            self.watch.look()
        assert len(self.asked) == before + 1
        thread = self.watch._looking
        assert thread is not None
        thread.join(5)


CARD = "RTX 4060 Laptop"


@pytest.mark.parametrize("place", ["cuda:0", "cpu"])
@pytest.mark.parametrize("known", [True, False], ids=["by whom", "nobody knows by whom"])
def test_memory_that_another_program_took_is_told_with_who_holds_most(qtbot: QtBot, place: str, known: bool) -> None:
    """B09: the cause has a name. What the engine took itself is no other program's."""
    seen = Watched(qtbot, fakes.laptop())
    if known:
        seen.readings = Readings(largest=Holder("browser", 4 * GIB))
        seen.cards = (Card(CARD, largest=Holder("browser", 4 * GIB)),)
    seen.look(PlaceMemory(place, 16 * GIB, 15 * GIB, 0, process=0, anonymous=0))
    seen.look(PlaceMemory(place, 16 * GIB, 8 * GIB, 0, process=7 * GIB, anonymous=7 * GIB))
    assert seen.watch.warning(place) == ""
    after = PlaceMemory(place, 16 * GIB, 5 * GIB, 0, process=7 * GIB, anonymous=7 * GIB)
    seen.look(after)
    seen.look(after)
    title = CARD if place == "cuda:0" else "RAM"
    words = f"Other programs took 3.0 GiB of {title} since this machine was looked at."
    assert seen.watch.warning(place) == words + (" browser holds 4.0 GiB." if known else "")
    assert seen.asked == [False, False, False, place == "cpu"], "every process is looked at only where it matters"
    seen.state = replace(seen.state, machine=replace(fakes.laptop(), warnings=("looked at again",)))
    seen.look(after)
    assert seen.watch.warning(place) == ""


def test_unified_memory_is_told_once_with_both_our_claims(qtbot: QtBot) -> None:
    seen = Watched(qtbot, fakes.mac())
    seen.readings = Readings(load=0.5, swap=GIB)
    seen.look(PlaceMemory("mps", 32 * GIB, 24 * GIB, 0), PlaceMemory("cpu", 32 * GIB, 24 * GIB, 0))
    ours = PlaceMemory("mps", 32 * GIB, 8 * GIB, 0, process=8 * GIB)
    seen.look(ours, PlaceMemory("cpu", 32 * GIB, 8 * GIB, 0, anonymous=8 * GIB))
    assert seen.watch.warning("mps") == ""
    assert [(each.ours, each.others) for each in seen.watch.samples("mps")] == [(0, 0.25), (0.5, 0.25)]
    assert seen.watch.facts("mps") == "CPU 50%, swap 1.0 GiB"


@pytest.mark.parametrize(
    ("swaps", "words"),
    [
        ((2 * GIB, 2 * GIB + 100 * MIB), ""),
        ((0, 1 * GIB), "Swap has grown by 1.0 GiB: RAM is short, and reading back from the disk is slow."),
        ((None, 1 * GIB), ""),
        ((GIB, None), ""),
    ],
)
def test_swap_that_grows_is_warned_of(qtbot: QtBot, swaps: tuple[int | None, ...], words: str) -> None:
    seen = Watched(qtbot, fakes.laptop())
    for swap in swaps:
        seen.readings = Readings(swap=swap)
        seen.look()
    assert seen.watch.warning("cpu") == words


@pytest.mark.parametrize(
    ("card", "words"),
    [
        (Card(CARD, 0.97, 62, 84.6), "97% busy, 62 °C, 85 W"),
        (Card(CARD), "load unknown"),
        (Card("another", 0.97, 62, 84.6), "load unknown"),
        (None, "load unknown"),
    ],
)
def test_what_a_vendor_does_not_tell_is_unknown(qtbot: QtBot, card: Card | None, words: str) -> None:
    seen = Watched(qtbot, fakes.laptop())
    seen.cards = (card,) if card is not None else ()
    seen.look()
    assert (seen.watch.facts("cuda:0"), seen.watch.facts("cpu"), seen.watch.facts("disk")) == (
        words,
        "CPU load unknown",
        "",
    )


def test_a_driver_that_hangs_stops_neither_the_window_nor_what_else_is_read(qtbot: QtBot) -> None:
    hangs, asked = threading.Event(), []

    def cards() -> tuple[Card, ...]:
        asked.append(True)
        hangs.wait(60)
        return ()

    watch = MachineWatch(lambda: State(machine=fakes.laptop()), lambda largest: Readings(load=0.5), cards)
    for _ in range(2):
        with qtbot.waitSignal(watch.seen):
            for _ in range(STUCK):
                watch.look()
    assert asked == [True]
    assert watch.facts("cpu") == "CPU 50%"
    hangs.set()


def test_only_the_last_minutes_are_kept(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("layerlight.ui.machine_watch.time.monotonic", lambda: now[0])
    seen = Watched(qtbot, fakes.laptop())
    for _ in range(5):
        seen.look(PlaceMemory("cpu", 8 * GIB, 6 * GIB, 0), PlaceMemory("disk", 8 * GIB, 6 * GIB, 0))
        now[0] += KEPT / 3
    assert [each.when for each in seen.watch.samples("cpu")] == pytest.approx(
        [1000.0 + KEPT / 3 * n for n in (1, 2, 3, 4)]
    )
    assert seen.watch.samples("disk") == ()


@pytest.mark.parametrize("ours", [0.0, 0.5])
def test_the_plot_is_to_scale(qtbot: QtBot, ours: float) -> None:
    """Ours at the bottom, others' above, the rest empty; before the first sample nothing is drawn."""
    plot = MemoryPlot("gpu")
    qtbot.addWidget(plot)
    plot.show_samples([Sample(LEAST / 2 * n, ours, 0.3) for n in (1, 2)], "gpu")
    image = plot.grab().toImage()
    empty = image.pixelColor(image.width() // 4, image.height() // 2)
    column = [image.pixelColor(image.width() * 3 // 4, y) for y in range(image.height())]
    used = sum(colour != empty for colour in column[1:-1]) / len(column[1:-1])
    assert used == pytest.approx(ours + 0.3, abs=0.13)
    assert (column[-4].saturation() > 40) == (ours > 0)
    plot.show_samples([], "gpu")
    bare = plot.grab().toImage()
    assert all(bare.pixelColor(x, 9) == empty for x in (10, 40, 60))


def test_the_cards_show_it(loaded: Bench) -> None:
    """And nothing of a machine that is elsewhere."""
    session, panel = loaded.session, loaded.desk.work.facts
    loaded.desk._clock.stop()
    watch = session.watch
    watch._take(Readings(load=0.25, swap=0), None)
    watch._take(Readings(load=0.25, swap=GIB), None)
    cards = {card.lane.place: card for card in panel.cards}
    assert "CPU 25%, swap 1.0 GiB. Swap has grown by 1.0 GiB" in cards["cpu"].accessibleName()
    plots = {place: card.findChild(MemoryPlot) for place, card in cards.items()}
    assert {place for place, plot in plots.items() if plot is not None and not plot.isHidden()} == {"cuda:0", "cpu"}
    session.plan_for(read_machine_file("desktop-rtx3090-24gb"))
    loaded.qtbot.waitUntil(lambda: not session.planning.pending)
    panel.prefer_next(True)
    assert {card.lane.place for card in panel.cards} == {"cuda:0", "cpu", "disk"}
    assert not any("CPU 25%" in card.accessibleName() or "Swap" in card.accessibleName() for card in panel.cards)
    shown = [card.findChild(MemoryPlot) for card in panel.cards]
    assert all(plot is not None and plot.isHidden() for plot in shown)
    panel.prefer_next(False)
    assert "CPU 25%" in next(card for card in panel.cards if card.lane.place == "cpu").accessibleName()
