"""Experts merged part by part: the merged weight and one expert in memory, where transformers holds three times it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import torch

Part = Callable[[], torch.Tensor]
"""Reads one expert's weight from its file, cast and on its device."""


class _Merged:
    """In place of transformers' operations: what comes in is the merged weight already."""

    def convert(
        self, found: dict[str, list[torch.Tensor]], target_patterns: Sequence[str], **_unused: object
    ) -> dict[str, torch.Tensor]:
        ((tensor,),) = found.values()
        return {target_patterns[0]: tensor}


def merge_experts(mapping: Any, after: Callable[[float], None]) -> None:
    """Merges the parts of one parameter where transformers would stack them, and side by side if there are several.

    `mapping` is an entry of transformers' loop over parameters; one of another kind is left as it is. `after` hears the
    share that is done after each part, and may raise.
    """
    columns = _columns(mapping)
    if columns is None:
        return
    mapping.collected_tensors.clear()
    merged = [_filled(columns, after)]
    mapping.collected_tensors[mapping.source_patterns[0]] = [merged.pop]
    mapping.operations = [_Merged()]


def _columns(mapping: Any) -> list[list[Part]] | None:
    """The experts' parts for each source; None where this is no merge that reads them when they are needed."""
    from transformers.core_model_loading import Concatenate, MergeModulelist, WeightConverter

    if type(mapping) is not WeightConverter or mapping.quantization_operation is not None:
        return None
    kinds = [(type(each), getattr(each, "dim", None)) for each in mapping.operations]
    if kinds not in ([(MergeModulelist, 0)], [(MergeModulelist, 0), (Concatenate, 1)]):
        return None
    if len(mapping.target_patterns) != 1 or (len(kinds) == 1 and len(mapping.source_patterns) != 1):
        return None
    columns = [mapping.collected_tensors.get(source, []) for source in mapping.source_patterns]
    lazy = all(callable(part) and not isinstance(part, Future) for column in columns for part in column)
    whole = bool(columns[0]) and len({len(column) for column in columns}) == 1
    return columns if lazy and whole else None


@torch.no_grad()
def _filled(columns: list[list[Part]], after: Callable[[float], None]) -> torch.Tensor:
    """experts × (rows of all columns) × …"""
    first = [column[0]() for column in columns]
    rows = [part.shape[0] for part in first]
    experts = len(columns[0])
    merged = first[0].new_empty((experts, sum(rows), *first[0].shape[1:]))
    del first
    done = 0
    for column, parts in enumerate(columns):
        begin = sum(rows[:column])
        for expert in range(experts):
            merged[expert, begin : begin + rows[column]].copy_(parts[expert]())
            done += 1
            after(done / (experts * len(columns)))
    return merged
