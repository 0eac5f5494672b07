"""Pickled weights: tensors found without running anything; a payload never runs (E13)."""

from __future__ import annotations

import builtins
import os
import pickle
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from layerlight.core.errors import BrokenModel
from layerlight.core.inspecting.pickle_header import read_pickle_header
from tests.model_folders import LFS_POINTER, llama_shapes, write_pickle, write_zip


def test_names_dtypes_shapes_and_bytes(tmp_path: Path) -> None:
    shapes = llama_shapes()
    found = read_pickle_header(write_pickle(tmp_path / "pytorch_model.bin", shapes, "F16"))
    assert {each.tensor.name: each.tensor.shape for each in found} == shapes
    assert {each.tensor.dtype for each in found} == {"float16"}
    assert all(each.tensor.size == 2 * each.tensor.elements for each in found)
    assert len({each.storage for each in found}) == len(found)


def test_two_views_of_one_storage_share_it(tmp_path: Path) -> None:
    shapes = {"embed.weight": (8, 4), "head.weight": (8, 4)}
    path = write_pickle(tmp_path / "pytorch_model.bin", shapes, shared={"head.weight": "embed.weight"})
    one, other = read_pickle_header(path)
    assert one.storage == other.storage


class Payload:
    """Something whose unpickling would run a call."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call, self.arguments


@pytest.fixture(params=["system", "exec", "popen", "getattr", "open", "import"])
def payload(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Payload, Path]:
    marker = tmp_path / "marker"
    calls = {
        "system": (os.system, f"touch {marker}"),
        "exec": (builtins.exec, f"open({str(marker)!r}, 'w').close()"),
        "popen": (subprocess.Popen, ["touch", str(marker)]),
        "getattr": (builtins.getattr, os, "system"),
        "open": (Path.write_text, marker, "x"),
        "import": (builtins.__import__, "os"),
    }
    call, *arguments = calls[request.param]
    if request.param == "getattr":
        arguments = ["text", "upper"]
    return Payload(call, *arguments), marker


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("place", ["whole", "value", "list"])
@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_pickle_is_never_run(
    tmp_path: Path, payload: tuple[Payload, Path], protocol: int, place: str, zipped: bool
) -> None:
    """E13: wherever it hides, by whatever protocol; the message says it was not run."""
    harm, marker = payload
    content = {"whole": harm, "value": {"w": harm}, "list": [harm]}[place]
    program = pickle.dumps(content, protocol)
    path = tmp_path / "pytorch_model.bin"
    if zipped:
        write_zip(path, program)
    else:
        path.write_bytes(pickle.dumps(1, 2) * 3 + program)
    with pytest.raises(BrokenModel) as caught:
        read_pickle_header(path)
    assert not marker.exists()
    assert "was not run" in caught.value.message


@pytest.mark.parametrize("payload", ["system", "exec", "open"], indirect=True)
def test_the_payloads_are_real(payload: tuple[Payload, Path]) -> None:
    """A reader that runs what it reads would leave the marker."""
    harm, marker = payload
    pickle.loads(pickle.dumps(harm))
    assert marker.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cposix\nsystem\n(X\x02\x00\x00\x00idtR.",
        b"(cposix\nsystem\nX\x02\x00\x00\x00ido.",
        b"(X\x02\x00\x00\x00idiposix\nsystem\n.",
        b"\x82\x01.",
        b"ctorch._utils\n_rebuild_tensor_v2\n(tR.",
        b"ctorch\nload\n(tR.",
        b"ctorch.hub\nload\n.",
        b"ccollections\nOrderedDict\nX\x01\x00\x00\x00aR.",
        b"X\x01\x00\x00\x00aX\x01\x00\x00\x00b\x93.",
        b"r\xff\xff\xff\x7f.",
        b"\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"u.",
        b".",
        b"",
        b"\xff\xff",
    ],
)
def test_odd_programs_are_refused(tmp_path: Path, program: bytes) -> None:
    """Hand-made instructions: calls by other opcodes, half instructions, huge claims."""
    path = write_zip(tmp_path / "pytorch_model.bin", program)
    with pytest.raises(BrokenModel):
        read_pickle_header(path)


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "empty"), (LFS_POINTER, "Git LFS pointer"), (b"PK\x03\x04rubbish", "cut short")]
)
def test_what_is_not_weights_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(content)
    with pytest.raises(BrokenModel, match=words):
        read_pickle_header(path)


def test_a_truncated_archive_is_said(tmp_path: Path) -> None:
    """E02 for pickles."""
    path = write_pickle(tmp_path / "pytorch_model.bin", llama_shapes())
    path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(BrokenModel, match="cut short"):
        read_pickle_header(path)


def test_a_training_checkpoint_is_told_apart(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "pytorch_model.bin", pickle.dumps({"state_dict": {}, "epoch": 3}, 2))
    with pytest.raises(BrokenModel, match="training checkpoint"):
        read_pickle_header(path)


def test_instructions_without_end_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 100 kB can unpack to a hundred million instructions."""
    monkeypatch.setattr("layerlight.core.inspecting.pickle_header.MOST_INSTRUCTIONS", 1_000)
    path = write_zip(tmp_path / "pytorch_model.bin", b"\x80\x02" + b"N" * 2_000 + b".")
    with pytest.raises(BrokenModel, match="don't end"):
        read_pickle_header(path)


@pytest.mark.parametrize(
    "shape", ["(" + "J\0\1\0\0" * 65 + "t", "(J\xff\xff\xff\xfft", "(\x8a\x09" + "\xff" * 8 + "\0t"]
)
def test_a_shape_that_no_tensor_has_is_refused(tmp_path: Path, shape: str) -> None:
    whole = write_pickle(tmp_path / "whole.bin", {"a": (258,)})
    with zipfile.ZipFile(whole) as archive:
        program = archive.read("archive/data.pkl")
    there = b"(J\2\1\0\0t("
    assert there in program
    path = write_zip(tmp_path / "pytorch_model.bin", program.replace(there, shape.encode("latin1") + b"("))
    with pytest.raises(BrokenModel, match="no storage or no shape"):
        read_pickle_header(path)
