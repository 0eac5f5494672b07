"""Layers on disk answer as layers in RAM do, out of buffers that never change, and their faults are said."""

from __future__ import annotations

import errno
import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from layerlight.core.errors import RunFailed, Stopped
from layerlight.core.messages import LayerRan, LoadRequest, RunFinished, TextProduced
from layerlight.engine.engine import TorchEngine
from layerlight.engine.ring.source_file import SourceFile
from layerlight.engine.streamed_layers import StreamedLayers
from tests.engine.events import Events, ask, text_request
from tests.engine.tiny_models import byte_tokenizer, plain_tokens, request_for, write_model

Folder = Callable[[str], Path]


def _on_disk(folder: Path, dtype: str = "float32", context: int = 64) -> LoadRequest:
    return request_for(folder, lambda index, count: "disk", dtype=dtype, context=context)


def _with_on_disk(request: LoadRequest, there: set[str]) -> LoadRequest:
    placements = tuple(replace(each, rests_on="disk") if each.layer in there else each for each in request.placements)
    return replace(request, placements=placements)


def _streamed(engine: TorchEngine) -> StreamedLayers:
    assert engine.loaded is not None
    assert engine.loaded.streamed is not None
    return engine.loaded.streamed


SMALL = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 258, "max_position_embeddings": 256, "pad_token_id": 1, "bos_token_id": 0,
    "eos_token_id": 1,
}  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {
    "lfm2": {
        **SMALL, "block_auto_adjust_ff_dim": False, "layer_types": ["conv", "full_attention", "conv", "conv"],
    },
    "falcon_h1": {
        **SMALL, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8,
        "mamba_d_conv": 3, "head_dim": 8,
    },
    "gemma3": {
        "text_config": {**SMALL, "head_dim": 8, "sliding_window": 8, "model_type": "gemma3_text"},
        "vision_config": {
            "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2,
            "image_size": 28, "patch_size": 14, "vision_use_head": False, "model_type": "siglip_vision_model",
        },
        "mm_tokens_per_image": 4,
    },
}  # fmt: skip
"""Hybrids, whose layers lie in several ways, and a model that also sees."""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", sorted(OTHERS))
def test_other_kinds_answer_as_in_ram(kind: str, dtype: str, engine: TorchEngine, tmp_path: Path) -> None:
    """The kinds of tiny_models are held to plain transformers in test_loading."""
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **OTHERS[kind]), dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "model")
    byte_tokenizer().save_pretrained(tmp_path / "model")
    engine.load(_on_disk(tmp_path / "model", dtype), Events().job())
    assert list(ask(engine).tokens) == plain_tokens(tmp_path / "model", "hello there, world", dtype, 8)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shards_and_few_layers_answer_as_in_ram(dtype: str, engine: TorchEngine, tmp_path: Path) -> None:
    """Layers that lie across two files; one, two and three layers in three buffers."""
    folder = write_model(tmp_path / "model", "llama", shard="40KB")
    expected = plain_tokens(folder, "hello there, world", dtype, 8)
    for count in (1, 2, 3):
        there = {f"model.layers.{index}" for index in range(4, 4 + count)}
        engine.load(_with_on_disk(request_for(folder, dtype=dtype), there), Events().job())
        assert set(_streamed(engine).carried) == there
        assert list(ask(engine).tokens) == expected


def test_nothing_of_accelerate_is_left_where_the_cpu_runs_all(engine: TorchEngine, model_folder: Folder) -> None:
    engine.load(_on_disk(model_folder("llama")), Events().job())
    assert engine.loaded is not None
    assert not any(hasattr(module, "_hf_hook") for module in engine.loaded.model.modules())


def test_buffers_and_views_are_the_same_over_two_hundred_tokens(engine: TorchEngine, model_folder: Folder) -> None:
    """Nothing is made for a token: each pass finds one of the first views, at its address."""
    engine.load(_on_disk(model_folder("llama"), context=256), Events().job())
    streamed = _streamed(engine)
    buffers, size = streamed.ring.buffers, streamed.ring.size
    seen: list[set[tuple[int, int]]] = []
    layer = engine.loaded.model.get_submodule("model.layers.5")  # type: ignore[union-attr]

    def note(module: torch.nn.Module, _inputs: object) -> None:
        seen.append({(id(each), each.data_ptr()) for each in module.parameters()})

    layer.register_forward_pre_hook(note)
    running = Events()
    engine.generate(text_request(count=200), running.job())
    assert len(running.last(RunFinished).result.tokens) == 200
    assert len(seen) == 200
    assert len({frozenset(each) for each in seen}) <= 3
    assert streamed.ring.buffers == buffers
    assert streamed.ring.size == size
    assert all(parameter.device.type == "meta" for parameter in layer.parameters())


def test_waiting_is_told_apart_from_computing(engine: TorchEngine, model_folder: Folder) -> None:
    engine.load(_on_disk(model_folder("llama")), Events().job())
    running = Events()
    engine.generate(text_request(), running.job())
    for each in running.last(LayerRan).activity:
        assert 0 <= each.waited <= each.seconds
        assert bool(each.waited) == bool(each.bytes_moved)


# -- its end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answered", [True, False])
def test_unloading_ends_the_threads_and_gives_the_buffers_back(
    answered: bool, engine: TorchEngine, model_folder: Folder
) -> None:
    before = threading.active_count()
    engine.load(_on_disk(model_folder("tied")), Events().job())
    assert threading.active_count() > before
    buffers = [weakref.ref(buffer) for buffer in _streamed(engine).ring.buffers]
    if answered:
        ask(engine)
    engine.unload(Events().job())
    assert threading.active_count() == before
    assert [buffer() for buffer in buffers] == [None] * len(buffers)


def test_a_load_that_fails_last_ends_the_threads(
    engine: TorchEngine, model_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threading.active_count()

    def fails(*_unused: object) -> Any:
        raise RuntimeError("nothing found")

    monkeypatch.setattr("layerlight.engine.loading.placed_layers", fails)
    with pytest.raises(Exception, match="nothing found"):
        engine.load(_on_disk(model_folder("tied")), Events().job())
    assert threading.active_count() == before


# -- faults ------------------------------------------------------------------------------------------------------------


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _write(path: Path) -> None:
    with path.open("r+b") as opened:
        opened.seek(-4096, os.SEEK_END)
        opened.write(b"\xff" * 4096)


def _replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes())
    other.replace(path)


FAULTS: dict[str, Callable[[Path], None]] = {
    "cut short": _cut,
    "written": _write,
    "replaced": _replace,
    "moved": lambda path: path.rename(path.with_suffix(".elsewhere")),  # type: ignore[dict-item,return-value]
}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps files in use from being changed")
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_file_that_changes_ends_the_answer_within_a_token(fault: str, engine: TorchEngine, tmp_path: Path) -> None:
    """Every token until then is right; the model can be unloaded, and a whole file loads again."""
    folder = write_model(tmp_path / "model", "llama")
    whole = (folder / "model.safetensors").read_bytes()
    engine.load(_on_disk(folder), Events().job())
    expected = ask(engine, count=40).tokens
    events, before_it = Events(), []

    def spoil(told: TextProduced) -> None:
        if len(events.of(TextProduced)) == 2:
            before_it.extend(token for each in events.of(TextProduced) for token in each.tokens)
            FAULTS[fault](folder / "model.safetensors")

    before = threading.active_count()
    with pytest.raises(RunFailed, match=r"model\.safetensors"):
        engine.generate(text_request(count=40), events.when(TextProduced, spoil).job())
    told = [token for each in events.of(TextProduced) for token in each.tokens]
    assert tuple(told) == expected[: len(told)]
    assert len(told) <= len(before_it) + 1
    assert threading.active_count() == before
    (folder / "model.safetensors").unlink(missing_ok=True)
    (folder / "model.safetensors").write_bytes(whole)
    engine.unload(Events().job())
    engine.load(_on_disk(folder), Events().job())
    assert ask(engine, count=40).tokens == expected


def test_a_disk_that_fails_ends_the_answer_and_may_come_back(
    engine: TorchEngine, model_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.load(_on_disk(model_folder("llama")), Events().job())
    expected = ask(engine).tokens
    plain, events = SourceFile.read, Events()
    fails = threading.Event()

    def read(file: SourceFile, offset: int, into: memoryview) -> None:
        if fails.is_set():
            raise OSError(errno.EIO, "Input/output error")
        plain(file, offset, into)

    monkeypatch.setattr(SourceFile, "read", read)
    with pytest.raises(RunFailed, match="can't be read any more: Input/output error"):
        engine.generate(text_request(), events.when(TextProduced, lambda _told: fails.set()).job())
    fails.clear()
    assert ask(engine).tokens == expected


def test_a_stop_is_heard_while_the_disk_hangs(
    engine: TorchEngine, model_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share on a network may not answer for minutes."""
    engine.load(_on_disk(model_folder("llama")), Events().job())
    expected = ask(engine).tokens
    plain, events, answers = SourceFile.read, Events(), threading.Event()

    def read(file: SourceFile, offset: int, into: memoryview) -> None:
        if events.of(TextProduced):
            events.stop.set()
            answers.wait(60)
        plain(file, offset, into)

    monkeypatch.setattr(SourceFile, "read", read)
    engine.generate(text_request(count=40), events.job())
    assert events.last(RunFinished).result.ended == "stopped"
    answers.set()
    events.all.clear()
    assert ask(engine).tokens == expected


@pytest.mark.parametrize("layer", ["model.layers.3", "model.layers.3.mlp.up_proj"])
def test_a_pass_that_breaks_off_leaves_all_at_rest(layer: str, engine: TorchEngine, model_folder: Folder) -> None:
    engine.load(_on_disk(model_folder("llama")), Events().job())
    expected = ask(engine).tokens
    assert engine.loaded is not None
    for error in (Stopped(), RuntimeError("broken")):

        def breaks(*_unused: object, error: Exception = error) -> None:
            raise error

        handle = engine.loaded.model.get_submodule(layer).register_forward_pre_hook(breaks)
        if isinstance(error, Stopped):
            ask(engine)
        else:
            with pytest.raises(RunFailed, match="broken"):
                ask(engine)
        handle.remove()
        assert all(parameter.device.type == "meta" for parameter in engine.loaded.model.parameters())
    assert ask(engine).tokens == expected


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="no direct reads on this system")
def test_without_direct_reads_the_answer_is_the_same(
    engine: TorchEngine, model_folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain = os.open

    def opened(path: Any, flags: int, *rest: Any, **also: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return plain(path, flags, *rest, **also)

    monkeypatch.setattr(os, "open", opened)
    engine.load(_on_disk(model_folder("llama"), "bfloat16"), Events().job())
    assert not _streamed(engine).ring.direct
    assert "can't be read past the system's cache" in caplog.text
    assert list(ask(engine).tokens) == plain_tokens(model_folder("llama"), "hello there, world", "bfloat16", 8)


# -- an output that shows the buffer -----------------------------------------------------------------------------------


def test_an_output_that_is_a_view_of_weights_is_copied(engine: TorchEngine, model_folder: Folder) -> None:
    """The buffer soon holds another layer."""
    engine.load(_on_disk(model_folder("llama")), Events().job())
    assert engine.loaded is not None
    norm = engine.loaded.model.get_submodule("model.norm")
    norm.forward = lambda hidden: (norm.weight[:2], [hidden])  # type: ignore[method-assign,index]
    first, (hidden,) = norm(torch.zeros(3))
    assert not any(buffer.holds(first.data_ptr()) for buffer in _streamed(engine).ring.buffers)
    assert torch.equal(first, torch.ones(2))
    assert torch.equal(hidden, torch.zeros(3))
