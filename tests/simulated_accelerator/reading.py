"""Lets `safetensors.safe_open(…, device="sim:0")` read; its own code knows a fixed list of devices only."""

from __future__ import annotations

import sys
from typing import Any

import safetensors
import torch

_safe_open = safetensors.safe_open


class SafeOpen:
    """`safe_open` for a simulated device, through host memory; for any other device the original is made instead."""

    def __new__(cls, filename: Any, framework: str, device: Any = "cpu", **more: Any) -> Any:
        if isinstance(device, int) or torch.device(device).type != "sim":
            return _safe_open(filename, framework, device, **more)
        made = super().__new__(cls)
        made._place, made._file = device, _safe_open(filename, framework, "cpu", **more)
        return made

    def __enter__(self) -> SafeOpen:
        self._file.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._file.__exit__(*exception)

    def keys(self) -> list[str]:
        return self._file.keys()

    def offset_keys(self) -> list[str]:
        return self._file.offset_keys()

    def metadata(self) -> dict[str, str] | None:
        return self._file.metadata()

    def get_tensor(self, name: str) -> torch.Tensor:
        return self._file.get_tensor(name).to(self._place)

    def get_tensors(self) -> dict[str, torch.Tensor]:
        return {name: self.get_tensor(name) for name in self.offset_keys()}

    def get_slice(self, name: str) -> Slice:
        return Slice(self._file.get_slice(name), self._place)


class Slice:
    def __init__(self, part: Any, place: Any) -> None:
        self._part, self._place = part, place

    def __getitem__(self, key: Any) -> torch.Tensor:
        return self._part[key].to(self._place)

    def get_shape(self) -> list[int]:
        return self._part.get_shape()

    def get_dtype(self) -> str:
        return self._part.get_dtype()


def teach_safetensors() -> None:
    """Puts SafeOpen where the original is, in every module that has imported it."""
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("safe_open") is _safe_open and module is not sys.modules[__name__]:
            module.safe_open = SafeOpen  # type: ignore[attr-defined]
