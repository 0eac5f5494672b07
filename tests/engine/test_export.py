"""The exported snippet runs as it is."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from layerlight.core.device import Budget
from layerlight.core.export import device_map, python_snippet
from layerlight.core.inspection import inspect_folder
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
from tests.engine.tiny_models import machine, write_model


@pytest.mark.parametrize(
    ("kind", "wishes"),
    [
        ("llama", Wishes(pins=(("model.layers.2-5", "disk"),))),
        ("tied", Wishes(pins=(("model.layers.1", "disk"), ("lm_head", "disk")))),
        ("mixtral", Wishes(pins=(("model.layers.0", "disk"),))),
        ("mixtral", Wishes(pins=(("model.layers.0-1", "disk"), ("model.layers.0-2.mlp.experts", "disk")))),
        ("qwen3_moe", Wishes(pins=(("model.layers.*.mlp.experts", "disk"),))),
        ("llama", Wishes(quantization="nf4", dtype="float32")),
        ("llama", Wishes(kv="fp8")),
    ],
)
def test_the_snippet_loads_and_answers(
    kind: str,
    wishes: Wishes,
    model_folder: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = model_folder(kind)
    if wishes.quantization:  # bitsandbytes' kernel for AVX-512 takes whole blocks
        folder = write_model(tmp_path / "wide", kind, hidden_size=64, intermediate_size=128, head_dim=16)
    plan = make_plan(inspect_folder(folder), machine(), Budget(context=32), wishes)
    script = tmp_path / "load.py"
    script.write_text(python_snippet(plan), encoding="utf-8")
    made = runpy.run_path(str(script))
    assert capsys.readouterr().out.startswith("Hello")
    model = made["model"]
    placed = getattr(model, "hf_device_map", None)
    if placed is not None:
        assert {name: str(place) for name, place in placed.items()} == device_map(plan)
    quantized = any("4bit" in type(module).__name__ for module in model.modules())
    assert quantized == (wishes.quantization is not None)
