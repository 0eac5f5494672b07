"""`layerlight bench planning`: a lever plans anew at once, for a hundred dense layers and a mixture of experts."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from layerlight.core.device import Budget, Device, Machine
from layerlight.core.inspecting.config_model import model_from_config
from layerlight.core.model import Model
from layerlight.core.placing import make_plan
from layerlight.core.plan import Plan

GIB = 2**30
DENSE: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 100, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
}  # fmt: skip
EXPERTS: Mapping[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 4096,
    "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_hidden_layers": 100, "num_attention_heads": 64,
    "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 256, "num_experts_per_tok": 8,
    "mlp_only_layers": [], "decoder_sparse_step": 1, "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    """A model, memory of each accelerator and of RAM in GiB, and the bound in ms of CPU time."""

    name: str
    config: Mapping[str, Any]
    accelerators: tuple[int, ...]
    ram: int
    bound: float


TASKS = (
    *(
        Task("100 dense layers", DENSE, accelerators, 64, 8.0)
        for accelerators in ((24,), (80,), (320,), (24, 24), (80, 16), (80, 80), (320, 320))
    ),
    *(
        Task("100 layers of 256 experts", EXPERTS, accelerators, 256, 50.0)
        for accelerators in ((24, 24, 24, 24), (80, 48, 24, 16), (16, 24, 48, 80), (80,) * 4, (320,) * 4)
    ),
)


def main(argv: Sequence[str]) -> int:
    """Prints a table; 1 when a plan takes longer than its bound, or does not fit."""
    parser = argparse.ArgumentParser(prog="layerlight bench planning", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="plans of each kind; the median counts")
    rounds = parser.parse_args(argv).rounds
    table = Table("model", "accelerators, GiB", "ms of CPU time", "bound", "from the optimum", "s a token")
    models = {task.name: model_from_config(task.config, task.name) for task in TASKS}
    missed = 0
    for task in TASKS:
        spent, plan = _measure(task, models[task.name], rounds)
        good = spent < task.bound and plan.fits
        missed += not good
        table.add_row(
            task.name,
            " + ".join(map(str, task.accelerators)),
            f"{spent:.1f}",
            f"{task.bound:.0f}",
            f"at most {plan.prediction.gap:.1e}" if plan.prediction.gap else "none",
            f"{plan.prediction.seconds_per_token:.3f}",
            style="" if good else "red",
        )
    console = Console()
    console.print(table)
    console.print("Every plan is within its bound." if not missed else f"{missed} of {len(TASKS)} plans are not.")
    return 1 if missed else 0


def _measure(task: Task, model: Model, rounds: int) -> tuple[float, Plan]:
    """(ms of CPU time in the median, plan), each limit a little different, as from a lever that is moved."""
    plan = make_plan(model, _machine(task), Budget(context=4096))  # weighs the model, which is kept
    spent = []
    for step in range(rounds):
        limit = task.accelerators[0] * GIB - step * GIB // 8
        budget = Budget.of([("cuda:0", limit)], context=4096)
        started = time.process_time()
        plan = make_plan(model, _machine(task), budget)
        spent.append(1000 * (time.process_time() - started))
    return sorted(spent)[len(spent) // 2], plan


def _machine(task: Task) -> Machine:
    cards = (
        Device(f"cuda:{number}", "cuda", f"Card {number}", size * GIB, size * GIB)
        for number, size in enumerate(task.accelerators)
    )
    memory = task.ram * GIB
    return Machine((*cards, Device("cpu", "cpu", "RAM", memory, memory), Device("disk", "disk", "Disk", None, None)))
