"""Random language models of any size in the standard folder format: real loads and real work, no meaning."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

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
    if folder.is_dir():
        return folder
    making = folder.with_name(f".{folder.name}-{os.getpid()}")
    making.mkdir(parents=True, exist_ok=True)
    try:
        write_tokenizer(making)
        _write_weights(making, hidden, intermediate, layers, heads, key_value_heads, context)
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def _write_weights(
    folder: Path, hidden: int, intermediate: int, layers: int, heads: int, key_value_heads: int, context: int
) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

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
    torch.manual_seed(0)
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
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
