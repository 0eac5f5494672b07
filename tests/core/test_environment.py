"""The environment of a process that will import torch: complete, never contradictory, and never over a person's own."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys

import pytest

from layerlight.core.environment import (
    APPLE,
    HIGH_WATERMARK,
    LOW_WATERMARK,
    OFFLINE,
    SWITCH,
    TORCHS_HIGH,
    TORCHS_LOW,
    TUNING,
    WATERMARKS,
    engine_environment,
)

OURS = OFFLINE | TUNING | APPLE | WATERMARKS

HOOK = """
import importlib, json, os, runpy, sys

class FirstTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            with open(os.environ["SEEN"], "w") as file:
                json.dump(dict(os.environ), file)
            os._exit(0)

sys.meta_path.insert(0, FirstTorch())
sys.argv = ["engine"]
runpy.run_module("layerlight.engine.host", run_name="__main__")
"""


def _ratio(environment: dict[str, str], name: str, torchs: float) -> float:
    return float(environment.get(name, torchs))


def test_d02_without_wishes_both_watermarks_are_set() -> None:
    made = engine_environment({})
    assert 0 < float(made[LOW_WATERMARK]) <= float(made[HIGH_WATERMARK]) <= 1


@pytest.mark.parametrize(
    ("name", "value"), [*itertools.product((HIGH_WATERMARK, LOW_WATERMARK), ("0.5", "0.7", "1.4", "1.6", "2.0"))]
)
def test_d02_one_watermark_alone_never_clashes_with_the_other(name: str, value: str) -> None:
    made = engine_environment({name: value})
    assert made[name] == value
    assert _ratio(made, LOW_WATERMARK, TORCHS_LOW) <= _ratio(made, HIGH_WATERMARK, TORCHS_HIGH)


@pytest.mark.parametrize("value", ["0.0", "0", "none", ""])
def test_d02_no_limit_and_rubbish_are_left_to_torch(value: str) -> None:
    made = engine_environment({HIGH_WATERMARK: value})
    assert made[HIGH_WATERMARK] == value
    assert LOW_WATERMARK not in made


@pytest.mark.parametrize("name", OURS)
def test_d03_what_a_person_set_wins(name: str) -> None:
    assert engine_environment({name: "1.5"})[name] == "1.5"


def test_d03_everything_of_ours_is_there_and_nothing_of_theirs_is_lost() -> None:
    assert engine_environment({"PATH": "/bin"}) == {"PATH": "/bin"} | OURS


@pytest.mark.parametrize(("base", "tuned"), [({}, False), ({SWITCH: "0"}, True)])
def test_d03_the_off_switch_leaves_torch_alone_but_stays_off_the_network(base: dict[str, str], tuned: bool) -> None:
    made = engine_environment(base, tuned)
    assert made == OFFLINE | {SWITCH: "0"}
    assert engine_environment(made) == made


def test_making_it_twice_changes_nothing() -> None:
    once = engine_environment({"PATH": "/bin"})
    assert engine_environment(once) == once


@pytest.mark.parametrize("switch", ["1", "0"])
def test_d03_the_engine_process_has_it_when_torch_is_first_imported(tmp_path: object, switch: str) -> None:
    """An import hook in a fresh interpreter writes down what the real engine host had set by then."""
    seen = f"{tmp_path}/seen.json"
    plain = {name: value for name, value in os.environ.items() if name not in OURS}
    with subprocess.Popen(
        [sys.executable, "-c", HOOK],
        env=plain | {"SEEN": seen, SWITCH: switch},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as engine:  # its requests' pipe stays open, or it would end by itself
        assert engine.wait(timeout=60) == 0
    with open(seen, encoding="utf-8") as file:
        environment = json.load(file)
    expected = OFFLINE if switch == "0" else OURS
    assert {name: environment.get(name) for name in expected} == expected
    assert (HIGH_WATERMARK in environment) == (switch == "1")
