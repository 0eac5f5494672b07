"""Random language models of any size in the standard folder format: real loads and real work, no meaning."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_SHARD = 256 * 2**20


def random_llama(
    folder: Path,
    hidden: int = 2048,
    intermediate: int = 5632,
    layers: int = 11,
    heads: int = 16,
    key_value_heads: int = 4,
    context: int = 4096,
) -> Path:
    """A Llama with bf16 weights at `folder`, made once: a folder that is there already is returned as it is.

    The vocabulary is the 256 bytes and two special tokens, so that any text is a prompt. The defaults weigh about
    1 GB. It is written beside `folder` and renamed, never half-made.
    """
    return _made_once(
        folder,
        lambda making: _write_weights(making, hidden, intermediate, layers, heads, key_value_heads, context),
    )


def random_experts(folder: Path, hidden: int = 1024, intermediate: int = 512, layers: int = 5) -> Path:
    """The same for a Qwen3 of 64 experts a layer, of which a token uses 4: about 1 GB."""
    return _made_once(folder, lambda making: _write_experts(making, hidden, intermediate, layers))


def _made_once(folder: Path, write: Callable[[Path], None]) -> Path:
    if folder.is_dir():
        return folder
    making = folder.with_name(f".{folder.name}-{os.getpid()}")
    making.mkdir(parents=True, exist_ok=True)
    try:
        write_tokenizer(making)
        write(making)
        _move(making, folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def _move(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError:
        if not folder.is_dir():  # another process may have been faster: its folder is as good
            raise


def _write_experts(folder: Path, hidden: int, intermediate: int, layers: int) -> None:
    from transformers import Qwen3MoeConfig

    _write(
        folder,
        Qwen3MoeConfig(
            vocab_size=258,
            hidden_size=hidden,
            moe_intermediate_size=intermediate,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=8,
            num_key_value_heads=2,
            head_dim=hidden // 8,
            num_experts=64,
            num_experts_per_tok=4,
            max_position_embeddings=4096,
            tie_word_embeddings=False,
            bos_token_id=256,
            eos_token_id=257,
            dtype="bfloat16",
        ),
    )


def _write_weights(
    folder: Path, hidden: int, intermediate: int, layers: int, heads: int, key_value_heads: int, context: int
) -> None:
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=258,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        max_position_embeddings=context,
        tie_word_embeddings=False,
        bos_token_id=256,
        eos_token_id=257,
        dtype="bfloat16",
    )
    _write(folder, config)


def _write(folder: Path, config: Any) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.to_empty(device="cpu")
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.ones_(parameter)
        else:
            torch.nn.init.normal_(parameter, std=0.02)
    model.save_pretrained(folder, max_shard_size=MAX_SHARD)


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer without merges: each byte of the text is a token."""
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel

    vocabulary = {symbol: number for number, symbol in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = Tokenizer(BPE(vocab={**vocabulary, "<s>": 256, "</s>": 257}, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
