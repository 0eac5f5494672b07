"""A GGUF header is read whole or refused in words; its tensors are gguf's own, piece by piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize

from layerlight.core.errors import BrokenModel, Stopped
from layerlight.engine import gguf_file
from layerlight.engine.gguf_file import read_gguf
from tests.engine.tiny_gguf import write_gguf


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path, tied=False)
    return path


def test_the_header_is_what_gguf_s_own_reader_says(path: Path) -> None:
    found = read_gguf(path, lambda: None)
    reader = GGUFReader(path)
    told = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert found.values == told
    assert {name: tensor.shape for name, tensor in found.tensors.items()} == {
        tensor.name: tuple(reversed(tensor.shape.tolist())) for tensor in reader.tensors
    }


@pytest.mark.filterwarnings("ignore")
def test_transformers_unpacks_it_so_that_it_gains_nothing(path: Path) -> None:
    """Why GGUF is never advised: on the versions here the model takes several times the bytes of its file."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype="bfloat16")
    weights = [each for each in model.parameters() if each.dim() > 1]
    assert all(each.is_floating_point() for each in weights)
    packed = sum(int(tensor.n_bytes) for tensor in GGUFReader(path).tensors if "blk" in tensor.name)
    blocks = sum(each.numel() * each.element_size() for each in model.model.layers.parameters())
    assert blocks > 2.5 * packed


@pytest.mark.parametrize("piece", [1, 1000, 2**22])
def test_pieces_join_to_the_whole_tensor(path: Path, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_file, "_PIECE", piece)
    found = read_gguf(path, lambda: None)
    for tensor in GGUFReader(path).tensors:
        joined = np.concatenate(list(found.pieces(found.tensors[tensor.name])))
        expected = dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(joined.reshape(expected.shape), expected)


@pytest.mark.parametrize("length", [0, 3, 4, 20, 300, 5000])
def test_a_cut_header_is_refused(path: Path, tmp_path: Path, length: int) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:length])
    with pytest.raises(BrokenModel, match=r"cut\.gguf"):
        read_gguf(cut, lambda: None)


def test_a_cut_tensor_is_named(path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:-4000])
    found = read_gguf(cut, lambda: None)
    last = max(found.tensors.values(), key=lambda tensor: tensor.offset)
    with pytest.raises(BrokenModel, match=last.name):
        list(found.pieces(last))


@pytest.mark.parametrize(
    "content",
    [b"GGUF" + b"\xff" * 400, b"\x00" * 400, b"GGUF\x03\x00\x00\x00" + b"\xff" * 16, b"GGUF\x63" + b"\0" * 99],
)
def test_rubbish_is_refused_at_once(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rubbish.gguf"
    path.write_bytes(content)
    with pytest.raises(BrokenModel):
        read_gguf(path, lambda: None)


def test_reading_can_be_stopped(path: Path) -> None:
    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        read_gguf(path, stop)
