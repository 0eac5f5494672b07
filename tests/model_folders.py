"""Tiny model folders for tests, written without torch: whole, sharded, pickled and broken ones."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)

WIDTHS = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I64": 8, "I32": 4, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1}
TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"

Shapes = Mapping[str, tuple[int, ...]]


def llama_config(**changes: Any) -> dict[str, Any]:
    """A config.json for a llama of three layers; a change to None removes the entry."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
        **changes,
    }
    return {name: value for name, value in config.items() if value is not None}


def llama_shapes(
    layers: int = 3,
    hidden: int = 32,
    inner: int = 48,
    vocabulary: int = 64,
    heads: int = 4,
    key_value_heads: int = 2,
    head: bool = True,
    prefix: str = "model.",
) -> dict[str, tuple[int, ...]]:
    """The tensors of a llama, as its files name them."""
    narrow = hidden // heads * key_value_heads
    shapes: dict[str, tuple[int, ...]] = {f"{prefix}embed_tokens.weight": (vocabulary, hidden)}
    for index in range(layers):
        layer = f"{prefix}layers.{index}."
        shapes |= {
            f"{layer}input_layernorm.weight": (hidden,),
            f"{layer}mlp.down_proj.weight": (hidden, inner),
            f"{layer}mlp.gate_proj.weight": (inner, hidden),
            f"{layer}mlp.up_proj.weight": (inner, hidden),
            f"{layer}post_attention_layernorm.weight": (hidden,),
            f"{layer}self_attn.k_proj.weight": (narrow, hidden),
            f"{layer}self_attn.o_proj.weight": (hidden, hidden),
            f"{layer}self_attn.q_proj.weight": (hidden, hidden),
            f"{layer}self_attn.v_proj.weight": (narrow, hidden),
        }
    shapes[f"{prefix}norm.weight"] = (hidden,)
    if head:
        shapes["lm_head.weight"] = (vocabulary, hidden)
    return shapes


def write_safetensors(path: Path, shapes: Shapes, dtype: str = "BF16", seed: int = 1) -> int:
    """A safetensors file of small pseudo-random values; returns its bytes."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    reached = 0
    for name, shape in shapes.items():
        size = _elements(shape) * WIDTHS[dtype]
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [reached, reached + size]}
        reached += size
    return write_header(path, json.dumps(entries).encode(), _values(reached, dtype, seed))


def write_header(path: Path, header: bytes, data: bytes = b"", claim: int | None = None) -> int:
    """A safetensors file from its parts; `claim` is the header's length as the file states it."""
    padded = header + b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(padded) if claim is None else claim) + padded + data)
    return path.stat().st_size


def write_shards(folder: Path, shapes: Shapes, count: int, dtype: str = "BF16") -> tuple[str, ...]:
    """`count` shards with their index; returns the file names."""
    names = list(shapes)
    weight_map: dict[str, str] = {}
    files = []
    for number in range(count):
        file = f"model-{number + 1:05}-of-{count:05}.safetensors"
        held = names[number * len(names) // count : (number + 1) * len(names) // count]
        write_safetensors(folder / file, {name: shapes[name] for name in held}, dtype, seed=number + 1)
        weight_map |= dict.fromkeys(held, file)
        files.append(file)
    write_index(folder, weight_map)
    return tuple(files)


def write_pickle(path: Path, shapes: Shapes, dtype: str = "BF16", shared: Mapping[str, str] | None = None) -> Path:
    """A `.bin` file as torch.save writes it; `shared` maps a name to the other name whose storage it views."""
    shared = shared or {}
    storages = {name: str(index) for index, name in enumerate(name for name in shapes if name not in shared)}
    program = b"\x80\x02" + _global("collections", "OrderedDict") + b")R("
    for name, shape in shapes.items():
        program += _text(name) + _pickled_tensor(shape, storages[shared.get(name, name)], dtype)
    write_zip(
        path,
        program + b"u.",
        {storages[name]: _values(_elements(shapes[name]) * WIDTHS[dtype], dtype, 1) for name in storages},
    )
    return path


def write_zip(path: Path, program: bytes, storages: Mapping[str, bytes] = MappingProxyType({})) -> Path:
    """The archive that torch.load reads, around any pickle program."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/byteorder", "little")
        for key, data in storages.items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", "3\n")
    return path


def _pickled_tensor(shape: tuple[int, ...], storage: str, dtype: str) -> bytes:
    kind = {"BF16": "BFloat16Storage", "F16": "HalfStorage", "F32": "FloatStorage"}[dtype]
    strides = [_elements(shape[index + 1 :]) for index in range(len(shape))]
    identity = _text("storage") + _global("torch", kind) + _text(storage) + _text("cpu") + _whole(_elements(shape))
    return (
        _global("torch._utils", "_rebuild_tensor_v2")
        + b"(("
        + identity
        + b"tQ"
        + _whole(0)
        + b"("
        + b"".join(_whole(length) for length in shape)
        + b"t("
        + b"".join(_whole(stride) for stride in strides)
        + b"t\x89"
        + _global("collections", "OrderedDict")
        + b")RtR"
    )


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def _whole(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)


def write_index(folder: Path, weight_map: Mapping[str, str], name: str = "model.safetensors.index.json") -> None:
    write_json(folder / name, {"metadata": {"total_size": 0}, "weight_map": dict(weight_map)})


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def write_tokenizer(folder: Path, chat_template: bool = False, words: Iterable[str] = ()) -> None:
    """A word tokenizer of at most 64 tokens that the tokenizers library reads, with or without a chat template."""
    vocabulary = ["<pad>", "<s>", "</s>", "<unk>", *(words or (f"w{index}" for index in range(60)))]
    special = [
        {"id": index, "content": token, "special": True, **dict.fromkeys(("single_word", "lstrip", "rstrip"), False)}
        for index, token in enumerate(vocabulary[:4])
    ]
    write_json(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{**token, "normalized": False} for token in special],
            "normalizer": None,
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": None,
            "decoder": None,
            "model": {
                "type": "WordLevel",
                "vocab": {token: index for index, token in enumerate(vocabulary)},
                "unk_token": "<unk>",
            },
        },
    )
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
    }
    if chat_template:
        settings["chat_template"] = TEMPLATE
    write_json(folder / "tokenizer_config.json", settings)


def write_llama(
    folder: Path, *, shards: int = 0, chat_template: bool = True, dtype: str = "BF16", **changes: Any
) -> Path:
    """A whole llama that transformers loads: config, tokenizer and weights in one file or in shards."""
    folder.mkdir(parents=True, exist_ok=True)
    config = llama_config(**changes)
    write_json(folder / "config.json", config)
    write_tokenizer(folder, chat_template)
    shapes = llama_shapes(
        config.get("num_hidden_layers", 3),
        config["hidden_size"],
        config["intermediate_size"],
        config["vocab_size"],
        config["num_attention_heads"],
        config["num_key_value_heads"],
        head=not config.get("tie_word_embeddings"),
    )
    if shards:
        write_shards(folder, shapes, shards, dtype)
    else:
        write_safetensors(folder / "model.safetensors", shapes, dtype)
    return folder


def write_gguf(path: Path, entries: Mapping[str, str | int | list[str]], tensors: int = 0) -> Path:
    """A GGUF file that has only a header."""
    data = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(entries))
    for key, value in entries.items():
        data += _gguf_string(key)
        if isinstance(value, str):
            data += struct.pack("<I", 8) + _gguf_string(value)
        elif isinstance(value, int):
            data += struct.pack("<II", 4, value)
        else:
            data += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(_gguf_string(word) for word in value)
    path.write_bytes(data)
    return path


def _gguf_string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def _values(size: int, dtype: str, seed: int) -> bytes:
    """Bytes of values between about -0.06 and 0.06, the same for the same seed."""
    import numpy

    numbers = numpy.random.default_rng(seed)
    floats = numbers.uniform(-0.06, 0.06, size // WIDTHS[dtype]).astype("<f4")
    match dtype:
        case "BF16":
            return (floats.view("<u4") >> 16).astype("<u2").tobytes()
        case "F16":
            return floats.astype("<f2").tobytes()
        case "F32":
            return floats.tobytes()
        case "F64":
            return floats.astype("<f8").tobytes()
        case _:
            return bytes(size)
