"""Which weights transformers keeps in float32: core's lists against the installed library, and against real loads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import model_type_to_module_name
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from layerlight.core.messages import ModelChecked, ModelLoaded
from layerlight.core.sizing.single_precision import ALWAYS, BUILT, HALF, family_of
from layerlight.engine.engine import TorchEngine
from tests.engine.events import Events
from tests.engine.model_kinds import KINDS
from tests.engine.tiny_models import VOCABULARY, byte_tokenizer, request_for

pytestmark = pytest.mark.engine

KEPT = re.compile(r"^    _keep_in_fp32_modules(_strict)? = (\[[^\]]*\])", re.MULTILINE)


def families() -> Iterator[tuple[str, Path]]:
    """(model type, its code) of every language model; those of one file are one family."""
    models = Path(transformers.__file__).parent / "models"
    types = {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
    for model_type in sorted(types):
        module = model_type_to_module_name(model_type)
        code = models / module / f"modeling_{module}.py"
        if code.is_file():
            yield model_type, code


def listed(code: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"": set(), "_strict": set()}
    for strict, names in KEPT.findall(code.read_text("utf-8")):
        found[strict].update(ast.literal_eval(names))
    return found


def test_the_lists_are_those_of_the_installed_transformers() -> None:
    """Types that keep none are not listed, and no list has grown or shrunk."""
    wrong = {}
    for model_type, code in families():
        theirs, family = listed(code), family_of(model_type)
        ours = {"": set(HALF.get(family, ())), "_strict": set(ALWAYS.get(family, ()))}
        if any(theirs[strict] != ours[strict] for strict in theirs):
            wrong[model_type] = theirs, ours
    assert wrong == {}


ENDS = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}


@pytest.fixture(scope="module", params=["latent", "latent 2", "sinks", "delta olmo"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of a type that keeps some weights in float32, saved in bfloat16."""
    model_type, sizes = KINDS[request.param]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **sizes | ENDS)
    made = tmp_path_factory.mktemp("kept") / model_type
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.to(torch.bfloat16).save_pretrained(made)
    byte_tokenizer().save_pretrained(made)
    return made


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_plan_check_and_load_agree_to_the_byte(folder: Path, dtype: str, engine: TorchEngine) -> None:
    """A15 for weights that stay in float32: headers, the empty model and what was measured."""
    request = request_for(folder, dtype=dtype)
    events = Events()
    engine.load(request, events.job())
    measured = {each.layer: each.size for each in events.last(ModelLoaded).placed}
    assert {each.layer: each.size for each in request.placements} == measured
    assert dict(events.last(ModelChecked).layers) == measured


def test_what_a_type_s_own_code_makes_in_single_precision() -> None:
    """Of the kinds that are asked elsewhere, on the meta device."""
    for model_type, sizes in KINDS.values():
        config = transformers.AutoConfig.for_model(model_type, **sizes)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        known = re.compile("|".join((*ALWAYS.get(model_type, ()), *BUILT.get(model_type, ()))) or r"(?!)")
        single = {name for name, each in model.named_parameters() if each.dtype == torch.float32}
        assert {name for name in single if not known.search(name)} == set(), model_type
