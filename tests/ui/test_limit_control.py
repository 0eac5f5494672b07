"""Limits: checked as typed, with the number of bytes they mean."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from layerlight.ui.limit_control import STEPS, LimitControl
from tests import fakes
from tests.core.models import GIB, MIB
from tests.ui.conftest import Bench, MakeBench


@pytest.fixture
def control(qtbot: QtBot) -> LimitControl:
    made = LimitControl("RAM", 16 * GIB, 512 * MIB)
    qtbot.addWidget(made)
    made.show()
    return made


def typed(qtbot: QtBot, control: LimitControl, words: str) -> list[object]:
    told: list[object] = []
    control.changed.connect(told.append)
    control.field.setFocus()
    control.field.selectAll()
    qtbot.keyClick(control.field, Qt.Key.Key_Delete)
    told.clear()
    qtbot.keyClicks(control.field, words)
    return told


@pytest.mark.parametrize(
    ("words", "size"),
    [("64000MiB", 64000 * MIB), ("64000", 64000), ("10G", 10 * GIB), ("10TiB", 10 * 1024 * GIB),
     ("10GB", 10 * 10**9), ("10GiB", 10 * GIB), ("1.5 GiB", 3 * GIB // 2)],
)  # fmt: skip
def test_a_size_is_taken_and_its_bytes_are_shown(qtbot: QtBot, control: LimitControl, words: str, size: int) -> None:
    """A01, A02: GB and GiB differ by 7 %, and the bytes say so."""
    told = typed(qtbot, control, words)
    assert told[-1] == size
    assert f"{size:,} bytes" in control.note


@pytest.mark.parametrize("words", ["10,5GiB", "-5GiB", "10Gb", "10Gib", "ten", "GiB", "10 PiB"])
def test_what_is_no_size_is_said_and_the_last_limit_stays(qtbot: QtBot, control: LimitControl, words: str) -> None:
    """A01, A02: refused while typing, never at the load."""
    control.show_limit(4 * GIB)
    typed(qtbot, control, words)
    assert control.field.property("wrong") == "true"
    assert words.strip() in control.note or "bits" in control.note
    held = control.limit
    qtbot.keyClick(control.field, Qt.Key.Key_Return)
    assert control.field.property("wrong") == "false"
    assert control.limit == held


def test_an_empty_field_takes_the_limit_away(qtbot: QtBot, control: LimitControl) -> None:
    control.show_limit(4 * GIB)
    told: list[object] = []
    control.changed.connect(told.append)
    control.field.setFocus()
    control.field.selectAll()
    qtbot.keyClick(control.field, Qt.Key.Key_Delete)
    assert told == [None]
    assert control.slider.value() == STEPS


def test_more_than_there_is_says_how_much_there_is(qtbot: QtBot, control: LimitControl) -> None:
    typed(qtbot, control, "64GiB")
    assert "only 16.0 GiB can be used now" in control.note


def test_the_slider_speaks_while_it_moves(qtbot: QtBot, control: LimitControl) -> None:
    told: list[object] = []
    control.changed.connect(told.append)
    for value in (300, 200, 100, 0, STEPS):
        control.slider.setValue(value)
    assert told == [round(16 * GIB * value / STEPS) for value in (300, 200, 100, 0)] + [None]


def test_arrow_keys_move_the_limit(qtbot: QtBot, control: LimitControl) -> None:
    control.slider.setFocus()
    qtbot.keyClick(control.slider, Qt.Key.Key_Left)
    assert control.limit == round(16 * GIB * (STEPS - 1) / STEPS)


def test_showing_a_limit_tells_nobody(qtbot: QtBot, control: LimitControl) -> None:
    with qtbot.assertNotEmitted(control.changed):
        control.show_limit(4 * GIB)
        control.show_room(8 * GIB, 0)
    assert control.limit == 4 * GIB


# -- in the plan panel -----------------------------------------------------------------------------------------------


def test_moving_a_limit_plans_again(opened: Bench) -> None:
    plan = opened.session.state.plan
    opened.desk.work.plan.limits["cuda:0"].slider.setValue(0)
    opened.qtbot.waitUntil(lambda: opened.session.state.plan is not plan)
    assert opened.session.state.plan is not None
    assert opened.session.state.plan.places == ("cpu",)


def test_many_moves_are_one_plan(opened: Bench) -> None:
    planned: list[object] = []
    opened.session.changed.connect(
        lambda _state, event: planned.append(event) if type(event).__name__ == "Planned" else None
    )
    for value in range(100, 0, -1):
        opened.desk.work.plan.limits["cuda:0"].slider.setValue(value)
    opened.qtbot.waitUntil(lambda: bool(planned))
    opened.qtbot.wait(30)
    assert len(planned) == 1


def test_a_shortfall_is_said_in_words(make_bench: MakeBench) -> None:
    bench = make_bench(fakes.no_card(), fakes.seventy_billion())
    bench.open()
    bench.session.set_limit("disk", 0)
    bench.qtbot.waitUntil(lambda: "are missing" in bench.desk.work.plan.shortfall)
    assert "RAM needs" in bench.desk.work.plan.shortfall


def test_absent_places_are_shown_and_can_be_forgotten(make_bench: MakeBench) -> None:
    """A19."""
    bench = make_bench(fakes.no_card(), limits=(("cuda:0", 6 * GIB),))
    bench.open()
    panel = bench.desk.work.plan
    assert "cuda:0" not in panel.limits
    line = panel._absent.itemAt(0).widget()
    assert line is not None
    from PySide6.QtWidgets import QLabel, QPushButton

    words = line.findChild(QLabel)
    forget = line.findChild(QPushButton)
    assert isinstance(words, QLabel)
    assert isinstance(forget, QPushButton)
    assert words.text() == "cuda:0 is not on this machine. Its limit of 6.0 GiB is not used."
    bench.qtbot.mouseClick(forget, Qt.MouseButton.LeftButton)
    assert bench.session.settings.limits == ()
    assert panel._absent.count() == 0


@pytest.mark.parametrize(("key", "quantization"), [("int8", "int8"), ("nf4", "nf4"), ("full", None)])
def test_the_picker_chooses_the_precision(opened: Bench, key: str, quantization: str | None) -> None:
    opened.session.change_settings(quantization="nf4" if quantization is None else None)
    picker = opened.desk.work.plan.precision
    opened.qtbot.mouseClick(picker.button(key), Qt.MouseButton.LeftButton)
    opened.qtbot.waitUntil(
        lambda: opened.session.state.plan is not None and opened.session.state.plan.wishes.quantization == quantization
    )


def test_a_quantised_model_greys_the_picker_and_says_why(make_bench: MakeBench) -> None:
    from tests.core.models import dense

    bench = make_bench(model=dense(quantization="gptq"), quantization="nf4")
    bench.open()
    picker = bench.desk.work.plan.precision
    assert not picker.allowed("nf4")
    assert "gptq" in picker.button("nf4").toolTip()
    assert picker.current() == "full"


def test_the_context_slider_plans_for_its_tokens(make_bench: MakeBench) -> None:
    from tests.core.models import dense

    bench = make_bench(model=dense(context=8192))
    bench.open()
    slider = bench.desk.work.plan.context
    assert bench.session.context == 4096
    slider.setValue(slider.maximum())
    bench.qtbot.waitUntil(
        lambda: bench.session.state.plan is not None and bench.session.state.plan.budget.context == 8192
    )
    slider.setValue(0)
    bench.qtbot.waitUntil(
        lambda: bench.session.state.plan is not None and bench.session.state.plan.budget.context == 256
    )


def test_the_disk_can_be_left_out(opened: Bench) -> None:
    opened.desk.work.plan._disk.click()
    assert dict(opened.session.settings.limits)["disk"] == 0
    opened.desk.work.plan._disk.click()
    assert "disk" not in dict(opened.session.settings.limits)
