"""Tiny random models that transformers makes and loads, with a tokenizer that knows every byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    PreTrainedTokenizerFast,
    Qwen3MoeConfig,
)

from layerlight.core.device import Budget, Device, Machine
from layerlight.core.inspection import inspect_folder
from layerlight.core.load_request import load_request
from layerlight.core.messages import LoadRequest
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes

VOCABULARY = 258
"""All bytes, a beginning and an end."""
CHAT = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}[assistant]"

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
    "initializer_range": 0.25,
}

CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(**_SIZES | {"num_hidden_layers": 12}),
    "tied": lambda: LlamaConfig(**_SIZES, tie_word_embeddings=True),
    "sliding": lambda: Gemma3TextConfig(**_SIZES | {"num_hidden_layers": 6}, head_dim=8, sliding_window=8),
    "gpt2": lambda: GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=1,
        initializer_range=0.25,
    ),
    "mixtral": lambda: MixtralConfig(**_SIZES, num_local_experts=4),
    "qwen3_moe": lambda: Qwen3MoeConfig(
        **_SIZES, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
}  # fmt: skip

FUSED = ("mixtral", "qwen3_moe")
"""Architectures whose experts are merged while loading."""


def byte_tokenizer(chat_template: str | None = None, *, adds_bos: bool = False) -> PreTrainedTokenizerFast:
    """Every byte is a token: an emoji is four of them."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<s>", "</s>"]
    )
    inner.train_from_iterator([], trainer)
    if adds_bos:
        from tokenizers.processors import TemplateProcessing

        inner.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = chat_template
    return tokenizer


def write_model(
    folder: Path,
    kind: str = "llama",
    *,
    chat_template: str | None = None,
    change: Callable[[Any], None] = lambda model: None,
    shard: str = "5GB",
    **sizes: Any,
) -> Path:
    """A whole bf16 model folder of this kind; `change` may alter the live model before it is saved."""
    torch.manual_seed(7)
    config = CONFIGS[kind]()
    for name, value in sizes.items():
        setattr(config, name, value)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    change(model)
    model.save_pretrained(folder, max_shard_size=shard)
    byte_tokenizer(chat_template).save_pretrained(folder)
    return folder


def machine(*accelerators: str) -> Machine:
    """These accelerators, RAM and a disk, each with plenty of room."""
    room = 2**34
    return Machine(
        (
            *(Device(each, each.partition(":")[0], each, room, room) for each in accelerators),
            Device("cpu", "cpu", "RAM", room, room),
            Device("disk", "disk", "Disk", room, room),
        )
    )


def request_for(
    folder: Path,
    place_of: Callable[[int, int], str] = lambda index, count: "cpu",
    *,
    dtype: str = "float32",
    context: int = 64,
    on: Machine | None = None,
    offload_folder: Path | None = None,
    quantization: str | None = None,
) -> LoadRequest:
    """The request for a plan by hand: `place_of(index, count)` for each layer, tied ones beside their first."""
    model = inspect_folder(folder)
    names = [layer.name for layer in model.layers]
    places = {name: place_of(index, len(names)) for index, name in enumerate(names)}
    for group in model.tied:
        places.update(dict.fromkeys(group, places[group[0]]))
    by_hand = () if quantization else tuple(places.items())
    wishes = Wishes(
        dtype=dtype,
        quantization=quantization,
        attention="eager" if dtype == "bfloat16" else "sdpa",
        map=by_hand,
    )
    plan = make_plan(model, on or machine(), Budget(context=min(context, model.context_length or context)), wishes)
    return load_request(plan, str(offload_folder) if offload_folder else None)


def plain_tokens(folder: Path, text: str, dtype: str, count: int) -> list[int]:
    """What transformers alone answers, greedily, all in RAM, by the class that the folder's config names."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    attention = "eager" if dtype == "bfloat16" else "sdpa"
    (architecture,) = AutoConfig.from_pretrained(folder).architectures
    own_class: Any = getattr(transformers, architecture)
    model = own_class.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation=attention)
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=1
    )
    return [int(token) for token in out[0, ids.shape[1] :]]
