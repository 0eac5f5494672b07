"""A plan for elsewhere: a device map for transformers, JSON, and a Python snippet that loads the model as planned."""

from __future__ import annotations

import json

from layerlight.core.device import CPU, DISK
from layerlight.core.errors import BadRequest
from layerlight.core.inspecting.layer_names import NameRules, loaded_name
from layerlight.core.model import Layer, LayerKind
from layerlight.core.plan import Plan

OFFLOAD_FOLDER = "offload"
"""Where the snippet leaves weights that can't be read from the model's own files."""


def device_map(plan: Plan) -> dict[str, str | int]:
    """Module → place as transformers takes it: complete, none inside another, and CUDA devices as bare numbers.

    Experts that rest where their layer does are a part of it; else the layer is named by its parts. Raises BadRequest
    where transformers could not run that: it takes hidden states from one accelerator to another before whole layers.
    """
    places = plan.device_map()
    found: dict[str, str | int] = {}
    for layer in plan.model.layers:
        inside = next((each for each in plan.model.layers if _is_inside(each, layer)), None)
        outer = next((each for each in plan.model.layers if _is_inside(layer, each)), None)
        if outer is not None and places[layer.name] == places[outer.name]:
            continue
        if inside is None or places[inside.name] == places[layer.name]:
            found[layer.name] = _place(places[layer.name])
            continue
        if len(set(places.values()) - {CPU, DISK}) > 1:
            raise BadRequest(
                "transformers can't run layers whose experts rest elsewhere on several accelerators.",
                hint="Save the plan as JSON, which Layerlight loads itself.",
            )
        found |= dict.fromkeys(_parts(layer, inside, plan), _place(places[layer.name]))
    return found


def _is_inside(inner: Layer, outer: Layer) -> bool:
    return inner.kind is LayerKind.EXPERTS and inner.name.startswith(f"{outer.name}.")


def _parts(layer: Layer, inside: Layer, plan: Plan) -> list[str]:
    """The largest modules of a layer that hold nothing of the layer inside it."""
    rules = NameRules(plan.model.shape.model_type if plan.model.shape else "")
    found = []
    for tensor in layer.tensors:
        _, _, own = (loaded_name(tensor.name, rules) or tensor.name).partition(f".{layer.index}.")
        path = f"{layer.name}.{own}".split(".")
        end = len(layer.name.split(".")) + 1
        while inside.name.startswith(".".join(path[:end]) + "."):
            end += 1
        found.append(".".join(path[:end]))
    return list(dict.fromkeys(found))


def plan_json(plan: Plan) -> str:
    """The placement as `--map` and the window read it again, with the model and the places it was made for."""
    content = {
        "model": plan.model.name,
        "parameters": plan.model.parameters,
        "context": plan.budget.context,
        "dtype": plan.dtype,
        "quantization": plan.wishes.quantization,
        "kv_cache": plan.wishes.kv or None,
        "device_map": plan.device_map(),
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def max_memory(plan: Plan) -> dict[str | int, int]:
    """Bytes that weights may take on each place, as transformers takes it: places it has no key for are left out."""
    rooms: dict[str | int, int] = {}
    for use in plan.prediction.places:
        key = _place(use.place)
        if use.place != DISK and (isinstance(key, int) or key in (CPU, "mps")):
            rooms[key] = use.weights
    return rooms


def python_snippet(plan: Plan) -> str:
    """A complete Python programme: it loads the model as the plan places it and answers once."""
    dtype = f"torch.{plan.dtype}"
    lines = [
        '"""Loads a model as Layerlight planned it, and answers once."""',
        "",
        "import torch",
        f"from transformers import {', '.join(_imports(plan))}",
        "",
        f"FOLDER = {plan.model.folder!r}",
        f"DEVICE_MAP = {json.dumps(device_map(plan), indent=4, ensure_ascii=False)}",
        f"# What the plan leaves to weights on each place; beside them: {_beside(plan)}.",
        f"MAX_MEMORY = {max_memory(plan)!r}",
        *_in_place(plan),
        "",
        "tokenizer = AutoTokenizer.from_pretrained(FOLDER)",
        f"model = {_auto_class(plan)}.from_pretrained(",
        "    FOLDER,",
        f"    dtype={dtype},",
        "    device_map=DEVICE_MAP,",
        "    max_memory=MAX_MEMORY,",
        f"    offload_folder={OFFLOAD_FOLDER!r},",
        f"    attn_implementation={plan.attention!r},",
        *_quantization(plan, dtype),
        ")",
        "",
        f"# The plan keeps room for {plan.budget.context} tokens, prompt and answer together.",
        f'inputs = tokenizer("Hello", return_tensors="pt").to({_first_device(plan)!r})',
        f"answer = model.generate(**inputs, max_new_tokens={min(64, max(1, plan.budget.context // 2))}{_cache(plan)})",
        "print(tokenizer.decode(answer[0], skip_special_tokens=True))",
    ]
    return "\n".join(lines) + "\n"


def _in_place(plan: Plan) -> tuple[str, ...]:
    """A word where the CPU computes layers beside accelerators, which a device map can't say."""
    running = {each.runs_on for each in plan.placements}
    if CPU not in running or len(running) == 1:
        return ()
    return (
        "# Layerlight has the CPU compute what rests in RAM or on disk where it lies. A device map can't say that:",
        "# transformers carries it to an accelerator for every token, with the same answers at another speed.",
    )


def _first_device(plan: Plan) -> str:
    """Where the embedding runs: `model.device` is `meta` while it rests elsewhere."""
    embeddings = [layer.name for layer in plan.model.layers if layer.kind is LayerKind.EMBEDDING]
    return plan.placement(embeddings[0]).runs_on if embeddings else CPU


def _imports(plan: Plan) -> tuple[str, ...]:
    names = (_auto_class(plan), "AutoTokenizer")
    return (*names, "BitsAndBytesConfig") if plan.wishes.quantization else names


def _auto_class(plan: Plan) -> str:
    sees = any(layer.kind is LayerKind.TOWER for layer in plan.model.layers)
    return "AutoModelForImageTextToText" if sees else "AutoModelForCausalLM"


def _quantization(plan: Plan, dtype: str) -> tuple[str, ...]:
    match plan.wishes.quantization:
        case None:
            return ()
        case "int8":
            return ("    quantization_config=BitsAndBytesConfig(load_in_8bit=True),",)
        case four_bit:
            return (
                "    quantization_config=BitsAndBytesConfig(",
                f"        load_in_4bit=True, bnb_4bit_quant_type={four_bit!r}, bnb_4bit_compute_dtype={dtype}",
                "    ),",
            )


def _cache(plan: Plan) -> str:
    kept = f'cache_implementation="quantized", cache_config={{"backend": {plan.wishes.kv!r}}}'
    return f", {kept}" if plan.wishes.kv else ""


def _beside(plan: Plan) -> str:
    parts = [
        f"{use.used - use.weights} bytes on {use.place}" for use in plan.prediction.places if use.kv or use.working
    ]
    return ", ".join(parts) or "nothing"


def _place(place: str) -> str | int:
    kind, _, number = place.partition(":")
    return int(number) if kind == "cuda" and number else place
