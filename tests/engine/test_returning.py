"""Memory goes back in the order that works: collect, let the device finish, empty its cache."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest
import torch

from layerlight.engine.returning import give_back


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (("mps", "cpu", "disk"), ["gc", "mps synchronize", "mps empty"]),
        (("cpu",), ["gc"]),
        (("cuda:0", "cuda:1", "disk"), ["gc", "cuda synchronize 0", "cuda synchronize 1", "cuda empty"]),
        ((), ["gc"]),
    ],
)
def test_the_order_on_every_kind_of_device(
    places: tuple[str, ...], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a recording fake of torch.mps and torch.cuda: the one on a Mac takes no device number."""
    calls: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: calls.append("gc"))
    monkeypatch.setattr(
        torch, "mps",
        SimpleNamespace(
            synchronize=lambda: calls.append("mps synchronize"), empty_cache=lambda: calls.append("mps empty")
        ),
    )  # fmt: skip
    monkeypatch.setattr(
        torch, "cuda",
        SimpleNamespace(
            synchronize=lambda index: calls.append(f"cuda synchronize {index}"),
            empty_cache=lambda: calls.append("cuda empty"),
        ),
    )  # fmt: skip
    give_back(places)
    assert calls == expected
