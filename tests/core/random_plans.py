"""Random models, machines and budgets, for properties that every plan has."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from layerlight.core import memory
from layerlight.core.device import Budget, Device, Machine
from layerlight.core.model import Layer, LayerKind, Model, Tensor
from layerlight.core.plan import PREFILL_CHUNK
from tests.core.models import accelerator, dense, disk, layer, ram, tensor

CONTEXT = 64


def _decoder(draw: st.DrawFn, index: int, hidden: int, experts: int) -> list[Tensor]:
    name = f"model.layers.{index}"
    width = draw(st.sampled_from([16, 64, 256, 1024]))
    held = [
        tensor(f"{name}.self_attn.q_proj.weight", hidden, hidden),
        tensor(f"{name}.mlp.up_proj.weight", width, hidden),
        tensor(f"{name}.input_layernorm.weight", hidden),
    ]
    fused = draw(st.booleans())
    if experts and fused:
        held.append(tensor(f"{name}.mlp.experts.gate_up_proj", experts, width, hidden))
    elif experts:
        held += [tensor(f"{name}.mlp.experts.{each}.up_proj.weight", width, hidden) for each in range(experts)]
    return held


def _apart(whole: Layer) -> tuple[Layer, ...]:
    """A layer's experts as a layer of their own beside it, which run where it runs or in RAM."""
    experts = tuple(each for each in whole.tensors if ".experts." in each.name)
    if not experts:
        return (whole,)
    rest = tuple(each for each in whole.tensors if each not in experts)
    return (
        layer(whole.name, whole.kind, *rest, index=whole.index),
        layer(f"{whole.name}.mlp.experts", LayerKind.EXPERTS, *experts, index=whole.index),
    )


@st.composite
def models(draw: st.DrawFn, most_layers: int = 10) -> Model:
    """Llamas of equal layers, models whose layers all differ, mixtures of experts; tied or not, with a tower or not."""
    layers = draw(st.integers(1, most_layers))
    hidden = draw(st.sampled_from([32, 64, 128]))
    tied = draw(st.booleans())
    vocabulary = draw(st.sampled_from([50, 500, 5000]))
    model = dense(layers=layers, hidden=hidden, tied=tied, vocabulary=vocabulary)
    style = draw(st.sampled_from(["equal", "unequal", "experts", "apart"]))
    if style != "equal":
        experts = 4 if style in ("experts", "apart") else 0
        mended = {
            f"model.layers.{index}": layer(
                f"model.layers.{index}",
                LayerKind.DECODER,
                *_decoder(draw, index, hidden, experts),
                index=index,
            )
            for index in range(layers)
        }
        assert model.shape is not None
        shape = replace(model.shape, experts=experts or None, experts_per_token=1 if experts else None)
        model = replace(model, layers=tuple(mended.get(each.name, each) for each in model.layers), shape=shape)
    if style == "apart":
        model = replace(model, layers=tuple(each for whole in model.layers for each in _apart(whole)))
    if draw(st.booleans()):
        extra = draw(
            st.sampled_from(
                [
                    layer("model.rotary_emb", LayerKind.OTHER),
                    layer("model.visual", LayerKind.TOWER, tensor("model.visual.weight", 512, 64)),
                ]
            )
        )
        model = replace(model, layers=(extra, *model.layers))
    return model


rates = st.sampled_from([1e7, 1e8, 1e9, 1e10])


@dataclass(frozen=True)
class Case:
    model: Model
    machine: Machine
    budget: Budget


@st.composite
def cases(draw: st.DrawFn, most_layers: int = 10, most_accelerators: int = 3) -> Case:
    """A model, and a machine whose places hold none, some or all of it; disk forbidden at times."""
    model = draw(models(most_layers))
    assert model.shape is not None
    working = memory.working_bytes(model.shape, CONTEXT, "bfloat16", "sdpa", PREFILL_CHUNK)
    cache = sum(memory.kv_bytes(model.shape, index, CONTEXT, "bfloat16") for index in range(model.shape.layers))
    largest = max(each.size for layer in model.layers for each in layer.tensors)
    parts = st.sampled_from([0.6, 0.5, 0.35, 0.2, 1.3, 0.8, 0.1, 0.02, -9.0])
    share = st.tuples(parts, st.sampled_from([1, 1, 0]), st.integers(0, 4096)).map(
        lambda drawn: max(0, int(working + cache + drawn[0] * model.size + drawn[1] * largest) + drawn[2])
    )
    machine = draw(_machines(share.map(lambda room: room * 20 // 19), most_accelerators))
    limits = [(device.id, draw(share)) for device in machine.devices if device.id != "disk" and draw(_seldom)]
    if draw(_seldom):
        limits.append(("disk", 0))
    return Case(model, machine, Budget.of(draw(st.permutations(limits)), context=CONTEXT))


_SPEEDS = ("cpu", "disk", "disk-ring", "matrix:cpu:bfloat16", "bus", "weights:cpu:bfloat16")
_seldom = st.integers(0, 3).map(lambda number: number == 0)


@st.composite
def _machines(draw: st.DrawFn, rooms: st.SearchStrategy[int], most_accelerators: int) -> Machine:
    """Some accelerators, equal or not, RAM and a disk, with some of the rates that a calibration finds."""
    devices: list[Device] = []
    equal = draw(rooms) if draw(st.booleans()) else None
    for index in range(draw(st.integers(0, most_accelerators))):
        devices.append(accelerator(f"cuda:{index}", draw(rooms) if equal is None else equal))
    if devices and draw(_seldom):
        devices = [accelerator("mps", draw(rooms), kind="mps", shares_memory_with="cpu")]
    known: dict[str, float] = {}
    for name in (*_SPEEDS, "overhead:cpu", "overhead:disk"):
        if draw(st.booleans()):
            known[name] = draw(rates) if not name.startswith("overhead") else draw(st.sampled_from([1e-5, 1e-3]))
    for device in devices:
        for name in (device.id, f"matrix:{device.id}:bfloat16", f"bus:{device.id}:to-pageable"):
            if draw(st.booleans()):
                known[name] = draw(rates)
        if draw(st.booleans()):
            known[f"overhead:{device.id}"] = draw(st.sampled_from([1e-6, 1e-4, 1e-3]))
    return Machine((*devices, ram(draw(rooms)), disk()), tuple(sorted(known.items())))
