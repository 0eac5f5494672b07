"""What the window's program is made of, imported on a thread while an empty window already answers."""

from __future__ import annotations

import importlib
from contextlib import suppress

QT = ("PySide6.QtCore", "PySide6.QtGui", "PySide6.QtWidgets")
"""Their classes reach Python when they are first met, whole families at once, which would be a stall of 20 ms."""

PARTS = (
    "socket",
    "typing_extensions",
    "uuid",
    "msgspec",
    "layerlight.core.errors",
    "layerlight.core.device",
    "layerlight.core.model",
    "layerlight.core.planning.workload",
    "layerlight.core.plan",
    "layerlight.core.messages",
    "layerlight.core.state",
    "layerlight.ui.controls",
    "layerlight.core.inspecting.figures",
    "layerlight.core.sizing.kv_cache",
    "layerlight.core.sizing.working_memory",
    "layerlight.core.planning.runtime",
    "layerlight.core.planning.units",
    "layerlight.core.speed",
    "layerlight.core.planning.device_sets",
    "layerlight.core.planning.puzzle",
    "heapq",
    "layerlight.core.planning.relaxation",
    "layerlight.core.planning.sequence",
    "layerlight.core.planning.choosing",
    "layerlight.core.planning.shortfall",
    "layerlight.core.placing",
    "layerlight.core.fixes",
    "array",
    "psutil",
    "layerlight.core.machines.local_memory",
    "layerlight.core.pacing.calibration",
    "layerlight.core.pacing.correction",
    "layerlight.core.machines.machine_entry",
    "layerlight.core.machines.machine_figures",
    "sqlite3",
    "layerlight.store.database",
    "layerlight.store.kept_file",
    "layerlight.store.turns",
    "layerlight.store.chats",
    "layerlight.ui.chats",
    "layerlight.store.chat_export",
    "layerlight.ui.conversations",
    "layerlight.ui.history",
    "layerlight.ui.event_turns",
    "layerlight.ui.state_keeper",
    "layerlight.ui.planner",
    "layerlight.ui.planning",
    "layerlight.ui.words",
    "layerlight.ui.lanes",
    "layerlight.core.planning.placement_map",
    "layerlight.core.comparison",
    "layerlight.ui.strategies",
    "layerlight.ui.plan_basis",
    "layerlight.ui.plan_levers",
    "layerlight.ui.asking",
    "layerlight.ui.ram_watch",
    "layerlight.ui.session",
    "layerlight.ui.fuzzy",
    "layerlight.ui.commands",
    "layerlight.ui.command_palette",
    "layerlight.ui.export_menu",
    "layerlight.ui.arrangement",
    "layerlight.ui.layer_card",
    "layerlight.ui.map_light",
    "layerlight.ui.stamps",
    "layerlight.ui.layer_table",
    "layerlight.ui.map_heat",
    "layerlight.ui.map_painter",
    "layerlight.ui.still",
    "layerlight.ui.move_menu",
    "layerlight.ui.layer_map",
    "layerlight.ui.layer_list",
    "layerlight.ui.limit_control",
    "layerlight.ui.fixes_panel",
    "layerlight.ui.strategy_panel",
    "layerlight.ui.plan_panel",
    "layerlight.ui.log_panel",
    "layerlight.ui.notice_bar",
    "layerlight.ui.steps",
    "layerlight.ui.welcome_panel",
    "layerlight.ui.prose",
    "layerlight.ui.sampling_panel",
    "layerlight.ui.entry",
    "layerlight.ui.turn_view",
    "layerlight.ui.talk",
    "layerlight.ui.chat_list",
    "layerlight.ui.past_chats",
    "layerlight.ui.chat_panel",
    "layerlight.ui.model_panel",
    "layerlight.ui.time_strip",
    "layerlight.ui.banner",
    "layerlight.ui.verdict_bar",
    "layerlight.ui.panes",
    "layerlight.ui.attention",
    "layerlight.ui.motion",
    "layerlight.ui.berth",
    "layerlight.ui.reveal",
    "layerlight.ui.work_panel",
    "layerlight.ui.desk",
    "layerlight.core.inspecting.weight_sizes",
    "layerlight.ui.link",
    "layerlight.store.measurements",
    "layerlight.ui.measurement_keeper",
    "layerlight.ui.program",
)
"""Imported in this order once the window is on the screen: each brings in little beside itself, so the lock of the
interpreter is never held for long."""


def gather() -> None:
    """Brings in everything. What fails is met again where it is needed."""
    for name in QT:
        module = importlib.import_module(name)
        for each in dir(module):
            getattr(module, each)
    for part in PARTS:
        with suppress(ImportError):
            importlib.import_module(part)
