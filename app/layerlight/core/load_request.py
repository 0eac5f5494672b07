"""Plan → the request an engine can carry out."""

from __future__ import annotations

from dataclasses import replace

from layerlight.core.messages import LoadRequest
from layerlight.core.plan import Plan


def load_request(plan: Plan, offload_folder: str | None = None) -> LoadRequest:
    """The complete request for a plan. `offload_folder` chooses the disk for layers that can't rest in their files."""
    return LoadRequest(
        folder=plan.model.folder,
        placements=plan.placements,
        dtype=plan.dtype,
        context=plan.budget.context,
        quantization=plan.wishes.quantization,
        attention=plan.attention,
        prefill_chunk=plan.prefill_chunk,
        offload_folder=offload_folder,
        kv=plan.wishes.kv,
    )


def loads_alike(plan: Plan, other: Plan) -> bool:
    """Whether two plans would load the same. Bytes and reasons may differ: an exact count moves no layer."""
    return _bare(load_request(plan)) == _bare(load_request(other))


def _bare(request: LoadRequest) -> LoadRequest:
    return replace(request, placements=tuple(replace(each, size=0, reason="") for each in request.placements))
