"""Passes of many tokens in half precision on a CPU that is faster in single: weights go through a small fp32 buffer."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import torch
from torch.nn import functional

FROM_TOKENS = 16
"""Tokens of a pass from which turning the weights into single precision costs less than it saves."""
PAYS_FROM = 1.5
"""How many times faster it must be measured."""
_WEIGHTS = 2**20
"""Elements of a weight that are turned at once: the buffer stays in the processor's cache."""
_TOKENS = 128
"""Of the inputs at once: beside the buffer it all takes a few MB."""
_HALF = (torch.bfloat16, torch.float16)


class SingleLinear(torch.nn.Linear):
    """A Linear that computes passes of many tokens in single precision, a few rows of its weight at a time."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The same as Linear's, rounded once less."""
        if input.numel() // self.in_features >= FROM_TOKENS and _turnable(input, self.weight):
            return single_linear(input, self.weight, self.bias)
        return super().forward(input)


def single_linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`functional.linear` in single precision: inputs of (…, columns), a weight of (rows, columns)."""
    flat = inputs.reshape(-1, weight.shape[1])
    result = inputs.new_empty(flat.shape[0], weight.shape[0])
    step = max(1, _WEIGHTS // weight.shape[1])
    for first in range(0, weight.shape[0], step):
        rows = slice(first, first + step)
        turned = _turned(weight[rows])
        added = None if bias is None else bias[rows].float()
        for begin in range(0, flat.shape[0], _TOKENS):
            some = slice(begin, begin + _TOKENS)
            result[some, rows] = functional.linear(flat[some].float(), turned, added)
    return result.view(*inputs.shape[:-1], weight.shape[0])


def _turnable(inputs: torch.Tensor, weight: torch.Tensor) -> bool:
    """Not where an accelerator computes, to which a layer's weights may have been brought for a pass of many tokens."""
    return inputs.dtype in _HALF and weight.dtype == inputs.dtype and inputs.device.type == "cpu"


def _turned(weight: torch.Tensor) -> torch.Tensor:
    """In the buffer, where the next one will be too; a single row that is longer has memory of its own."""
    if weight.numel() > _WEIGHTS:
        return weight.float()
    return _buffer()[: weight.numel()].view(weight.shape).copy_(weight)


@cache
def _buffer() -> torch.Tensor:
    """One for the one thread that computes."""
    return torch.empty(_WEIGHTS)


def compute_in_single(model: Any, dtype: torch.dtype) -> int:
    """Has the Linears that rest or run on this CPU take many tokens in single precision, where that pays off.

    Returns how many; 0 on a CPU with instructions for `dtype`, and for weights that are quantised.
    """
    if dtype not in _HALF or not pays_off(dtype):
        return 0
    found = [module for module in model.modules() if type(module) is torch.nn.Linear and _computes_here(module)]
    for module in found:
        module.__class__ = SingleLinear
    return len(found)


def _computes_here(module: torch.nn.Linear) -> bool:
    """Not where a hook of a library has taken its forward, or an accelerator computes it."""
    return "forward" not in vars(module) and module.weight.device.type in ("cpu", "meta")


@cache
def pays_off(dtype: torch.dtype) -> bool:
    """Whether this CPU is so much faster in single precision, measured once (tens of milliseconds where it is)."""
    inputs, weight = torch.ones(64, 1024, dtype=dtype), torch.ones(512, 1024, dtype=dtype)
    with torch.inference_mode():
        single = _soonest(lambda: single_linear(inputs, weight, None))
        return PAYS_FROM * single < _soonest(lambda: functional.linear(inputs, weight))


def _soonest(work: Any) -> float:
    """Seconds of the fastest of a few runs."""
    taken = []
    for _ in range(4):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)
