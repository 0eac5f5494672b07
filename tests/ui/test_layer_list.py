"""The table twin of the map: the same facts and the same actions, for the keyboard and for screen readers."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QApplication

from layerlight.core.messages import RunFinished, TextRequest
from layerlight.ui.layer_list import LayerList
from layerlight.ui.layer_table import COLUMNS, LayerTable, rows_of
from tests import fakes
from tests.ui.conftest import Bench, MakeBench

TITLES = [column.title for column in COLUMNS]


@pytest.fixture
def tabled(make_bench: MakeBench) -> Bench:
    """40 layers on a card, in RAM and on the disk, shown as a table that has the focus."""
    bench = make_bench(fakes.laptop(), fakes.fourteen_billion())
    bench.open()
    bench.qtbot.waitUntil(lambda: bench.desk.working)
    bench.window.activateWindow()
    bench.desk.menus.actions["show_table"].trigger()
    return bench


def list_of(bench: Bench) -> LayerList:
    return bench.desk.work.table


def cell(bench: Bench, row: int, title: str) -> str:
    model = list_of(bench).view.model()
    return str(model.index(row, TITLES.index(title)).data())


def column_of(bench: Bench, title: str) -> list[str]:
    return [cell(bench, row, title) for row in range(list_of(bench).view.model().rowCount())]


def test_it_says_of_every_layer_what_the_map_says(tabled: Bench) -> None:
    lanes = tabled.session.lanes()
    plan = tabled.session.state.plan
    assert plan is not None
    titles = {lane.place: lane.title for lane in lanes}
    assert column_of(tabled, "Module") == [layer.name for layer in plan.model.layers]
    assert column_of(tabled, "Rests on") == [titles[plan.placement(x.name).rests_on] for x in plan.model.layers]
    assert column_of(tabled, "Runs on") == [titles[plan.placement(x.name).runs_on] for x in plan.model.layers]
    assert column_of(tabled, "Why it is there") == [plan.placement(x.name).reason for x in plan.model.layers]
    assert set(column_of(tabled, "State")) == {"planned"}
    shares = [row.share for row in list_of(tabled).table.rows]
    assert sum(shares) == pytest.approx(1.0)


def test_it_is_a_sound_model(tabled: Bench) -> None:
    table = LayerTable()
    tester = QAbstractItemModelTester(table, QAbstractItemModelTester.FailureReportingMode.Fatal)
    session = tabled.session
    table.show_rows(rows_of(session.lanes(), session.state))
    table.show_rows(rows_of(session.lanes(), session.state)[:3])
    table.show_rows(())
    assert table.rowCount() == 0
    tester.deleteLater()


@pytest.mark.parametrize("title", ["Weights", "A token", "Share", "Layer", "KV cache"])
def test_figures_are_sorted_by_value_not_by_their_words(tabled: Bench, title: str) -> None:
    number = TITLES.index(title)
    view = list_of(tabled).view
    view.sortByColumn(number, Qt.SortOrder.DescendingOrder)
    rows = {row.unit.key: row for row in list_of(tabled).table.rows}
    values = [COLUMNS[number].value(rows[name]) for name in column_of(tabled, "Module")]
    assert values == sorted(values, reverse=True)  # type: ignore[type-var]
    assert len(set(values)) > 1


@pytest.mark.parametrize(
    ("words", "title", "beginnings"),
    [("DISK", "Rests on", ("Disk",)), ("layer 7", "Layer", ("layer 7",)), ("layer 3, disk", "Layer", ("layer 3",))],
)
def test_words_narrow_it(tabled: Bench, words: str, title: str, beginnings: tuple[str, ...]) -> None:
    """Each term between commas begins a word somewhere in the row."""
    list_of(tabled).choose(("model.layers.7", "model.layers.30", "model.layers.31"))
    tabled.qtbot.keyClick(list_of(tabled).view, Qt.Key.Key_D)
    whole = list_of(tabled).view.model().rowCount()
    list_of(tabled).filter.setText("")
    tabled.qtbot.keyClicks(list_of(tabled).filter, words)
    shown = column_of(tabled, title)
    assert 0 < len(shown) < whole
    assert all(each.startswith(beginnings) for each in shown)
    list_of(tabled).filter.setText("no such thing")
    assert list_of(tabled).view.model().rowCount() == 0
    list_of(tabled).filter.clear()
    assert list_of(tabled).view.model().rowCount() == whole


def test_what_is_chosen_moves_by_a_letter_and_is_set_free_again(tabled: Bench) -> None:
    names = ("model.layers.4", "model.layers.5")
    list_of(tabled).choose(names)
    assert list_of(tabled).chosen == names
    tabled.qtbot.keyClick(list_of(tabled).view, Qt.Key.Key_D)
    assert tabled.session.planning.pins == tuple((name, "disk") for name in names)
    row = column_of(tabled, "Module").index(names[0])
    assert cell(tabled, row, "Rests on") == "Disk"
    assert list_of(tabled).chosen == names, "what was chosen stays chosen"
    tabled.qtbot.keyClick(list_of(tabled).view, Qt.Key.Key_Delete)
    assert tabled.session.planning.pins == ()


def test_the_keyboard_alone_goes_from_the_menu_bar_to_a_moved_layer(tabled: Bench) -> None:
    view = list_of(tabled).view
    tabled.qtbot.waitUntil(view.hasFocus)
    tabled.qtbot.keyClick(view, Qt.Key.Key_Home, Qt.KeyboardModifier.ControlModifier)
    for _ in range(6):
        tabled.qtbot.keyClick(view, Qt.Key.Key_Down)
    tabled.qtbot.keyClick(view, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    chosen = list_of(tabled).chosen
    assert len(chosen) == 2
    tabled.qtbot.keyClick(view, Qt.Key.Key_R)
    assert tabled.session.planning.pins == tuple((name, "cpu") for name in chosen)


def test_its_menu_is_the_maps(tabled: Bench) -> None:
    name = "model.layers.9"
    list_of(tabled).choose((name,))
    mine = [action.text() for action in list_of(tabled).menu().actions()]
    tabled.desk.work.map.focus_block(name)
    assert mine == [action.text() for action in tabled.desk.work.map.move_menu().actions()]
    move = next(each for each in list_of(tabled).menu().actions() if each.text().startswith("Move to RAM"))
    move.trigger()
    assert tabled.session.planning.pins == ((name, "cpu"),)


def test_what_is_chosen_goes_with_the_view(tabled: Bench) -> None:
    work, actions = tabled.desk.work, tabled.desk.menus.actions
    names = tuple(f"model.layers.{number}" for number in (11, 12, 13))
    list_of(tabled).choose(names)
    actions["show_map"].trigger()
    assert (work.view, work.map.chosen) == ("map", names)
    work.map.focus_block("model.layers.20")
    actions["show_table"].trigger()
    assert (work.view, work.table.chosen) == ("table", ("model.layers.20",))


def test_it_is_copied_as_lines_with_tabs(tabled: Bench) -> None:
    list_of(tabled).choose(("model.layers.4",))
    tabled.qtbot.keyClick(list_of(tabled).view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    lines = QGuiApplication.clipboard().text().split("\n")
    assert lines[0].split("\t") == TITLES
    assert len(lines) == 2
    assert lines[1].split("\t")[TITLES.index("Module")] == "model.layers.4"
    list_of(tabled).view.clearSelection()
    list_of(tabled).copy_button.click()
    assert len(QGuiApplication.clipboard().text().split("\n")) == 1 + len(list_of(tabled).table.rows)


def test_every_cell_is_spoken_with_its_title(tabled: Bench) -> None:
    model = list_of(tabled).view.model()
    for number, title in enumerate(TITLES):
        spoken = model.index(3, number).data(Qt.ItemDataRole.AccessibleTextRole)
        assert spoken.startswith(f"{title}: ")


def test_it_says_what_is_predicted_and_what_was_measured(loaded: Bench) -> None:
    loaded.qtbot.waitUntil(lambda: loaded.desk.working)
    loaded.desk.menus.actions["show_table"].trigger()
    assert set(column_of(loaded, "Time is")) == {"predicted"}
    assert set(column_of(loaded, "State")) == {"resting"}
    assert loaded.session.ask("Where?")
    request = loaded.engine.of_kind(TextRequest)[-1]
    assert isinstance(request, TextRequest)
    loaded.engine.tell(fakes.layers_ran(loaded.session.state.places, 1))
    loaded.engine.tell(RunFinished(fakes.result_of(request, ["Here."])))
    assert "measured" in column_of(loaded, "Time is")


def test_it_follows_only_while_it_is_seen(loaded: Bench) -> None:
    loaded.qtbot.waitUntil(lambda: loaded.desk.working)
    assert list_of(loaded).table.rowCount() == 0, "nobody sees it: it costs nothing"
    loaded.desk.menus.actions["show_table"].trigger()
    QApplication.processEvents()
    assert list_of(loaded).table.rowCount() == len(loaded.model.layers)
