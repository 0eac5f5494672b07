"""Conversion: a GGUF file of the Llama architecture → a normal bf16 safetensors folder, tensor by tensor.

transformers can do it too, in one piece of half a minute that can't be stopped and with the whole model in memory.
The result is the same to the bit.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from layerlight.core.errors import BrokenModel
from layerlight.core.job import Job
from layerlight.engine.gguf_file import Floats, GgufFile, GgufTensor, read_gguf

WEIGHTS = "model.safetensors"
Words = np.ndarray[Any, np.dtype[np.uint16]]

_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_DIGITS = {"type": "Digits", "individual_digits": True}
_PRE_TOKENIZERS = {
    "gpt-2": _BYTE_LEVEL,
    "smollm": {"type": "Sequence", "pretokenizers": [_DIGITS, _BYTE_LEVEL]},
}
"""By the name in the file. smollm parts digits first, as the model was trained; transformers' own conversion leaves
that out and so cuts spaces before digits differently."""
_CONTROL, _USER_DEFINED = 3, 4
_SYNC = 32 * 2**20
"""Bytes between two calls of fsync, so that none of them waits long for the disk."""


@dataclass(frozen=True, slots=True)
class Converted:
    """What was written: the weight file's bytes and their sha256."""

    size: int
    sha256: str


def convert(source: Path, folder: Path, job: Job, progress: Callable[[int], None]) -> Converted:
    """Writes config, tokenizer and weights of a Llama-architecture GGUF file into `folder`, which exists.

    `progress` is told the bytes of the weight file so far. Raises BrokenModel for a file of another kind or one that
    lacks something, Stopped within a piece of 16 MiB.
    """
    gguf = read_gguf(source, job.check)
    config = _config(gguf)
    names = _names(gguf, config["num_hidden_layers"])
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", _generation_config(config))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(gguf, config))
    job.check()
    _write_json(folder / "tokenizer.json", _tokenizer(gguf), indent=None)
    template = gguf.values.get("tokenizer.chat_template")
    if template:
        (folder / "chat_template.jinja").write_text(template, "utf-8", newline="\n")
    job.check()
    return _write_weights(folder / WEIGHTS, gguf, names, config, job, progress)


# -- what the configuration says --------------------------------------------------------------------------------------


def _config(gguf: GgufFile) -> dict[str, Any]:
    architecture = gguf.value("general.architecture")
    if architecture != "llama":
        raise BrokenModel(f"{gguf.path.name} is of the architecture “{architecture}”, where llama was expected.")
    heads = gguf.value("llama.attention.head_count")
    width = gguf.value("llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": gguf.value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": gguf.value("tokenizer.ggml.eos_token_id"),
        "pad_token_id": gguf.values.get("tokenizer.ggml.padding_token_id"),
        "head_dim": width // heads,
        "hidden_act": "silu",
        "hidden_size": width,
        "initializer_range": 0.02,
        "intermediate_size": gguf.value("llama.feed_forward_length"),
        "max_position_embeddings": gguf.value("llama.context_length"),
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": gguf.value("llama.block_count"),
        "num_key_value_heads": gguf.values.get("llama.attention.head_count_kv", heads),
        "rms_norm_eps": _shortest(gguf.value("llama.attention.layer_norm_rms_epsilon")),
        "rope_parameters": {
            "rope_theta": _shortest(gguf.values.get("llama.rope.freq_base", 10000.0)),
            "rope_type": "default",
        },
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "use_cache": True,
        "vocab_size": len(gguf.value("tokenizer.ggml.tokens")),
    }


def _generation_config(config: dict[str, Any]) -> dict[str, Any]:
    return {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}


def _shortest(number: float) -> float:
    """The shortest decimal that is the same float32: 1e-05 for 9.99999974737875e-06."""
    return float(str(np.float32(number)))


# -- the tokenizer ----------------------------------------------------------------------------------------------------


def _tokenizer_config(gguf: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    tokens = gguf.value("tokenizer.ggml.tokens")
    special = {
        "bos_token": config["bos_token_id"],
        "eos_token": config["eos_token_id"],
        "pad_token": config["pad_token_id"],
        "unk_token": gguf.values.get("tokenizer.ggml.unknown_token_id"),
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
        **{name: tokens[number] for name, number in special.items() if number is not None},
    }


def _tokenizer(gguf: GgufFile) -> dict[str, Any]:
    """tokenizer.json of a byte-level BPE tokenizer."""
    kind, cut = gguf.value("tokenizer.ggml.model"), gguf.values.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or cut not in _PRE_TOKENIZERS:
        raise BrokenModel(f"{gguf.path.name} has a tokenizer of the kind “{kind}”, “{cut}”, which can't be converted.")
    tokens = gguf.value("tokenizer.ggml.tokens")
    kinds = gguf.values.get("tokenizer.ggml.token_type", [])
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": tokens[number],
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind == _CONTROL,
            }
            for number, kind in enumerate(kinds)
            if kind in (_CONTROL, _USER_DEFINED)
        ],
        "normalizer": None,
        "pre_tokenizer": _PRE_TOKENIZERS[cut],
        "post_processor": None,
        "decoder": {**_BYTE_LEVEL, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in gguf.value("tokenizer.ggml.merges")],
        },
    }


# -- the weights ------------------------------------------------------------------------------------------------------


def _names(gguf: GgufFile, layers: int) -> dict[str, GgufTensor]:
    """Tensors by transformers' names, sorted. Raises BrokenModel for any that is missing or unknown."""
    inner = {
        f"blk.{number}.{name}.weight": f"model.layers.{number}.{module}.weight"
        for number in range(layers)
        for name, module in _INNER.items()
    }
    known = {**_OUTER, **inner}
    unknown = sorted(set(gguf.tensors) - set(known))
    missing = sorted(set(known) - set(gguf.tensors) - {"output.weight"})
    for words, names in (("has a tensor that Llama models have not", unknown), ("lacks", missing)):
        if names:
            raise BrokenModel(f"{gguf.path.name} {words}: {', '.join(names[:4])}.")
    return dict(sorted((known[name], tensor) for name, tensor in gguf.tensors.items()))


def _write_weights(
    path: Path,
    gguf: GgufFile,
    names: dict[str, GgufTensor],
    config: dict[str, Any],
    job: Job,
    progress: Callable[[int], None],
) -> Converted:
    header = _safetensors_header(names)
    digest = hashlib.sha256(header)
    with path.open("wb") as file:
        file.write(header)
        synced = 0
        for name, tensor in names.items():
            for piece in _pieces(gguf, name, tensor, config):
                job.check()
                words = _bfloat16(piece).astype("<u2", copy=False).tobytes()
                file.write(words)
                digest.update(words)
                synced = _sync(file, synced, _SYNC)
                progress(file.tell())
        _sync(file, synced, 0)
        return Converted(file.tell(), digest.hexdigest())


def _sync(file: BinaryIO, synced: int, after: int) -> int:
    """Brings the file to the disk once `after` bytes have come since; the position that is safe by now."""
    if file.tell() - synced < after:
        return synced
    file.flush()
    os.fsync(file.fileno())
    return file.tell()


def _safetensors_header(names: dict[str, GgufTensor]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in names.items():
        end = offset + 2 * tensor.rows * tensor.shape[-1]
        entries[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _pieces(gguf: GgufFile, name: str, tensor: GgufTensor, config: dict[str, Any]) -> Iterator[Floats]:
    if name.endswith(".q_proj.weight"):
        yield _rotary_order(np.concatenate(list(gguf.pieces(tensor))), config["num_attention_heads"])
    elif name.endswith(".k_proj.weight"):
        yield _rotary_order(np.concatenate(list(gguf.pieces(tensor))), config["num_key_value_heads"])
    else:
        yield from gguf.pieces(tensor)


def _rotary_order(weight: Floats, heads: int) -> Floats:
    """Rows of each head in transformers' order, halves, where llama.cpp keeps the pairs that are rotated together."""
    paired = weight.reshape(heads, -1, 2, weight.shape[-1])
    return paired.swapaxes(1, 2).reshape(weight.shape)


def _bfloat16(numbers: Floats) -> Words:
    """The nearest bfloat16 of each number, ties to even, as its 16 bits. The numbers are finite."""
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    rounded = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))
    return (rounded >> 16).astype(np.uint16)


def _write_json(path: Path, data: dict[str, Any], indent: int | None = 2) -> None:
    path.write_text(json.dumps(data, indent=indent, ensure_ascii=False) + "\n", "utf-8", newline="\n")
