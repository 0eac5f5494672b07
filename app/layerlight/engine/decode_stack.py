"""A stack of decoder layers that decodes as a model does: the yardstick of a machine's decode speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from layerlight.core.job import Job
from layerlight.engine.streamed_layers import stream
from layerlight.engine.watching import LayerWatch

VOCABULARY = 64
ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class StackSize:
    """Layers of a Llama: how many, and their widths."""

    layers: int
    hidden: int
    intermediate: int
    heads: int = 8
    key_value_heads: int = 4

    @property
    def layer_parameters(self) -> int:
        """Parameters of one decoder layer."""
        narrow = self.hidden * self.key_value_heads // self.heads
        return self.hidden * (2 * self.hidden + 2 * narrow + 3 * self.intermediate + 2)

    def buffer_bytes(self, width: int) -> int:
        """Bytes that the whole stack takes in a buffer, each tensor aligned; `width` is bytes of an element."""
        tensors = 9 * self.layers + 3
        elements = self.layers * self.layer_parameters + self.hidden * (2 * VOCABULARY + 1)
        return elements * width + tensors * ALIGNMENT


class DecodeStack:
    """A model of this size whose weights are views into one buffer, so that several stacks can share it."""

    def __init__(self, size: StackSize, dtype: torch.dtype, buffer: torch.Tensor) -> None:
        """`buffer` holds bytes on the device that runs the stack; its content does not matter while it is finite."""
        self.size = size
        self.layers = tuple(f"model.layers.{index}" for index in range(size.layers))
        self.layer_bytes = size.layer_parameters * dtype.itemsize
        self._device = buffer.device
        self.model = _empty_model(size, dtype)
        _fill(self.model, dtype, buffer)
        _add_rotary(self.model, buffer.device)

    def seconds(self, job: Job, tokens: int = 4, between: Callable[[], None] = lambda: None) -> float:
        """Median seconds per layer of a decode pass, on the way that answers take: hooks, sampling and all.

        `between` is called after each token and is not timed. Raises Stopped inside a pass when asked to stop.
        """
        from transformers import GenerationConfig

        clock = _Clock(between)
        ids = torch.zeros(1, 1, dtype=torch.long, device=self._device)
        settings = GenerationConfig(do_sample=False, max_new_tokens=tokens, pad_token_id=0, use_cache=True)
        watch = LayerWatch(self.layers, {}, Job(lambda _event: None, job.stop))
        with torch.inference_mode(), watch.on(self.model):
            self.model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings, streamer=clock)
        return clock.seconds() / self.size.layers


class StackOnDisk:
    """The same stack with its last layers left in a safetensors file, read for each pass as a model's are."""

    def __init__(self, size: StackSize, dtype: torch.dtype, buffer: torch.Tensor, file: Path, on_disk: int) -> None:
        """Writes `file` from the buffer in RAM; `on_disk` layers stay in it. Raises OSError when there is no room."""
        from safetensors.torch import save_file

        self.stack = DecodeStack(size, dtype, buffer)
        self.file = file
        model = self.stack.model
        weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        save_file(weights, str(file))
        index = {weight: {"safetensors_file": str(file)} for weight in weights}
        self.on_disk = self.stack.layers[-on_disk:]
        for layer in self.on_disk:
            _empty(model.get_submodule(layer))
        self._streamed = stream(model, self.on_disk, index)

    def close(self) -> None:
        """Ends the threads that read it."""
        self._streamed.close()

    @property
    def bytes_on_disk(self) -> int:
        """Bytes that a pass reads."""
        return self.stack.layer_bytes * len(self.on_disk)

    def seconds(self, job: Job, tokens: int = 4) -> float:
        """Median seconds per layer of a decode pass."""
        return self.stack.seconds(job, tokens)


class _Clock:
    """What generate() hands tokens to; notes when each arrived. The prompt itself comes first."""

    def __init__(self, between: Callable[[], None]) -> None:
        self._between = between
        self._began = 0.0
        self._passes: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        value.tolist()  # on a device this waits for the token, as an answer does
        if self._began:
            self._passes.append(time.perf_counter() - self._began)
            self._between()
        self._began = time.perf_counter()

    def end(self) -> None:
        """generate() says so when it is done; the times are read later."""

    def seconds(self) -> float:
        """Median seconds of a pass. The first token took the prompt's own pass, and is left out."""
        return median(self._passes[1:])


def _empty_model(size: StackSize, dtype: torch.dtype) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    with torch.device("meta"):
        return LlamaForCausalLM(config).to(dtype).eval()


def _fill(model: Any, dtype: torch.dtype, buffer: torch.Tensor) -> None:
    offset = 0
    for module in model.modules():
        for name, empty in list(module.named_parameters(recurse=False)):
            size = empty.numel() * dtype.itemsize
            view = buffer[offset : offset + size].view(dtype).view(empty.shape)
            setattr(module, name, torch.nn.Parameter(view, requires_grad=False))
            offset += -(-size // ALIGNMENT) * ALIGNMENT


def _empty(layer: torch.nn.Module) -> None:
    for module in layer.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, torch.nn.Parameter(parameter.to("meta"), requires_grad=False))


def _add_rotary(model: Any, device: torch.device) -> None:
    """Its frequencies are made by its constructor, which the empty device left without values."""
    with torch.device(device):
        model.model.rotary_emb = type(model.model.rotary_emb)(config=model.config)


def zeroed(size: int, place: str = "cpu") -> torch.Tensor:
    """Bytes that are really there: written once, so that no page is the system's one page of zeros."""
    return torch.empty(size, dtype=torch.uint8, device=place).zero_()
