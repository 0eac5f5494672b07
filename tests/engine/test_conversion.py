"""The converted folder equals transformers' own conversion, to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerlight.core.errors import BrokenModel, Stopped
from layerlight.core.job import Job
from layerlight.core.messages import Event
from layerlight.engine.conversion import _bfloat16, convert
from tests.engine.tiny_gguf import tokens, write_gguf

QUIET = Job(lambda event: None)


def _convert(folder: Path, job: Job = QUIET, **changes: Any) -> Path:
    write_gguf(folder / "tiny.gguf", **changes)
    out = folder / "out"
    out.mkdir()
    convert(folder / "tiny.gguf", out, job, lambda done: None)
    return out


@pytest.mark.engine
@pytest.mark.parametrize("tied", [True, False])
def test_weights_equal_transformers_own(tmp_path: Path, tied: bool) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    out = _convert(tmp_path, tied=tied)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="tiny.gguf", dtype=torch.bfloat16)
    ours, told = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert {key: found for key, found in told.items() if found} == {}
    assert ours.dtype == torch.bfloat16
    expected = theirs.state_dict()
    assert ours.state_dict().keys() == expected.keys()
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    for key in ("rope_parameters", "max_position_embeddings", "num_key_value_heads", "head_dim", "eos_token_id"):
        assert getattr(ours.config, key) == getattr(theirs.config, key), key
    assert np.float32(ours.config.rms_norm_eps) == np.float32(theirs.config.rms_norm_eps)


@pytest.mark.engine
def test_the_tokenizer_spells_and_parts_as_the_model_was_trained(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(_convert(tmp_path))
    words = tokens()
    for text in ("the thing", "漢 é 🤖", "a\n\n b", "<|im_start|>user the<|im_end|>"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert [words[number] for number in tokenizer("<|im_end|>the  12")["input_ids"]] == [
        "<|im_end|>", "the", "ĠĠ", "1", "2",
    ]  # fmt: skip
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.model_max_length) == ("<|im_start|>", "<|im_end|>", 128)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == "xé"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"without": ["blk.1.attn_q.weight"]}, r"lacks: blk\.1\.attn_q"),
        ({"without": ["token_embd.weight"]}, r"lacks: token_embd"),
        ({"extra": ["blk.0.attn_q_norm.weight"]}, r"attn_q_norm"),
        ({"extra": ["rope_freqs.weight"]}, r"rope_freqs"),
        ({"pre": "qwen2"}, r"qwen2"),
        ({"tokenizer": "llama"}, r"llama"),
        ({"architecture": "gemma"}, r"gemma"),
    ],
)
def test_a_file_that_can_t_become_a_whole_model_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(BrokenModel, match=words):
        _convert(tmp_path, **changes)
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_stop_is_heard_between_pieces(tmp_path: Path) -> None:
    events: list[Event] = []
    job = Job(events.append)
    write_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "out").mkdir()
    seen: list[int] = []

    def stop_at_the_third(done: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            job.stop.set()

    with pytest.raises(Stopped):
        convert(tmp_path / "tiny.gguf", tmp_path / "out", job, stop_at_the_third)
    assert len(seen) == 3
    assert seen == sorted(seen)


@pytest.mark.engine
def test_bfloat16_rounds_as_torch_does() -> None:
    import torch

    random = np.random.default_rng(1)
    bits = random.integers(0, 2**32, 200_000, np.uint32)
    ties = (np.arange(2**14, dtype=np.uint32) << 17) | np.uint32(0x8000)
    numbers = np.concatenate([bits, ties, ties | np.uint32(0x10000)]).view(np.float32)
    numbers = numbers[np.isfinite(numbers)]
    expected = torch.from_numpy(numbers).to(torch.bfloat16).view(torch.uint16).numpy()
    assert np.array_equal(_bfloat16(numbers), expected)


def test_generation_ends_where_the_configuration_says(tmp_path: Path) -> None:
    out = _convert(tmp_path)
    config = json.loads((out / "config.json").read_text("utf-8"))
    generation = json.loads((out / "generation_config.json").read_text("utf-8"))
    assert (config["eos_token_id"], generation["eos_token_id"]) == (2, 2)
    assert config["rms_norm_eps"] == 1e-05
