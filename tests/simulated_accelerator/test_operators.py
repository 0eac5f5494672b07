"""Operators on a simulated device give the CPU's own numbers, as views where those are views."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch.nn import functional

pytestmark = pytest.mark.simulated
Simulated = Callable[..., ModuleType]
MIB = 1 << 20
Operator = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(autouse=True)
def sim(simulated: Simulated) -> ModuleType:
    return simulated([16 * MIB, 16 * MIB])


def _places(t: torch.Tensor) -> torch.Tensor:
    return torch.arange(3, device=t.device)


OPERATORS: dict[str, Operator] = {
    "matmul": lambda t: t @ t.t(),
    "linear": lambda t: functional.linear(t, t, t[:, 0]),
    "batched": lambda t: torch.bmm(t.expand(2, -1, -1), t.t().expand(2, -1, -1)),
    "softmax": lambda t: t.softmax(-1, dtype=torch.float32),
    "layer norm": lambda t: functional.layer_norm(t, t.shape[-1:]),
    "rms norm": lambda t: t * torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + 1e-6),
    "silu": functional.silu,
    "gelu": functional.gelu,
    "embedding": lambda t: functional.embedding(_places(t), t),
    "gather": lambda t: t.gather(1, _places(t).expand(8, 3)),
    "index": lambda t: t[_places(t)],
    "host index": lambda t: t[torch.tensor([2, 0])],
    "mask": lambda t: t.masked_fill(t > 0.5, -1.0),
    "where": lambda t: torch.where(t > 0.5, t, 0.0),
    "nonzero": lambda t: (t > 0.5).nonzero(),
    "boolean": lambda t: t[t > 0.5],
    "cat": lambda t: torch.cat([t[:2], t[4:]], dim=0),
    "stack": lambda t: torch.stack(t.chunk(2, dim=1)),
    "split": lambda t: t.split([3, 3, 2], dim=-1)[1],
    "topk": lambda t: t.topk(3).values,
    "sort": lambda t: t.sort(dim=-1, descending=True).indices,
    "cumsum": lambda t: t.softmax(-1).cumsum(-1),
    "argmax": lambda t: t.argmax(-1),
    "rope": lambda t: torch.cat((-t[..., 4:], t[..., :4]), dim=-1) * torch.cos(t),
    "convolution": lambda t: functional.conv2d(t[None, None], t[None, None, :3, :3], padding=1),
    "upsample": lambda t: functional.interpolate(t[None, None], scale_factor=2, mode="nearest"),
    "pad": lambda t: functional.pad(t, (1, 2)),
    "to half and back": lambda t: t.half().float(),
    "to int8": lambda t: (t * 100).to(torch.int8),
    "complex": lambda t: torch.view_as_real(torch.polar(t, t)),
    "conjugate": lambda t: torch.polar(t, t).conj().resolve_conj().abs(),
    "scalar": lambda t: 2.0 - t / 3,
    "zero-dim host tensor": lambda t: t * torch.tensor(3.0),
    "einsum": lambda t: torch.einsum("ij,kj->ik", t, t),
    "repeat": lambda t: t.repeat_interleave(2, dim=0),
    "tril": lambda t: t.tril(-1),
    "foreach": lambda t: torch._foreach_add([t, t * 2], 1.0)[1],
    "grouped attention": lambda t: functional.scaled_dot_product_attention(
        t.expand(1, 4, 8, 8), t.expand(1, 2, 8, 8), t.expand(1, 2, 8, 8), is_causal=True, enable_gqa=True
    ),
    "masked attention": lambda t: functional.scaled_dot_product_attention(
        t[None, None], t[None, None], t[None, None], attn_mask=(t > 0.2)[None, None]
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", OPERATORS)
def test_the_same_bits_as_on_the_cpu(name: str, dtype: torch.dtype) -> None:
    source = torch.rand(8, 8, generator=torch.Generator().manual_seed(7)).to(dtype)
    if "complex" in name or "conj" in name:
        source = source.float()
    expected = OPERATORS[name](source)
    got = OPERATORS[name](source.to("sim:1"))
    assert got.device == torch.device("sim:1")
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    assert torch.equal(got.cpu(), expected)


VIEWS: dict[str, Operator] = {
    "view": lambda t: t.view(-1),
    "other dtype": lambda t: t.view(torch.int32),
    "transpose": lambda t: t.t(),
    "slice": lambda t: t[1:, ::2],
    "expand": lambda t: t[:1].expand(4, 4),
    "as_strided": lambda t: t.as_strided((2, 2), (4, 1), 3),
    "unfold": lambda t: t.unfold(0, 2, 1),
    "reshape": lambda t: t.reshape(2, 8),
    "permute": lambda t: t.view(2, 2, 4).permute(2, 0, 1),
    "squeeze": lambda t: t.unsqueeze(0).squeeze(0),
    "detach": lambda t: t.detach(),
    "split": lambda t: t.split(2)[1],
    "real parts": lambda t: torch.view_as_complex(t.view(8, 2)).real,
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory(name: str, inference: bool, sim: ModuleType) -> None:
    with torch.inference_mode(inference):
        _check_view(name, sim)


def _check_view(name: str, sim: ModuleType) -> None:
    source = torch.arange(16.0).view(4, 4)
    placed = source.to("sim:0")
    used = sim.memory_allocated(0)
    expected, got = VIEWS[name](source), VIEWS[name](placed)
    assert torch.equal(got.cpu(), expected)
    assert sim.memory_allocated(0) == used
    assert got.untyped_storage().data_ptr() == placed.untyped_storage().data_ptr()
    assert (got.stride(), got.storage_offset()) == (expected.stride(), expected.storage_offset())
    if name != "expand":
        got.zero_()
        expected.zero_()
        assert torch.equal(placed.cpu(), source)


def test_in_place_and_out_write_where_they_should() -> None:
    placed = torch.ones(3, 3, device="sim")
    same = placed.add_(1).mul_(2)
    assert same is placed
    out = torch.empty(0, device="sim")
    assert torch.add(placed, 1, out=out) is out
    assert (out.shape, out.sum().item()) == ((3, 3), 45.0)
    placed.index_copy_(0, torch.tensor([1], device="sim"), torch.zeros(1, 3, device="sim"))
    placed[2, :] = torch.tensor([7.0, 8.0, 9.0])
    assert placed.cpu().tolist() == [[4, 4, 4], [0, 0, 0], [7, 8, 9]]


def test_resize_and_set_keep_the_contents(sim: ModuleType) -> None:
    placed = torch.arange(4.0).to("sim:1")
    placed.resize_(2, 4)
    assert (placed.shape, placed.flatten()[:4].cpu().tolist()) == ((2, 4), [0, 1, 2, 3])
    assert sim.memory_allocated(1) == 32
    other = torch.empty(0, device="sim:1").set_(placed.untyped_storage(), 2, (2, 2), (1, 2))
    assert other[0, 0].item() == 2
    other.set_()
    assert other.numel() == 0
    other.data = torch.full((3,), 5.0, device="sim:1")
    assert other.cpu().tolist() == [5, 5, 5]


def test_a_module_moves_to_a_device_and_back() -> None:
    """torch gives a module new Parameter objects here, where `cuda` keeps them: weights tied before a move part."""
    layer = torch.nn.Linear(4, 4).to("sim:0")
    assert {parameter.device for parameter in layer.parameters()} == {torch.device("sim:0")}
    layer.to("cpu", torch.bfloat16)
    assert layer(torch.ones(1, 4, dtype=torch.bfloat16)).device.type == "cpu"


def test_gradients_are_the_cpus() -> None:
    source = torch.rand(4, 4)
    on_cpu = source.clone().requires_grad_()
    on_sim = source.to("sim").requires_grad_()
    for tensor in (on_cpu, on_sim):
        (tensor @ tensor.t()).softmax(-1).pow(2).sum().backward()
    assert on_sim.grad is not None
    assert torch.equal(on_sim.grad.cpu(), on_cpu.grad)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inference_modes(mode: Callable[[], torch.no_grad]) -> None:
    weight = torch.nn.Parameter(torch.rand(4, 4))
    with mode():
        results = [
            functional.linear(torch.ones(1, 4, device=w.device), w).view(4).add_(1) for w in (weight, weight.to("sim"))
        ]
    assert torch.equal(results[1].cpu(), results[0])


def test_a_seed_gives_the_cpus_numbers() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4), torch.multinomial(torch.ones(10), 3), torch.randperm(6)
    torch.manual_seed(3)
    weights = torch.ones(10, device="sim")
    got = torch.rand(4, device="sim"), torch.multinomial(weights, 3), torch.randperm(6, device="sim")
    assert all(torch.equal(a, b.cpu()) for a, b in zip(expected, got, strict=True))


def test_a_generator_of_the_device_works_and_can_be_stored() -> None:
    generator = torch.Generator("sim:1").manual_seed(5)
    assert generator.device == torch.device("sim:1")
    state = generator.get_state()
    first = torch.randn(4, generator=generator, device="sim:1")
    assert torch.equal(first.cpu(), torch.randn(4, generator=torch.Generator().manual_seed(5)))
    generator.set_state(state)
    assert torch.equal(torch.randn(4, generator=generator, device="sim:1").cpu(), first.cpu())


@pytest.mark.parametrize("other", ["cpu", "sim:1"])
@pytest.mark.parametrize(
    "mix",
    [torch.matmul, torch.add, lambda a, b: torch.cat([a, b]), lambda a, b: functional.embedding(a.long(), b)],
    ids=["matmul", "add", "cat", "embedding"],
)
def test_tensors_of_two_devices_are_refused_as_on_a_real_one(mix: Callable[..., torch.Tensor], other: str) -> None:
    """A12: a layer split over two places must fail here too."""
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        mix(torch.ones(2, 2, device="sim:0"), torch.ones(2, 2, device=other))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32])
def test_whole_numbers_are_counted_as_an_accelerator_does(dtype: torch.dtype) -> None:
    """The CPU's kernel counts floats only; routers of experts count whole numbers on accelerators."""
    counted = torch.histc(torch.tensor([0, 3, 3, 1, 3], dtype=dtype).to("sim"), bins=4, min=0, max=3)
    assert (counted.dtype, counted.device.type, counted.tolist()) == (dtype, "sim", [1, 1, 0, 3])


def test_streams_and_events_are_accepted() -> None:
    stream = torch.Stream(device="sim:1")
    event = torch.Event(device="sim:1")
    with stream:
        moved = torch.ones(4).to("sim:1", non_blocking=True)
        event.record(stream)
    moved.record_stream(stream)
    event.synchronize()
    assert torch.accelerator.current_stream(0) != stream


def test_a_device_can_be_current(sim: ModuleType) -> None:
    with sim.device("sim:1"):
        assert torch.ones(1, device="sim").device == torch.device("sim:1")
    assert torch.ones(1, device="sim").device == torch.device("sim:0")
    with torch.device("sim:1"):
        assert torch.zeros(2).device == torch.device("sim:1")
