"""What `plan` and `run` ask of a plan, from the options to the planner's own words."""

from __future__ import annotations

from dataclasses import dataclass

from layerlight.core.device import Budget
from layerlight.core.errors import BadRequest
from layerlight.core.model import Model
from layerlight.core.placing import ENGINE_STRATEGIES, default_context
from layerlight.core.plan import Wishes
from layerlight.core.planning.placement_map import read_map_file
from layerlight.core.planning.workload import USUAL, Workload


@dataclass(frozen=True, slots=True)
class PlanWishes:
    """The options. `folder` is what stands for the model: a folder, a public model's name or `hub:org/name`."""

    folder: str
    limits: tuple[tuple[str, int], ...] = ()
    context: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    attention: str = "sdpa"
    map_file: str | None = None
    offload_folder: str | None = None
    pins: tuple[tuple[str, str], ...] = ()
    strategy: str = "fastest"
    workload: Workload = USUAL
    machine: str | None = None
    """A machine's name or file, in place of this one."""
    kv: str = ""
    """What keys and values are kept in: see `Wishes.kv`."""

    def __post_init__(self) -> None:
        by_hand = "--map" if self.map_file else "--pin" if self.pins else ""
        if by_hand and self.strategy in ENGINE_STRATEGIES:
            raise BadRequest(
                f"--strategy {self.strategy} is accelerate's own and knows nothing of {by_hand}.",
                hint=f"Leave one of them out; fastest and most-on-gpu plan around {by_hand}.",
            )
        if self.map_file and self.pins:
            raise BadRequest(
                "A map places every layer: there is nothing left to pin.", hint="Leave --map or --pin out."
            )

    def budget(self, model: Model) -> Budget:
        return Budget.of(self.limits, default_context(model) if self.context is None else self.context)

    def asked(self, model: Model) -> Wishes:
        """The planner's wishes, with the map read. Raises BadRequest and MapMismatch for one that can't be used."""
        return Wishes(
            self.dtype,
            self.quantization,
            self.attention,
            self._map(model),
            self.pins,
            self.strategy,
            self.workload,
            self.kv,
        )

    def _map(self, model: Model) -> tuple[tuple[str, str], ...]:
        if self.map_file is None:
            return ()
        return read_map_file(self.map_file, model)
