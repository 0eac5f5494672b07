"""The map's heat: blocks shaded by time or by bytes moved, told apart by lightness alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor

from layerlight.ui.controls import Segments
from layerlight.ui.layer_table import rows_of
from layerlight.ui.map_heat import MOVED, PLACES, SHADES, TIME, heat_of, heat_words, shade
from layerlight.ui.palette import DARK, LIGHT, Theme
from tests import fakes
from tests.ui.conftest import Bench, MakeBench


@pytest.fixture
def large(make_bench: MakeBench) -> Bench:
    """40 layers on a card, in RAM and on a disk that is quick enough for RAM's to be seen beside it."""
    bench = make_bench(replace(fakes.laptop(), bandwidths=(("disk-ring", 2e9),)), fakes.fourteen_billion())
    bench.open()
    bench.qtbot.waitUntil(lambda: bench.desk.working)
    return bench


def test_the_slowest_layer_is_darkest_and_order_is_kept(large: Bench) -> None:
    rows = rows_of(large.session.lanes(), large.session.state)
    heat = heat_of(rows, TIME)
    assert heat is not None
    assert max(heat.shares.values()) == 1.0
    by_time = sorted(rows, key=lambda row: row.unit.seconds)
    shares = [heat.share(row.unit.key) for row in by_time]
    assert shares == sorted(shares)  # type: ignore[type-var]
    assert len(set(shares)) > 2
    slowest = by_time[-1]
    assert slowest.rests == "Disk"


def test_only_what_is_moved_is_dark_in_bytes_moved(large: Bench) -> None:
    rows = rows_of(large.session.lanes(), large.session.state)
    heat = heat_of(rows, MOVED)
    assert heat is not None
    for row in rows:
        assert (heat.share(row.unit.key) == 0) == (row.moved == 0)
    assert any(row.moved for row in rows)
    assert heat_of(rows, PLACES) is None


@pytest.mark.parametrize("rows", [(), None])
def test_nothing_that_takes_no_time_is_divided_by(large: Bench, rows: tuple[()] | None) -> None:
    heat = heat_of((), TIME) if rows == () else heat_of(rows_of((), large.session.state), MOVED)
    assert heat is not None
    assert heat.most == "nothing"


def luminance(colour: QColor | str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in QColor(colour).getRgbF()[:3]
    ]  # type: ignore[index]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_words_are_readable_on_every_shade(theme: Theme) -> None:
    shades = [luminance(shade(step / SHADES, theme)) for step in range(SHADES + 1)]
    assert shades in (sorted(shades), sorted(shades, reverse=True))
    for step, ground in enumerate(shades):
        words = luminance(heat_words(step / SHADES, theme))
        contrast = (max(words, ground) + 0.05) / (min(words, ground) + 0.05)
        assert contrast >= 4.5, (step, contrast)


@pytest.mark.parametrize("mode", [TIME, MOVED])
def test_it_is_chosen_by_mouse_and_by_menu(large: Bench, mode: str) -> None:
    work = large.desk.work
    assert work.map.heat is None
    segments = work.heat
    assert isinstance(segments, Segments)
    large.qtbot.mouseClick(segments.button(mode), Qt.MouseButton.LeftButton)
    assert work.map.heat is not None
    assert work.map.heat.mode == mode
    large.desk.menus.actions["heat_places"].trigger()
    assert (work.map.heat, segments.current()) == (None, PLACES)
    large.desk.menus.actions["show_table"].trigger()
    large.desk.menus.actions[f"heat_{mode}"].trigger()
    assert (work.view, segments.current()) == ("map", mode)


def test_it_follows_the_plan(large: Bench) -> None:
    work = large.desk.work
    work.show_heat(TIME)
    before = work.map.heat
    large.session.pin(("model.layers.0",), "disk")
    assert work.map.heat != before
    assert work.map.heat is not None
    assert work.map.heat.share("model.layers.0") == 1.0


def test_no_two_actions_share_a_shortcut(large: Bench) -> None:
    keys = [key.toString() for each in large.desk.menus.actions.values() for key in each.shortcuts()]
    assert sorted(keys) == sorted(set(keys))
