"""The KV cache's precision in the plan panel: where it can run, by mouse and keyboard, kept, undone, and as a fix."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt

from layerlight.core.device import Budget
from layerlight.core.messages import LoadRequest
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
from tests import fakes
from tests.core.models import MIB, dense, disk, machine, ram
from tests.ui.conftest import Bench, MakeBench


def kv_of(bench: Bench) -> str:
    plan = bench.session.state.plan
    return plan.wishes.kv if plan is not None else "no plan"


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_it_is_chosen_and_the_plan_follows(opened: Bench, by: str) -> None:
    panel = opened.desk.work.plan
    assert panel.cache.isVisible()
    assert panel.cache.current() == "full"
    before = opened.session.state.plan
    assert before is not None
    if by == "mouse":
        opened.qtbot.mouseClick(panel.cache.button("fp8"), Qt.MouseButton.LeftButton)
    else:
        panel.cache.button("full").setFocus()
        opened.qtbot.keyClick(panel.cache.button("full"), Qt.Key.Key_Right)
        opened.qtbot.keyClick(panel.cache.button("fp8"), Qt.Key.Key_Space)
    opened.qtbot.waitUntil(lambda: kv_of(opened) == "fp8")
    assert opened.session.settings.kv == "fp8"
    after = opened.session.state.plan
    assert after is not None
    assert after.prediction.use("cuda:0").kv < before.prediction.use("cuda:0").kv
    assert panel._cache_note.text() == after.notes[0]
    opened.session.load()
    assert isinstance(opened.engine.last_load, LoadRequest)
    assert opened.engine.last_load.kv == "fp8"


def test_it_is_undone_like_any_lever(opened: Bench) -> None:
    opened.session.change_settings(kv="fp8")
    opened.qtbot.waitUntil(lambda: kv_of(opened) == "fp8")
    opened.qtbot.mouseClick(opened.desk.work.plan.cache.button("full"), Qt.MouseButton.LeftButton)
    opened.qtbot.waitUntil(lambda: kv_of(opened) == "")
    assert opened.desk.work.plan._cache_note.isHidden()


@pytest.mark.parametrize("why", ["windows", "device"])
def test_where_it_can_not_run_there_is_no_control_and_the_plan_is_as_usual(make_bench: MakeBench, why: str) -> None:
    model, here = dense(), fakes.laptop()
    assert model.shape is not None
    if why == "windows":
        kinds = ("sliding_attention",) * model.shape.layers
        model = replace(model, shape=replace(model.shape, layer_types=kinds, sliding_window=64))
    else:
        here = replace(here, devices=(replace(here.devices[0], caches=()), *here.devices[1:]))
    bench = make_bench(here, model, kv="fp8")
    bench.open()
    assert kv_of(bench) == ""
    assert not bench.desk.work.plan.cache.isVisible()


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_as_a_fix_it_is_applied(make_bench: MakeBench, by: str) -> None:
    model = dense(layers=8, hidden=256, intermediate=512, context=8192)
    here = machine(ram(), disk())
    usual, packed = (
        make_plan(model, here, Budget(context=8192), Wishes(kv=kv)).prediction.use("cpu").used for kv in ("", "fp8")
    )
    bench = make_bench(here, model, limits=(("cpu", (usual + packed) // 2), ("disk", 0)), context=8192)
    bench.open()
    rows = bench.desk.work.plan.fixes
    bench.qtbot.waitUntil(lambda: any("KV cache" in each.words for each in rows.rows))
    row = next(each for each in rows.rows if "KV cache" in each.words)
    if by == "mouse":
        bench.qtbot.mouseClick(row.button, Qt.MouseButton.LeftButton)
    else:
        row.button.setFocus()
        bench.qtbot.keyClick(row.button, Qt.Key.Key_Space)
    bench.qtbot.waitUntil(lambda: kv_of(bench) == "fp8")
    plan = bench.session.state.plan
    assert plan is not None
    assert plan.fits
    assert plan.prediction.use("cpu").used < usual - MIB
    assert bench.session.settings.kv == "fp8"
    bench.session.undo()
    bench.qtbot.waitUntil(lambda: kv_of(bench) == "")
