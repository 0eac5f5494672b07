"""Stands in for what is slow or absent: an engine that answers by script, machines and models made of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from layerlight.core.device import Device, Machine
from layerlight.core.inspecting.config_model import model_from_config
from layerlight.core.messages import (
    DevicesSurveyed,
    EngineStarted,
    EngineStopped,
    EngineWarmed,
    Event,
    LayerActivity,
    LayerPlaced,
    LayerRan,
    LoadProgressed,
    LoadRequest,
    LoadStarted,
    MemoryMeasured,
    ModelLoaded,
    ModelUnloaded,
    PlacedLayer,
    PlaceMemory,
    PromptCounted,
    Request,
    RunFinished,
    RunResult,
    SurveyRequest,
    TextProduced,
    TextRequest,
    UnloadRequest,
)
from layerlight.core.model import Model
from layerlight.core.plan import Placement
from tests.core.models import GIB, MIB, dense

VERSIONS = (("torch", "2.13.0+cpu"), ("transformers", "5.24.0"), ("accelerate", "1.15.0"))


class FakeEngine(QObject):
    """The session's side of an engine. Nothing is answered by itself unless `obliging`; tests tell events."""

    arrived = Signal(object)

    def __init__(self, machine: Machine | None = None, obliging: bool = False) -> None:
        super().__init__()
        self.machine = machine or laptop()
        self.obliging = obliging
        self.sent: list[Request] = []
        self.replaced: list[str] = []
        self.started = 0
        self.closed = False
        self.last_load: LoadRequest | None = None

    # -- what a session does -------------------------------------------------------------------------------------

    def start(self) -> None:
        self.started += 1
        if self.obliging:
            self.warm_up()

    def send(self, request: Request) -> None:
        self.sent.append(request)
        if isinstance(request, LoadRequest):
            self.last_load = request
        if self.obliging:
            self.tell(*self.answer(request))

    def replace(self, reason: str) -> None:
        self.replaced.append(reason)
        self.tell(EngineStopped(True, reason))
        self.warm_up()

    def close(self) -> None:
        self.closed = True

    # -- what a test does ----------------------------------------------------------------------------------------

    def tell(self, *events: Event) -> None:
        self.arrived.emit(list(events))

    def warm_up(self) -> None:
        self.tell(EngineStarted(4242), EngineWarmed(VERSIONS, 3.2))

    def answer(self, request: Request) -> Sequence[Event]:
        """What an engine that finds everything easy would answer."""
        match request:
            case SurveyRequest():
                return [DevicesSurveyed(self.machine)]
            case LoadRequest():
                return [*load_began(request), *load_goes(request, 1.0), load_done(request, self.machine)]
            case TextRequest():
                return answer_events(request, ("Paris", " is", " the", " capital."))
            case UnloadRequest():
                return [ModelUnloaded(memory_of(self.machine, ()))]
            case _:
                return []

    def of_kind(self, kind: type[Request]) -> list[Request]:
        """The requests of a kind, in order."""
        return [request for request in self.sent if isinstance(request, kind)]


# -- what engines tell -----------------------------------------------------------------------------------------------


def placed(placement: Placement) -> PlacedLayer:
    return PlacedLayer(
        placement.layer,
        placement.rests_on,
        placement.runs_on,
        placement.size,
        placement.dtype,
        mapped=placement.rests_on in ("cpu", "disk"),
    )


def load_began(request: LoadRequest) -> list[Event]:
    total = sum(each.size for each in request.placements)
    return [LoadStarted(request.folder, total, len(request.placements))]


def load_goes(request: LoadRequest, share: float) -> list[Event]:
    """A load as far as `share` of its bytes."""
    total = sum(each.size for each in request.placements)
    events: list[Event] = []
    done = 0
    for i, placement in enumerate(request.placements):
        if done + placement.size > share * total + 1:
            break
        done += placement.size
        events.append(LayerPlaced(placed(placement)))
        events.append(LoadProgressed("file 2 of 4", done, total, i + 1, len(request.placements), 3.4))
    count = len(events) // 2
    events.append(LoadProgressed("file 2 of 4", round(share * total), total, count, len(request.placements), 3.4))
    return events


def load_done(request: LoadRequest, machine: Machine) -> ModelLoaded:
    layers = tuple(placed(each) for each in request.placements)
    return ModelLoaded(request.folder, 4.2, layers, memory_of(machine, layers))


def memory_of(machine: Machine, layers: tuple[PlacedLayer, ...], surprise: int = 0) -> tuple[PlaceMemory, ...]:
    found = []
    for device in machine.devices:
        here = sum(each.size for each in layers if each.rests_on == device.id)
        held = 0 if device.id == "disk" else here
        free = None if device.free is None else max(0, device.free - held)
        found.append(PlaceMemory(device.id, device.total, free, here, here + surprise, held, held))
    return tuple(found)


def layers_ran(layers: Sequence[PlacedLayer], running: int, passes: int = 12) -> LayerRan:
    """A snapshot in the middle of a token."""
    activity = tuple(
        LayerActivity(
            each.layer,
            passes - (i > running),
            (passes - (i > running)) * _seconds(each),
            (passes - (i > running)) * (_seconds(each) * 0.8 if each.rests_on != each.runs_on else 0.0),
            each.size * passes if each.rests_on != each.runs_on else 0,
            _seconds(each),
        )
        for i, each in enumerate(layers)
    )
    return LayerRan(layers[running].layer, activity)


def _seconds(layer: PlacedLayer) -> float:
    return layer.size / {"cpu": 8e9, "disk": 1.6e9}.get(layer.rests_on, 180e9) + 0.0002


def answer_events(request: TextRequest, pieces: Sequence[str], context: int = 4096) -> list[Event]:
    """A whole answer."""
    prompt = sum(len(each.content) // 4 + 4 for each in request.messages)
    events: list[Event] = [PromptCounted(prompt, context, context - prompt)]
    events += [TextProduced(piece, (100 + i,)) for i, piece in enumerate(pieces)]
    events.append(RunFinished(result_of(request, pieces)))
    return events


def result_of(request: TextRequest, pieces: Sequence[str], ended: str = "end token") -> RunResult:
    return RunResult(
        "".join(pieces), tuple(range(100, 100 + len(pieces))), 24, request.seed, ended, 2.0, 0.42, 11.5, (), ()
    )  # fmt: skip


def measured(machine: Machine, free: dict[str, int | None]) -> MemoryMeasured:
    return MemoryMeasured(tuple(replace(each, free=free.get(each.place, each.free)) for each in memory_of(machine, ())))


# -- machines and models ---------------------------------------------------------------------------------------------


def laptop() -> Machine:
    """A small card, RAM and a disk so slow that what rests there is better carried to the card than read ahead."""
    return Machine(
        (
            Device("cuda:0", "cuda", "RTX 4060 Laptop", 8 * GIB, 8 * GIB - 300 * MIB, dtypes=("float16", "bfloat16")),
            Device("cpu", "cpu", "RAM", int(15.5 * GIB), int(14.2 * GIB)),
            Device("disk", "disk", "Disk", 954 * GIB, 498 * GIB),
        ),
        (("disk-ring", 0.2e9),),
        torch_build="2.13.0+cu130",
    )


def two_cards() -> Machine:
    return Machine(
        (
            Device("cuda:0", "cuda", "RTX 3090, card 0", 24 * GIB, 24 * GIB - 900 * MIB),
            Device("cuda:1", "cuda", "RTX 3090, card 1", 24 * GIB, 24 * GIB - 60 * MIB),
            Device("cpu", "cpu", "RAM", int(62.7 * GIB), int(54.6 * GIB)),
            Device("disk", "disk", "Disk", 1800 * GIB, 900 * GIB),
        ),
        torch_build="2.13.0+cu130",
    )


def mac() -> Machine:
    return Machine(
        (
            Device("mps", "mps", "M3 Max", 36 * GIB, 27 * GIB, shares_memory_with="cpu"),
            Device("cpu", "cpu", "RAM", 36 * GIB, 30 * GIB),
            Device("disk", "disk", "Disk", 994 * GIB, 400 * GIB),
        ),
        torch_build="2.13.0",
    )


def no_card() -> Machine:
    return Machine(
        (Device("cpu", "cpu", "RAM", 23 * GIB, 19 * GIB), Device("disk", "disk", "Disk", 60 * GIB, 30 * GIB)),
        torch_build="2.13.0+cpu",
    )


def fourteen_billion() -> Model:
    """40 layers of 330 M, as Qwen3-14B has."""
    model = dense(40, 5120, 17408, 151936, 40, 8, context=40960)
    return replace(model, name="Qwen3-14B", architecture="Qwen3ForCausalLM", folder="/models/qwen3-14b")


def seventy_billion() -> Model:
    """80 layers."""
    model = dense(80, 8192, 28672, 128256, 64, 8, context=131072)
    return replace(model, name="Llama-3.3-70B", folder="/models/llama-70b")


def starter() -> Model:
    """30 layers of 3.5 M with a tied head, as SmolLM2-135M has."""
    model = dense(30, 576, 1536, 49152, 9, 3, context=8192, tied=True)
    return replace(model, name="SmolLM2-135M-Instruct", folder="/models/smollm2", chat_template=True)


def thirty_billion_in_experts() -> Model:
    """48 layers, each of 19 M and 128 experts, of which a token passes 8, as Qwen3-30B-A3B has."""
    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048,
        "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8,
        "mlp_only_layers": [], "decoder_sparse_step": 1, "max_position_embeddings": 40960, "torch_dtype": "bfloat16",
    }  # fmt: skip
    return model_from_config(config, "Qwen3-30B-A3B", "/models/qwen3-30b-a3b")


Inspect = Callable[[str], Model]


def inspecting(*models: Model) -> Inspect:
    """Inspects nothing: the model whose folder is asked for."""

    def inspect(folder: str) -> Model:
        from layerlight.core.errors import NotAModel

        for model in models:
            if model.folder == folder:
                return model
        raise NotAModel(f"There is no model in {folder}.", hint="Choose another folder.")

    return inspect
