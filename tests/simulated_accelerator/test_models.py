"""Whole models on simulated devices: the CPU's tokens, from every mixture of places."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

pytestmark = pytest.mark.simulated
Simulated = Callable[..., ModuleType]
MIB = 1 << 20
LAYERS = 6
PROMPT = torch.tensor([[5, 17, 301, 44, 8, 120, 9]])
ENDS = {"model.embed_tokens": "sim:0", "model.rotary_emb": "sim:0", "model.norm": "sim:1", "lm_head": "sim:1"}
MIXTURES = {
    "one device": ("sim:0",) * 6,
    "two devices": ("sim:0",) * 3 + ("sim:1",) * 3,
    "two devices and RAM": ("sim:0", "sim:0", "sim:1", "sim:1", "cpu", "cpu"),
    "two devices and disk": ("sim:0", "sim:0", "sim:1", "disk", "disk", "sim:1"),
    "all four": ("disk", "cpu", "sim:0", "sim:1", "disk", "cpu"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama with grouped-query attention."""
    logging.disable_progress_bar()
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=320, max_position_embeddings=256,
    )  # fmt: skip
    made = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(config).save_pretrained(made)
    return made


def _load(folder: Path, places: dict[str, str] | str, dtype: torch.dtype, attention: str) -> LlamaForCausalLM:
    model = LlamaForCausalLM.from_pretrained(folder, device_map=places, dtype=dtype, attn_implementation=attention)
    assert isinstance(model, LlamaForCausalLM)
    return model


def _tokens(model: LlamaForCausalLM, prompt: torch.Tensor) -> list[int]:
    result = model.generate(prompt, max_new_tokens=12, do_sample=False, pad_token_id=0)
    return result[0].tolist()


def _map(places: tuple[str, ...]) -> dict[str, str]:
    return ENDS | {f"model.layers.{index}": place for index, place in enumerate(places)}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mixture", MIXTURES)
def test_the_same_tokens_from_every_mixture_of_places(
    simulated: Simulated, folder: Path, mixture: str, dtype: torch.dtype, attention: str
) -> None:
    simulated([64 * MIB, 64 * MIB])
    expected = _tokens(_load(folder, "cpu", dtype, attention), PROMPT)
    placed = _load(folder, _map(MIXTURES[mixture]), dtype, attention)
    assert _tokens(placed, PROMPT.to("sim:0")) == expected


def test_weights_take_their_exact_bytes_and_give_them_back(simulated: Simulated, folder: Path) -> None:
    sim = simulated([64 * MIB, 64 * MIB])
    model = _load(folder, _map(MIXTURES["two devices"]), torch.float32, "sdpa")
    for index in range(2):
        on_device = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
            for tensor in (*model.parameters(), *model.buffers())
            if tensor.device.index == index
        }
        assert sim.memory_allocated(index) == sum(on_device.values()) > 0
    del model, on_device
    gc.collect()
    assert sim.memory_allocated(0) == sim.memory_allocated(1) == 0


def test_streamed_layers_cross_once_a_pass_and_resident_ones_never(simulated: Simulated, folder: Path) -> None:
    sim = simulated([64 * MIB])
    places = dict.fromkeys(ENDS, "sim:0") | {f"model.layers.{i}": "sim:0" if i < 4 else "cpu" for i in range(LAYERS)}
    model = _load(folder, places, torch.float32, "sdpa")
    layer_bytes = sum(parameter.nbytes for parameter in model.model.layers[0].parameters())
    tokens, position = PROMPT.to("sim:0"), torch.arange(7, device="sim:0")[None]
    mask = torch.ones_like(tokens)
    with torch.no_grad():
        moved = []
        for _ in range(2):
            sim.reset_transfers(0)
            model(tokens, position_ids=position, attention_mask=mask, use_cache=False)
            moved.append(sim.transfers(0).to_device)
    assert moved[0] == moved[1]
    assert 2 * layer_bytes <= moved[0] < 2 * layer_bytes + 4096


def test_a_model_too_large_overflows_for_real(simulated: Simulated, folder: Path) -> None:
    sim = simulated([64 * MIB, MIB // 2])
    with pytest.raises(torch.OutOfMemoryError, match=r"Device 1 has a total capacity of 0\.50 MiB"):
        _load(folder, "sim:1", torch.float32, "eager")
    gc.collect()
    assert sim.overflows(1) > 0
    assert sim.memory_allocated(1) == 0


def test_a_long_answer_overflows_when_only_the_weights_fit(simulated: Simulated, folder: Path) -> None:
    sim = simulated([64 * MIB])
    model = _load(folder, "sim:0", torch.float32, "eager")
    sim.set_total(0, sim.memory_allocated(0) + MIB // 4)
    with pytest.raises(torch.OutOfMemoryError):
        model.generate(PROMPT.repeat(1, 20).to("sim:0"), max_new_tokens=50, do_sample=False, pad_token_id=0)
