"""Safetensors headers: exact tensors from good files, plain words for every way a file can be bad."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from layerlight.core.errors import BrokenModel
from layerlight.core.inspecting.safetensors_header import LARGEST_HEADER, read_safetensors_header
from tests.model_folders import LFS_POINTER, write_header, write_safetensors


def test_names_dtypes_shapes_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"a.weight": (3, 4), "b.scalar": (), "c.empty": (0, 7)}, "F32")
    tensors = read_safetensors_header(path)
    assert [(each.name, each.dtype, each.shape, each.size, each.elements) for each in tensors] == [
        ("a.weight", "float32", (3, 4), 48, 12),
        ("b.scalar", "float32", (), 4, 1),
        ("c.empty", "float32", (0, 7), 0, 0),
    ]
    assert {each.file for each in tensors} == {"model.safetensors"}


def test_four_bit_elements_take_half_a_byte(tmp_path: Path) -> None:
    path = tmp_path / "packed.safetensors"
    write_header(path, json.dumps({"w": {"dtype": "F4", "shape": [8, 2], "data_offsets": [0, 8]}}).encode(), bytes(8))
    assert read_safetensors_header(path)[0].size == 8


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (LFS_POINTER, "Git LFS pointer"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"1234", "cut short"),
        ((900).to_bytes(8, "little") + b"{}", "cut short"),
    ],
)
def test_what_is_not_weights_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    """E01: a pointer or an empty file in place of weights."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(BrokenModel, match=words) as caught:
        read_safetensors_header(path)
    assert "model.safetensors" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("part", [0.5, 0.99])
def test_a_truncated_file_is_said_with_both_sizes(tmp_path: Path, part: float) -> None:
    """E02: file, expected and real size."""
    path = tmp_path / "model-00002-of-00006.safetensors"
    whole = write_safetensors(path, {"w": (100, 100)})
    kept = int(whole * part)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BrokenModel) as caught:
        read_safetensors_header(path)
    for words in ("model-00002-of-00006.safetensors", str(whole), str(kept)):
        assert words in caught.value.message


@pytest.mark.parametrize("claim", [LARGEST_HEADER + 1, 101 * 2**20, 2**60, 2**64 - 1])
def test_a_huge_header_is_refused_without_allocating_it(tmp_path: Path, claim: int) -> None:
    """E17: quickly, and never by reading or reserving what the file claims."""
    path = tmp_path / "model.safetensors"
    write_header(path, b"{}", bytes(64), claim=claim)
    tracemalloc.start()
    try:
        with pytest.raises(BrokenModel, match=str(claim)):
            read_safetensors_header(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def entry(dtype: str = "F32", shape: Any = (2,), begin: Any = 0, end: Any = 8) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    "header",
    [
        {"w": entry(shape=(3,))},
        {"w": entry(shape=(-2,))},
        {"w": entry(begin=-8, end=0)},
        {"w": entry(begin=8, end=0)},
        {"w": entry("F31")},
        {"a": entry(), "b": entry()},
        {"a": entry(begin=4, end=12)},
        {"a": entry(), "b": entry(begin=12, end=20)},
        {"w": {"dtype": "F32"}},
        {"w": entry(begin=0.5)},
        ["not", "an", "object"],
        {"w": entry(shape=(2,), begin=0, end=2**70)},
    ],
)
def test_a_header_that_contradicts_itself_is_refused(tmp_path: Path, header: Any) -> None:
    path = tmp_path / "model.safetensors"
    write_header(path, json.dumps(header).encode(), bytes(8))
    with pytest.raises(BrokenModel):
        read_safetensors_header(path)


@pytest.mark.parametrize("header", [b"{", b"\xff\xfe{}", b'{"w": ' + b"[" * 100_000, b'{"w": NaN}'])
def test_a_header_that_is_no_json_is_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "model.safetensors"
    write_header(path, header)
    with pytest.raises(BrokenModel):
        read_safetensors_header(path)


def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    one, other = json.dumps(entry()), json.dumps(entry(begin=8, end=16))
    write_header(path, f'{{"w": {one}, "w": {other}}}'.encode(), bytes(16))
    with pytest.raises(BrokenModel):
        read_safetensors_header(path)


def test_bytes_beyond_the_tensors_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_header(path, json.dumps({"w": entry()}).encode(), bytes(11))
    with pytest.raises(BrokenModel, match="3 bytes longer"):
        read_safetensors_header(path)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(BrokenModel, match=r"gone\.safetensors can't be read"):
        read_safetensors_header(tmp_path / "gone.safetensors")


@pytest.mark.parametrize("shape", [[2**62] * 100_000, [2**62] * 100_000 + [0], [1] * 65])
def test_a_tensor_of_countless_dimensions_is_refused_at_once(tmp_path: Path, shape: list[int]) -> None:
    path = tmp_path / "model.safetensors"
    write_header(path, json.dumps({"a": {"dtype": "BF16", "shape": shape, "data_offsets": [0, 8]}}).encode(), b"x" * 8)
    with pytest.raises(BrokenModel, match="dimensions"):
        read_safetensors_header(path)
