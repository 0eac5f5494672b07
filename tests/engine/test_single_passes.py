"""Passes of many tokens in single precision: the same result, rounded once less, and only where that pays off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from layerlight.engine import single_passes
from layerlight.engine.engine import TorchEngine
from layerlight.engine.single_passes import FROM_TOKENS, SingleLinear, compute_in_single, single_linear
from tests.engine.events import Events, ask
from tests.engine.tiny_models import request_for


def _pays(monkeypatch: pytest.MonkeyPatch, *, pays: bool) -> None:
    monkeypatch.setattr(single_passes, "pays_off", lambda _dtype: pays)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 16, 48), (3, 90, 48), (300, 48)])
def test_it_is_the_single_result_rounded(
    shape: tuple[int, ...], bias: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many blocks of rows and of tokens it takes."""
    monkeypatch.setattr(single_passes, "_WEIGHTS", 48 * 20)
    single_passes._buffer.cache_clear()
    torch.manual_seed(0)
    inputs, weight = torch.randn(shape, dtype=dtype), torch.randn(70, 48, dtype=dtype)
    added = torch.randn(70, dtype=dtype) if bias else None
    result = single_linear(inputs, weight, added)
    expected = functional.linear(inputs.float(), weight.float(), None if added is None else added.float())
    single_passes._buffer.cache_clear()
    assert result.dtype == dtype
    assert result.shape == (*shape[:-1], 70)
    torch.testing.assert_close(result, expected.to(dtype), rtol=2**-7, atol=2**-7)


def test_a_row_longer_than_the_buffer_has_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_passes, "_WEIGHTS", 16)
    inputs, weight = torch.ones(20, 48, dtype=torch.bfloat16), torch.ones(3, 48, dtype=torch.bfloat16)
    assert single_linear(inputs, weight, None).tolist() == [[48.0] * 3] * 20


@pytest.mark.parametrize(("tokens", "single"), [(1, False), (FROM_TOKENS - 1, False), (FROM_TOKENS, True)])
def test_few_tokens_are_computed_as_ever(tokens: int, single: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding one token would only wait for the weights to be turned."""
    asked: list[int] = []

    def heard(inputs: torch.Tensor, *weights: torch.Tensor | None) -> torch.Tensor:
        asked.append(inputs.shape[0])
        return single_linear(inputs, weights[0], weights[1])  # type: ignore[arg-type]

    monkeypatch.setattr(single_passes, "single_linear", heard)
    layer = torch.nn.Linear(8, 8, dtype=torch.bfloat16)
    layer.__class__ = SingleLinear
    with torch.inference_mode():
        layer(torch.ones(tokens, 8, dtype=torch.bfloat16))
    assert asked == ([tokens] if single else [])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layers_here_take_many_tokens_so(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those whose forward a library's hook has taken, nor other kinds of modules."""
    _pays(monkeypatch, pays=True)
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4, dtype=dtype) for _ in range(3)), torch.nn.LayerNorm(4))
    model[1].forward = model[1].forward
    assert compute_in_single(model, dtype) == 2
    assert [type(each) for each in model] == [SingleLinear, torch.nn.Linear, SingleLinear, torch.nn.LayerNorm]


@pytest.mark.parametrize(("dtype", "pays"), [(torch.float32, True), (torch.bfloat16, False)])
def test_nothing_changes_where_it_does_not_pay(dtype: torch.dtype, pays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    _pays(monkeypatch, pays=pays)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, dtype=dtype))
    assert compute_in_single(model, dtype) == 0
    assert type(model[0]) is torch.nn.Linear


@pytest.mark.engine
def test_the_same_tokens_wherever_layers_rest(
    engine: TorchEngine, model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights that it turns may be in a buffer of the ring only while the pass lasts."""
    _pays(monkeypatch, pays=True)
    folder, text = model_folder("llama"), "a long prompt " * 3
    engine.load(request_for(folder, dtype="bfloat16"), Events().job())
    in_ram = ask(engine, text)
    assert in_ram.prompt_tokens >= FROM_TOKENS
    assert engine.loaded is not None
    assert any(type(module) is SingleLinear for module in engine.loaded.model.modules())
    engine.load(request_for(folder, lambda index, count: "disk" if index else "cpu", dtype="bfloat16"), Events().job())
    assert engine.loaded.streamed is not None
    assert ask(engine, text).tokens == in_ram.tokens
