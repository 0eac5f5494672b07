"""The options of `plan` and `run` that say what is planned, and what they mean."""

from __future__ import annotations

import argparse

from layerlight.core.device import parse_limit
from layerlight.core.errors import BadRequest
from layerlight.core.memory import QUANTIZATIONS
from layerlight.core.placing import ENGINE_STRATEGIES, STRATEGIES
from layerlight.core.planning.kv_choice import KV_CACHES
from layerlight.core.planning.pins import parse_pin
from layerlight.core.planning.workload import USUAL, Workload
from layerlight.terminal.exporting import FORMATS, Export
from layerlight.terminal.planning import Show
from layerlight.terminal.wishes import PlanWishes

DTYPES = {
    "bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16", "half": "float16",
    "fp32": "float32", "float32": "float32",
}  # fmt: skip


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Those that `plan` and `run` share, save the model itself."""
    add = parser.add_argument
    add("--limit", action="append", default=[], metavar="PLACE=SIZE", help="may be repeated: cpu=8GiB, cuda:0=0")
    add("--context", type=int, metavar="N", help="tokens of prompt and answer together")
    add("--dtype", choices=tuple(DTYPES), metavar="DTYPE", help="bfloat16, float16 or float32")
    add("--quantize", choices=QUANTIZATIONS, help="quantise while loading")
    add("--kv-cache", choices=KV_CACHES, help="what keys and values are kept in; their own dtype when left out")
    add("--attention", choices=("sdpa", "eager"), default="sdpa", help="how attention is computed")
    add("--map", metavar="FILE", help="a placement by hand: JSON {layer: place}, or what “plan --json” printed")
    add(
        "--pin",
        action="append",
        default=[],
        metavar="LAYERS=PLACE",
        help="these layers there, the rest planned around them; may be repeated: 'model.layers.0-7=cuda:0'",
    )
    add(
        "--strategy",
        choices=(*STRATEGIES, *ENGINE_STRATEGIES),
        default=STRATEGIES[0],
        help="how places are chosen; the last four are accelerate's own",
    )
    add("--prompt-tokens", type=int, default=USUAL.prompt, metavar="N", help="a usual prompt's; %(default)s")
    add("--answer-tokens", type=int, default=USUAL.answer, metavar="N", help="a usual answer's; %(default)s")
    add("--offload-folder", metavar="FOLDER", help="the disk for layers that can't rest in their own files")


def add_show_options(parser: argparse.ArgumentParser) -> None:
    """Those of `plan` alone."""
    add = parser.add_argument
    add(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a model folder, the name of a public model, or hub:ORGANISATION/NAME; only --table goes without",
    )
    add("--machine", metavar="NAME", help="plan for another machine: a known one's name, or a file of one")
    add("--table", action="store_true", help="the verdict on every known machine: of MODEL, or of public models")
    add("--compare", action="store_true", help="accelerate's strategies beside ours")
    add(
        "--export",
        nargs="+",
        metavar=("FORMAT", "FILE"),
        help=f"the plan for elsewhere: {', '.join(FORMATS)}; to stdout without a file",
    )


def wishes_of(options: argparse.Namespace, model: str, offload_folder: str | None) -> PlanWishes:
    """What the options ask of a plan. `offload_folder` is the one of the settings."""
    return PlanWishes(
        folder=model,
        limits=tuple(parse_limit(words) for words in options.limit),
        context=options.context,
        dtype=DTYPES[options.dtype] if options.dtype else None,
        quantization=options.quantize,
        attention=options.attention,
        map_file=options.map,
        offload_folder=options.offload_folder or offload_folder,
        pins=tuple(parse_pin(words) for words in options.pin),
        strategy=options.strategy,
        workload=Workload(options.prompt_tokens, options.answer_tokens),
        machine=getattr(options, "machine", None),
        kv=options.kv_cache or "",
    )


def show_of(options: argparse.Namespace) -> Show:
    """What of the plan is shown. Raises BadRequest where two things are asked for at once, or no model is named."""
    asked = [name for name in ("table", "compare", "export") if getattr(options, name)]
    if len(asked) > 1:
        raise BadRequest(f"--{asked[0]} and --{asked[1]} are two answers.", hint="Ask for one at a time.")
    if options.model is None and not options.table:
        raise BadRequest(
            "There is no model.",
            hint="Name a folder, a public model or hub:ORGANISATION/NAME; before --export, which takes what follows.",
        )
    return Show(options.table, options.compare, Export.of(options.export) if options.export else None)
