"""The map as a widget: what it repaints, what runs, what keys and mouse reach."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor, QImage

from layerlight.core.messages import LayerPlaced, LayerRan, ModelLoaded, PromptCounted, RunFinished, TextRequest
from layerlight.ui.layer_map import LayerMap
from layerlight.ui.palette import theme_of
from tests import fakes
from tests.core.models import GIB
from tests.ui.conftest import Bench, MakeBench


def map_of(bench: Bench) -> LayerMap:
    return bench.desk.work.map


def shown(widget: LayerMap) -> QImage:
    return widget.grab().toImage()


def colour_at(widget: LayerMap, layer: str, dx: float = 0.1) -> QColor:
    slot = widget.arranged.slot_of(layer)
    assert slot is not None
    image = shown(widget)
    ratio = image.devicePixelRatio()
    at = QPoint(round(slot.rect.left() + slot.rect.width() * dx), round(slot.rect.center().y()))
    return image.pixelColor(at * ratio)


def test_planned_is_an_outline_and_resting_is_solid(opened: Bench) -> None:
    theme = theme_of(map_of(opened))
    before = colour_at(map_of(opened), "model.layers.1")
    opened.load()
    after = colour_at(map_of(opened), "model.layers.1")
    assert after == QColor(theme.gpu.fill)
    assert before != after


def test_what_runs_is_lit_and_only_that(loaded: Bench) -> None:
    loaded.session.ask("Where?")
    placed = loaded.session.state.places
    theme = theme_of(map_of(loaded))
    loaded.engine.tell(PromptCounted(9, 256, 247), fakes.layers_ran(placed, 2))
    lit = placed[2].layer
    assert map_of(loaded).lit == lit
    assert colour_at(map_of(loaded), lit, 0.6) == QColor(theme.light)
    loaded.engine.tell(fakes.layers_ran(placed, 3))
    assert map_of(loaded).lit == placed[3].layer
    assert colour_at(map_of(loaded), lit, 0.6) != QColor(theme.light)
    request = loaded.engine.sent[-1]
    assert isinstance(request, TextRequest)
    loaded.engine.tell(RunFinished(fakes.result_of(request, ("Paris",))))
    assert map_of(loaded).lit is None


def test_a_carried_layer_is_lit_where_it_runs(make_bench: MakeBench) -> None:
    bench = make_bench(fakes.laptop(), fakes.fourteen_billion())
    bench.open()
    bench.load()
    bench.session.ask("Slow?")
    placed = bench.session.state.places
    index = next(i for i, each in enumerate(placed) if each.rests_on == "cpu" and each.runs_on == "cuda:0")
    bench.engine.tell(PromptCounted(9, 4096, 4087), fakes.layers_ran(placed, index))
    theme = theme_of(map_of(bench))
    berth = next(slot for slot in map_of(bench).arranged.slots if slot.unit and slot.unit.key == "berth")
    assert map_of(bench).arranged.lanes[berth.lane].place == "cuda:0"
    image = shown(map_of(bench))
    at = QPoint(round(berth.rect.right() - 12), round(berth.rect.center().y()))
    assert image.pixelColor(at * image.devicePixelRatio()) == QColor(theme.light)


def test_a_block_that_arrives_is_painted_without_redrawing_the_rest(
    opened: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only dirty blocks are painted when a layer has been placed, and the picture equals a full one."""
    opened.start_load(0.0)
    widget = map_of(opened)
    shown(widget)
    whole: list[float] = []
    draw = LayerMap._draw_still

    def counted(self: LayerMap, ratio: float) -> object:
        whole.append(ratio)
        return draw(self, ratio)

    monkeypatch.setattr(LayerMap, "_draw_still", counted)
    request = opened.engine.last_load
    assert request is not None
    for placement in request.placements[:5]:
        opened.engine.tell(LayerPlaced(fakes.placed(placement)))
        shown(widget)
    assert whole == []
    repaired = shown(widget)
    widget._rearrange()
    assert shown(widget) == repaired


def test_arrow_keys_walk_the_sweep_and_the_card_tells(loaded: Bench) -> None:
    widget = map_of(loaded)
    widget.setFocus(Qt.FocusReason.TabFocusReason)
    loaded.qtbot.keyClick(widget, Qt.Key.Key_Home)
    said = [widget.accessibleDescription()]
    for _ in range(3):
        loaded.qtbot.keyClick(widget, Qt.Key.Key_Down)
        said.append(widget.accessibleDescription())
    assert [words.split(".")[0] for words in said] == ["Embedding", "Layer 0", "Layer 1", "Layer 2"]
    assert "Rests on cuda:0 (measured)" in said[1]
    assert widget._card.isVisible()
    loaded.qtbot.keyClick(widget, Qt.Key.Key_Escape)
    assert not widget._card.isVisible()


def test_left_and_right_move_between_lanes(make_bench: MakeBench) -> None:
    bench = make_bench(fakes.laptop(), fakes.fourteen_billion())
    bench.open()
    widget = map_of(bench)
    widget.focus_block("model.layers.2")
    places = []
    for key in (Qt.Key.Key_Right, Qt.Key.Key_Right, Qt.Key.Key_Left):
        bench.qtbot.keyClick(widget, key)
        slot = widget._focus_slot()
        assert slot is not None
        places.append(widget.arranged.lanes[slot.lane].place)
    assert places == ["cpu", "disk", "cpu"]


def test_the_mouse_shows_what_it_is_over(loaded: Bench) -> None:
    widget = map_of(loaded)
    slot = widget.arranged.slot_of("model.layers.2")
    assert slot is not None
    with loaded.qtbot.waitSignal(widget.focused) as told:
        loaded.qtbot.mouseMove(widget, slot.rect.center().toPoint())
    assert told.args == ["model.layers.2"]


@pytest.mark.parametrize("size", [(360, 300), (900, 500), (1800, 1200)])
def test_it_paints_at_any_size(loaded: Bench, size: tuple[int, int]) -> None:
    widget = map_of(loaded)
    widget.resize(*size)
    assert not shown(widget).isNull()


def test_a_load_of_another_shape_redraws_everything(loaded: Bench) -> None:
    """Measured places that differ from the plan move their blocks."""
    request = loaded.engine.last_load
    assert request is not None
    moved = tuple(fakes.placed(each) for each in request.placements)
    from dataclasses import replace

    moved = (replace(moved[0], rests_on="cpu", runs_on="cpu"), *moved[1:])
    loaded.engine.tell(ModelLoaded(request.folder, 1.0, moved, ()))
    slot = map_of(loaded).arranged.slot_of(moved[0].layer)
    assert slot is not None
    assert map_of(loaded).arranged.lanes[slot.lane].place == "cpu"


def test_a_hidden_times_update_waits_for_eyes(loaded: Bench) -> None:
    """Snapshots thirty times a second change the light, not the written times."""
    loaded.session.ask("Fast?")
    placed = loaded.session.state.places
    loaded.engine.tell(PromptCounted(9, 256, 247))
    arranged = map_of(loaded).arranged
    for passes in range(5):
        loaded.engine.tell(fakes.layers_ran(placed, 1, passes + 1))
    assert map_of(loaded).arranged is arranged
    assert isinstance(fakes.layers_ran(placed, 1), LayerRan)


@pytest.mark.parametrize("free", [2, 6, 13])
def test_other_programs_memory_is_repainted_alone(opened: Bench, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """It changes all the time: only its lane's head and foot are painted, and the picture equals a full one."""
    widget = map_of(opened)
    opened.engine.tell(fakes.measured(opened.engine.machine, {"cpu": 9 * GIB}))
    shown(widget)
    whole: list[float] = []
    draw = LayerMap._draw_still
    monkeypatch.setattr(LayerMap, "_draw_still", lambda self, ratio: whole.append(ratio) or draw(self, ratio))
    opened.engine.tell(fakes.measured(opened.engine.machine, {"cpu": free * GIB}))
    repaired = shown(widget)
    assert whole == []
    widget._rearrange()
    assert shown(widget) == repaired
