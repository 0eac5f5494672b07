"""Seconds: of a pass through a layer, of a hand-over and of a load, from bytes and a machine's rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layerlight.core.device import CPU, DISK, Machine
from layerlight.core.model import LayerKind, TextShape
from layerlight.core.pacing.rate_names import (
    DISK_LOAD,
    DISK_RING,
    bus_rate,
    matrix_name,
    overhead_name,
    turned_back_name,
    weights_name,
)
from layerlight.core.planning.runtime import TODAY, Runtime
from layerlight.core.planning.units import Unit
from layerlight.core.planning.workload import Workload

TYPICAL: Mapping[str, float] = {
    "accelerator": 250e9,
    "unified": 100e9,
    "cpu": 8e9,
    "disk": 0.5e9,
    "disk-ring": 1.4e9,
    "bus": 8e9,
    "disk-load": 1.5e9,
    "weights:cpu:nf4": 0.4e9,
    "weights:cpu:fp4": 0.4e9,
    "weights:cpu:int8": 0.7e9,
    "matrix": 10e12,
    "matrix:cpu": 18e9,
    "handover": 50e-6,
}
"""Bytes per second while this machine is not calibrated: an 8 GB laptop card, a base Apple chip, what two cores of an
AVX2 processor reach in bf16 decode, tensor after tensor from disk through accelerate's hooks, layers read ahead, a
pageable copy over PCIe 4 x8, and one long read from an NVMe disk; what bitsandbytes reaches on those two cores. Below
them operations per second of an 8 GB laptop card and of two cores in bf16, and seconds of a hand-over. Good for an
order of magnitude, and said so wherever it is shown."""

LAYER_OVERHEAD = 0.0009
"""Seconds of Python and dispatch per decoder layer and pass, eager mode, one busy core; a machine may say its own."""

RING_REACHES, HOOKS_REACH = 0.93, 0.28
"""Parts of a long read's speed: of layers read ahead (0.93 to 1.01 measured on a quiet machine), and of tensor after
tensor through accelerate's hooks (0.27 and 0.28 measured on a virtual disk). Used where they were not measured."""

KV_TRAFFIC = 3
"""Times a pass moves the KV cache: growing it reads the old and writes the new one, attention reads that."""

FP8_ON_CPU = 1.1e9
"""Elements of an fp8 cache that a CPU turns back in a second: measured in bf16 on one core of an AVX2 processor."""


def carry_seconds(
    size: float, rests_on: str, runs_on: str, rates: Mapping[str, float], runtime: Runtime = TODAY, ahead: bool = True
) -> float:
    """Seconds to bring `size` bytes of weights to where they are read, for one pass; see `Traffic.ahead`."""
    if rests_on == runs_on or not size:
        return 0.0
    ring = ahead if runs_on == CPU else runtime.overlaps
    reading = size / rates[DISK_RING if ring else DISK] if rests_on == DISK else 0.0
    if runs_on == CPU:
        return reading
    copying = size / bus_rate(rates, runs_on, pinned=runtime.pinned)
    return max(reading, copying) if runtime.overlaps else reading + copying


def rates_of(bandwidths: tuple[tuple[str, float], ...]) -> dict[str, float]:
    """Measured bandwidths over typical ones; where a long read is known, what else reads the disk by its share."""
    measured = dict(bandwidths)
    long_read = measured.get(DISK_LOAD)
    by_share = {DISK_RING: RING_REACHES * long_read, DISK: HOOKS_REACH * long_read} if long_read else {}
    return {**TYPICAL, **by_share, **measured}


def load_seconds(stored: int, place: str, rates: Mapping[str, float]) -> float:
    """Seconds to read `stored` bytes of files and leave them on a place; what stays on disk is not read."""
    if place == DISK:
        return 0.0
    read = stored / rates[DISK_LOAD]
    return read if place == CPU else read + stored / bus_rate(rates, place)


# -- what a pass does in one layer -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one layer asks of a pass. Bytes once loaded; operations per token, with the experts one token uses."""

    carried: int
    """Bytes brought when it runs elsewhere than it rests; `looked_up` of them for rows of a table."""
    looked_up: int
    read: int
    routed: int
    """The part of `read` that experts hold: read as far as tokens choose them."""
    operations: float
    kv: int
    """Bytes of KV cache at the whole context."""
    last_only: bool
    """Of a prompt it sees the last token alone, as the output head does."""
    decoder: bool
    quantization: str | None
    ahead: bool = True
    """Whether it is read ahead of every pass where it rests on disk and the CPU runs it: of experts, which a router
    chooses, the CPU reads pages of the mapped file instead."""


def traffic_of(unit: Unit, shape: TextShape, quantization: str | None) -> tuple[Traffic, ...]:
    """The traffic of each layer of a unit. Towers are no part of a pass over text."""
    found = []
    share = _share(shape, 1)
    for layer, weights in zip(unit.layers, unit.weights, strict=True):
        parameters = weights.parameters - weights.routed_parameters * (1 - share)
        read = weights.size
        looked_up = 0
        if layer.kind is LayerKind.TOWER:
            read, parameters = 0, 0.0
        elif layer.kind is LayerKind.EMBEDDING:
            read, looked_up, parameters = 0, weights.size, 0.0
        elif layer.kind is LayerKind.HEAD and len(unit.layers) > 1:
            read, parameters = unit.size, float(sum(each.parameters for each in unit.weights))
        decoder = layer.kind is LayerKind.DECODER
        found.append(
            Traffic(
                read + looked_up,
                looked_up,
                read,
                weights.routed,
                2.0 * parameters,
                unit.kv if decoder else 0,
                layer.kind is LayerKind.HEAD,
                decoder,
                quantization if weights.quantized else None,
                layer.kind is not LayerKind.EXPERTS,
            )
        )
    return tuple(found)


def _share(shape: TextShape, tokens: int) -> float:
    """The part of a layer's experts that so many tokens use, were each chosen as often."""
    if not shape.experts or not shape.experts_per_token:
        return 1.0
    return float(1 - (1 - min(1.0, shape.experts_per_token / shape.experts)) ** tokens)


@dataclass(frozen=True, slots=True)
class Seconds:
    """Of one layer or of many, in a decode pass and in all passes over the prompt: carrying, working, and reading ahead
    while others work."""

    decode_carrying: float = 0.0
    decode_working: float = 0.0
    prefill_carrying: float = 0.0
    prefill_working: float = 0.0
    decode_reading: float = 0.0
    prefill_reading: float = 0.0

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(
            self.decode_carrying + other.decode_carrying,
            self.decode_working + other.decode_working,
            self.prefill_carrying + other.prefill_carrying,
            self.prefill_working + other.prefill_working,
            self.decode_reading + other.decode_reading,
            self.prefill_reading + other.prefill_reading,
        )

    def decode(self) -> float:
        return self.decode_carrying + max(self.decode_working, self.decode_reading)

    def prefill(self) -> float:
        return self.prefill_carrying + max(self.prefill_working, self.prefill_reading)

    def waiting(self) -> float:
        """Seconds of a decode pass in which nothing works because reads are not there yet."""
        return max(0.0, self.decode_reading - self.decode_working)


def total_of(every: Iterable[Seconds]) -> Seconds:
    """Their sum."""
    sums = [0.0] * 6
    for each in every:
        sums[0] += each.decode_carrying
        sums[1] += each.decode_working
        sums[2] += each.prefill_carrying
        sums[3] += each.prefill_working
        sums[4] += each.decode_reading
        sums[5] += each.prefill_reading
    return Seconds(*sums)


Shares = tuple[float, float]
"""Of prompt and decode the part of working that counts; of reading ahead the rest does. Reading and working go on at
once, so that the longer of the two counts, which is no less than any such mixture."""

WORKING: Shares = (1.0, 1.0)
WAITING: Shares = (1.0, 0.0)
"""Of a prompt the CPU computes longer than it reads, of a token often not."""


class Prices:
    """Seconds of a workload on a machine: of layers by where they rest and run, and of hand-overs."""

    def __init__(
        self,
        machine: Machine,
        shape: TextShape,
        dtype: str,
        width: int,
        workload: Workload,
        context: int,
        chunk: int,
        runtime: Runtime = TODAY,
        kv: str = "",
    ) -> None:
        """`width` is bytes of an activation, `chunk` tokens of a prompt in one pass, `Traffic.kv` is of `context`.

        `kv` is what the cache is kept in, where it has to be turned back.
        """
        self._packed, self._width = bool(kv), width
        later = range(2, -(-workload.prompt // chunk) + 1)
        self._turned_back = sum(min(number * chunk, workload.prompt) for number in later) / context if kv else 0.0
        self.rates = rates_of(machine.bandwidths)
        self.workload, self.runtime = workload, runtime
        self._shape, self._dtype = shape, dtype
        self._hidden = shape.hidden_size * width * workload.batch
        self._filled = min(1.0, workload.mean_length / context)
        self._unified = {device.id for device in machine.devices if device.shares_memory_with is not None}
        whole, rest = divmod(workload.prompt, chunk)
        self._chunks = tuple((tokens, times) for tokens, times in ((chunk, whole), (rest, 1)) if tokens and times)

    def layer(self, traffic: Traffic, rests_on: str, runs_on: str) -> Seconds:
        """Seconds of one layer in a decode pass, and in all passes over the prompt."""
        resident = rests_on == runs_on
        batch = self.workload.batch
        brought = self._brought(traffic, batch, rests_on, runs_on)
        cache = self._cache(traffic.kv * self._filled, runs_on)
        decode = self._busy(traffic, self._pass(traffic, batch, runs_on, batch > 1) + cache, runs_on, resident)
        carrying, prefill = 0.0, self._cache(traffic.kv * self._turned_back, runs_on)
        staged = runs_on != CPU and not resident
        for tokens, times in self._chunks:
            seen = batch * (1 if traffic.last_only else tokens)
            comes = self._brought(traffic, batch * tokens, rests_on, runs_on)
            works = self._busy(traffic, self._pass(traffic, seen, runs_on, seen > 1), runs_on, resident)
            carrying += times * (self.runtime.waits(comes, works) if staged else comes)
            prefill += times * works
        if rests_on == DISK and runs_on == CPU and traffic.ahead:
            beside = self.rates.get(overhead_name(DISK), 0.0) if traffic.decoder else 0.0
            passes = sum(times for _, times in self._chunks)
            return Seconds(0.0, decode + beside, 0.0, prefill + passes * beside, brought, carrying)
        return Seconds(self.runtime.waits(brought, decode) if staged else brought, decode, carrying, prefill)

    def of(self, seconds: Seconds) -> float:
        """Seconds of the whole workload."""
        return seconds.prefill() + self.workload.passes * seconds.decode()

    def reading(self, seconds: Seconds) -> float:
        """Of the whole workload's seconds those of reading ahead."""
        return seconds.prefill_reading + self.workload.passes * seconds.decode_reading

    def shared(self, seconds: Seconds, shares: Shares) -> float:
        """Seconds of the whole workload with these shares of what goes on at once: these add up, layer by layer."""
        prompt, decode = shares
        first = prompt * seconds.prefill_working + (1 - prompt) * seconds.prefill_reading
        token = decode * seconds.decode_working + (1 - decode) * seconds.decode_reading
        return seconds.prefill_carrying + first + self.workload.passes * (seconds.decode_carrying + token)

    def hand_over(self, source: str, target: str) -> Seconds:
        """Seconds in which hidden states go from one device to the next, through RAM, in a pass; on one device none."""
        if source == target:
            return Seconds()
        per_token = self._hidden * self._crossing(source, target)
        latency = self.rates["handover"]
        prompt = sum(times * (tokens * per_token + latency) for tokens, times in self._chunks)
        return Seconds(0.0, per_token + latency, 0.0, prompt)

    def crossing_bytes(self) -> int:
        """Bytes of hidden states that one hand-over moves in a decode pass."""
        return self._hidden

    def overhead(self, place: str) -> float:
        return self.rates.get(overhead_name(place), LAYER_OVERHEAD)

    def _crossing(self, source: str, target: str) -> float:
        out = 0.0 if source == CPU else 1 / bus_rate(self.rates, source, inward=False)
        return out + (0.0 if target == CPU else 1 / bus_rate(self.rates, target))

    def _brought(self, traffic: Traffic, tokens: int, rests_on: str, runs_on: str) -> float:
        """Seconds in which a pass of so many tokens brings a layer."""
        brought = self.brought_bytes(traffic, tokens, runs_on)
        return carry_seconds(brought, rests_on, runs_on, self.rates, self.runtime, traffic.ahead)

    def brought_bytes(self, traffic: Traffic, tokens: int, runs_on: str) -> float:
        """Bytes that a pass of so many tokens brings of a layer that rests elsewhere. A CPU reads a file's pages where
        it needs them: of experts those that were chosen."""
        looked_up = 0 if self.runtime.whole_tables else traffic.looked_up
        whole = self.runtime.whole_experts and runs_on != CPU
        unchosen = 0.0 if whole else traffic.routed * (1 - _share(self._shape, tokens))
        return traffic.carried - looked_up - unchosen

    def _pass(self, traffic: Traffic, tokens: int, place: str, computes: bool) -> float:
        """Seconds in which a device reads a layer's weights once, or multiplies by them when that takes longer."""
        read = traffic.read - traffic.routed * (1 - _share(self._shape, tokens))
        reading = read / self._bandwidth(place, traffic.quantization)
        return max(reading, traffic.operations * tokens / self._matrix(place)) if computes else reading

    def _cache(self, size: float, place: str) -> float:
        """Seconds in which passes move so many bytes of the KV cache; one in fp8 grows, is turned back and then read.

        Where turning back was not measured, an accelerator's kernels take as long as what they move.
        """
        bandwidth = self._bandwidth(place, None)
        if not self._packed:
            return KV_TRAFFIC * size / bandwidth
        usual = FP8_ON_CPU if place == CPU else bandwidth / (3 + 3 * self._width)
        return size / self.rates.get(turned_back_name(place), usual) + self._width * size / bandwidth

    def _busy(self, traffic: Traffic, working: float, place: str, resident: bool) -> float:
        """With what Python and dispatch take: an accelerator works meanwhile, unless it waits for weights."""
        if not traffic.decoder:
            return working
        overhead = self.overhead(place)
        return max(working, overhead) if resident and place != CPU else working + overhead

    def _bandwidth(self, place: str, quantization: str | None) -> float:
        known = self.rates.get(weights_name(place, quantization or self._dtype))
        if known is not None:
            return known
        if place == CPU:
            return self.rates[CPU]
        return self.rates.get(place, self.rates["unified" if place in self._unified else "accelerator"])

    def _matrix(self, place: str) -> float:
        return self.rates.get(matrix_name(place, self._dtype), self.rates["matrix:cpu" if place == CPU else "matrix"])
