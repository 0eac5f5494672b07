"""Of experts on disk a pass reads the chosen ones, all at once, and answers as in RAM."""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from layerlight.core.errors import RunFailed
from layerlight.core.inspection import inspect_folder
from layerlight.core.messages import LayerRan, LoadRequest, RunFinished, TextProduced
from layerlight.core.model import LayerKind
from layerlight.engine import paged_files
from layerlight.engine.engine import TorchEngine
from layerlight.engine.mapped_layers import PartedWeight, chosen_parts
from layerlight.engine.paged_files import PagedFiles
from layerlight.engine.ring.unit_layout import StoredTensor
from tests.engine.events import Events, ask, text_request
from tests.engine.tiny_models import FUSED, plain_tokens, request_for, write_model

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps room for all of a mapped file")
Folder = Callable[[str], Path]


@pytest.mark.parametrize(
    ("inputs", "chosen"),
    [
        ((torch.zeros(3, 8), torch.tensor([[5, 1], [1, 0], [5, 2]]), torch.ones(3, 2)), (0, 1, 2, 5)),
        ((torch.zeros(1, 8), torch.tensor([[7, 3]], dtype=torch.int32)), (3, 7)),
        ((torch.zeros(1, 8), torch.tensor([[8, 2]])), (2,)),
        ((torch.zeros(1, 8), torch.ones(1, 8)), None),
        ((), None),
    ],
)
def test_what_the_router_chose_is_read_off_the_inputs(
    inputs: tuple[torch.Tensor, ...], chosen: tuple[int, ...] | None
) -> None:
    """Without repeats and in order; 8, one more than there are, stands for an expert of another machine."""
    assert chosen_parts(inputs, 8) == chosen


@pytest.mark.parametrize(
    ("chosen", "ranges"),
    [
        ((0,), [(100, 110)]),
        ((1, 2, 5), [(110, 130), (150, 160)]),
        (None, [(100, 180)]),
        ((), []),
    ],
)
def test_neighbours_are_read_as_one(chosen: tuple[int, ...] | None, ranges: list[tuple[int, int]]) -> None:
    weight = PartedWeight(StoredTensor("file", 100, 80, torch.uint8), 8)
    assert [each[1:] for each in weight.ranges(chosen)] == ranges


def test_a_weight_that_all_share_is_read_whole() -> None:
    weight = PartedWeight(StoredTensor("file", 100, 80, torch.uint8), 1)
    assert [each[1:] for each in weight.ranges((3,))] == [(100, 180)]


# -- pages -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "weights"
    made.write_bytes(bytes(range(256)) * 1024)
    return made


def _too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(mmap.mmap):
        def madvise(self, option: int, *rest: int) -> None:
            if option == 22:
                raise OSError(errno.EINVAL, "Invalid argument")
            super().madvise(option, *rest)

    monkeypatch.setattr(paged_files.mmap, "mmap", Old)


@pytest.mark.parametrize("system", ["new", "old"])
def test_bytes_are_the_files_before_and_after_they_are_let_go(
    system: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if system == "old":
        _too_old(monkeypatch)
    pages = PagedFiles([str(path)])
    view = pages.view(StoredTensor(str(path), 256, 1024, torch.uint8), (4, 256))
    ranges = [(str(path), 256, 768), (str(path), 100_000, 200_000)]
    for _ in range(2):
        pages.bring(ranges, lambda: None)
        assert torch.equal(view, torch.arange(256, dtype=torch.uint8).repeat(4, 1))
        pages.let_go(ranges)
    pages.close()
    assert int(view[1, 7]) == 7, "a view outlives the threads"


def _populates() -> bool:
    with mmap.mmap(-1, mmap.PAGESIZE) as probe:
        try:
            probe.madvise(22)
        except (OSError, AttributeError):
            return False
    return True


@pytest.mark.skipif(not _populates(), reason="this system can't read pages in ahead")
def test_a_file_cut_short_is_an_error_and_no_bus_error(path: Path) -> None:
    pages = PagedFiles([str(path)])
    os.truncate(path, 4096)
    with pytest.raises(OSError, match="Input/output error"):
        pages.bring([(str(path), 0, 200_000)], lambda: None)
    pages.close()


def test_a_stop_is_heard_while_pages_are_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    plain = PagedFiles._bring

    def hangs(pages: PagedFiles, *each: Any) -> None:
        answers.wait(30)
        plain(pages, *each)

    monkeypatch.setattr(PagedFiles, "_bring", hangs)
    pages = PagedFiles([str(path)])

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        pages.bring([(str(path), 0, 100)], stop)
    answers.set()
    pages.close()


# -- in a model --------------------------------------------------------------------------------------------------------


def experts_on_disk(folder: Path, *, everything: bool, dtype: str = "float32") -> LoadRequest:
    kinds = [layer.kind for layer in inspect_folder(folder).layers]
    return request_for(
        folder,
        lambda index, count: "disk" if everything or kinds[index] is LayerKind.EXPERTS else "cpu",
        dtype=dtype,
        context=64,
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("everything", [True, False], ids=["all on disk", "experts on disk"])
@pytest.mark.parametrize("kind", FUSED)
def test_answers_are_those_of_ram_and_bytes_those_of_the_chosen(
    kind: str, everything: bool, dtype: str, engine: TorchEngine, model_folder: Folder
) -> None:
    """Each pass of a token reads as many experts as the router chooses; the prompt's at most all."""
    folder = model_folder(kind)
    request = experts_on_disk(folder, everything=everything, dtype=dtype)
    engine.load(request, Events().job())
    running = Events()
    engine.generate(text_request(), running.job())
    assert list(running.last(RunFinished).result.tokens) == plain_tokens(folder, "hello there, world", dtype, 8)
    sizes = {each.layer: each.size for each in request.placements}
    experts = [each for each in running.last(LayerRan).activity if each.layer.endswith(".experts")]
    assert len(experts) == 4
    for each in experts:
        one = sizes[each.layer] / 4
        assert each.bytes_moved % one == 0
        assert 2 * one * each.passes <= each.bytes_moved <= 4 * one + 2 * one * (each.passes - 1)


def test_few_of_many_experts_are_read(engine: TorchEngine, tmp_path: Path) -> None:
    """64 experts, 4 used: a token reads what the used ones weigh."""
    folder = write_model(tmp_path / "model", "qwen3_moe", num_experts=64, num_experts_per_tok=4)
    engine.load(experts_on_disk(folder, everything=False), Events().job())
    expected = plain_tokens(folder, "h", "float32", 8)
    running = Events()
    engine.generate(text_request("h"), running.job())
    assert list(running.last(RunFinished).result.tokens) == expected
    assert engine.loaded is not None
    sizes = {each.layer: each.size for each in engine.loaded.placed}
    for each in running.last(LayerRan).activity:
        if each.layer.endswith(".experts"):
            assert each.bytes_moved == sizes[each.layer] // 64 * 4 * each.passes


@pytest.mark.parametrize("kind", ["llama", "tied", "gpt2"])
def test_of_a_table_the_rows_of_the_tokens_are_read(kind: str, engine: TorchEngine, model_folder: Folder) -> None:
    """A vocabulary may weigh a GB, of which a token needs one row; a tied head still needs all of it."""
    folder = model_folder(kind)
    engine.load(request_for(folder, lambda index, count: "disk", dtype="bfloat16", context=32), Events().job())
    running = Events()
    engine.generate(text_request(), running.job())
    assert list(running.last(RunFinished).result.tokens) == plain_tokens(folder, "hello there, world", "bfloat16", 8)
    assert engine.loaded is not None
    for name, table in engine.loaded.model.named_modules():
        if not isinstance(table, torch.nn.Embedding):
            continue
        moved = next(each.bytes_moved for each in running.last(LayerRan).activity if each.layer == name)
        row = table.weight[0].nbytes
        letters = len(set("hello there, world"))
        positions = len("hello there, world")
        assert moved == row * (7 + (positions if name == "transformer.wpe" else letters))


def test_the_map_says_that_they_rest_on_disk_as_pages_of_it(engine: TorchEngine, model_folder: Folder) -> None:
    engine.load(experts_on_disk(model_folder("mixtral"), everything=False), Events().job())
    assert engine.loaded is not None
    experts = [each for each in engine.loaded.placed if each.layer.endswith(".experts")]
    assert [(each.rests_on, each.runs_on, each.mapped) for each in experts] == [("disk", "cpu", True)] * 4


def test_unloading_ends_the_threads_and_removes_the_files(
    engine: TorchEngine, model_folder: Folder, tmp_path: Path
) -> None:
    before = threading.active_count()
    engine.load(experts_on_disk(model_folder("mixtral"), everything=True), Events().job())
    ask(engine)
    engine.unload(Events().job())
    assert threading.active_count() == before
    assert list((tmp_path / "home" / "cache" / "offload").iterdir()) == []


@pytest.mark.skipif(not _populates(), reason="this system can't read pages in ahead")
def test_a_file_cut_short_in_an_answer_ends_it(engine: TorchEngine, model_folder: Folder, tmp_path: Path) -> None:
    engine.load(experts_on_disk(model_folder("mixtral"), everything=False), Events().job())
    events = Events()

    def cut(_told: TextProduced) -> None:
        for file in (tmp_path / "home" / "cache" / "offload").glob("*/*.safetensors"):
            os.truncate(file, 100)

    with pytest.raises(RunFailed, match="was cut short"):
        engine.generate(text_request(count=40), events.when(TextProduced, cut).job())
    assert not events.of(RunFinished)
    engine.unload(Events().job())
