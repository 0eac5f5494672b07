"""Models that also see answer questions in text; their towers are layers of their own that no such pass needs."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from layerlight.core.device import Budget
from layerlight.core.errors import RunFailed
from layerlight.core.export import python_snippet
from layerlight.core.inspection import inspect_folder
from layerlight.core.messages import LayerRan, LoadRequest, ModelChecked, ModelLoaded, RunFinished
from layerlight.core.model import LayerKind, ModelKind
from layerlight.core.placing import make_plan
from layerlight.core.plan import Wishes
from layerlight.engine.chat_template import as_parts, wants_parts
from layerlight.engine.engine import TorchEngine
from layerlight.engine.loading import load_tokenizer
from layerlight.engine.prompt import encode
from tests.engine.events import Events, ask, text_request
from tests.engine.seeing_models import READ_OUTSIDE, SEEING, write_seeing
from tests.engine.tiny_models import CHAT, byte_tokenizer, machine, plain_tokens, request_for

PARTS = (
    "{% for m in messages %}[{{ m['role'] }}] {% for c in m['content'] %}{% if c['type'] == 'image' %}<image>"
    "{% elif c['type'] == 'text' %}{{ c['text'] }}{% endif %}{% endfor %}\n{% endfor %}[assistant]"
)
"""As SmolVLM and Idefics write it: of a message that is a text, nothing is left."""
BOTH = (
    "{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for c in m['content'] %}<part>{{ c['text'] }}{% endfor %}{% endif %}{% endfor %}"
)
"""As Qwen2-VL and Gemma 3 write it."""
LLAVA = (
    "{% for m in messages %}{{ m['role'] | upper }}: {% for c in m['content'] | selectattr('type', 'equalto', 'text')"
    " %}{{ c['text'] }}{% endfor %}{% endfor %}ASSISTANT:"
)


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root, made = tmp_path_factory.mktemp("seeing"), dict[str, Path]()

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = write_seeing(root / kind, kind)
        return made[kind]

    return folder


def _ways(folder: Path) -> dict[str, LoadRequest]:
    return {
        "all in RAM": request_for(folder, context=32),
        "half on disk": request_for(folder, lambda index, count: "disk" if index % 2 else "cpu", context=32),
        "all on disk": request_for(folder, lambda index, count: "disk", context=32, dtype="bfloat16"),
    }


@pytest.mark.parametrize("kind", sorted(SEEING))
def test_same_tokens_and_places_wherever_layers_rest(
    kind: str, engine: TorchEngine, seeing: Callable[[str], Path]
) -> None:
    """Towers are placed and weighed as planned, and no pass of text brings a byte of them."""
    folder = seeing(kind)
    towers = {each.name for each in inspect_folder(folder).layers if each.kind is LayerKind.TOWER}
    assert bool(towers) == (kind != "mllama"), "of Mllama's files the language model is loaded alone"
    for name, request in _ways(folder).items():
        events = Events()
        engine.load(request, events.job())
        placed = {each.layer: (each.rests_on, each.runs_on, each.size) for each in events.last(ModelLoaded).placed}
        wanted = {each.layer: (each.rests_on, each.runs_on, each.size) for each in request.placements if each.size}
        assert {layer: placed[layer] for layer in wanted} == wanted, name
        checked = events.last(ModelChecked)
        assert dict(checked.layers) == {layer: size for layer, (_, _, size) in placed.items()}, name
        assert checked.told.kv, "the empty model ran"
        running = Events()
        engine.generate(text_request(), running.job())
        assert list(running.last(RunFinished).result.tokens) == plain_tokens(
            folder, "hello there, world", request.dtype, 8
        ), name
        moved = {each.layer: each.bytes_moved for each in running.last(LayerRan).activity}
        assert {layer: moved[layer] for layer in towers} == dict.fromkeys(towers, 0), name


@pytest.mark.parametrize("kind", sorted(READ_OUTSIDE))
def test_a_table_that_the_library_reads_outside_its_pass_must_be_there(
    kind: str, engine: TorchEngine, seeing: Callable[[str], Path]
) -> None:
    """On disk it is, as pages of its file; where it is cast for each pass it is nowhere else, and torch says so."""
    folder = seeing(kind)
    engine.load(request_for(folder, lambda index, count: "disk", dtype="bfloat16", context=32), Events().job())
    on_disk = ask(engine).tokens
    engine.load(request_for(folder, dtype="bfloat16", context=32), Events().job())
    assert ask(engine).tokens == on_disk
    engine.load(request_for(folder, lambda index, count: "disk", context=32), Events().job())
    with pytest.raises(RunFailed, match=r"meta"):
        ask(engine)


@pytest.mark.simulated
@pytest.mark.parametrize("rests", ["sim:0", "sim:1", "cpu", "disk"])
@pytest.mark.parametrize("kind", ["gemma3", "qwen2_5_vl", "idefics3"])
def test_towers_rest_anywhere_beside_an_accelerator(
    kind: str, rests: str, engine: TorchEngine, seeing: Callable[[str], Path], simulated: Callable[..., object]
) -> None:
    """Idefics3 sends its input to where its first weight is, a tower's, which may be nowhere."""
    simulated([64 << 20, 64 << 20])
    folder = seeing(kind)
    layers = inspect_folder(folder).layers

    def place(index: int, count: int) -> str:
        if layers[index].kind is LayerKind.TOWER:
            return rests
        return "cpu" if (layers[index].index or 0) % 2 else "sim:0"

    request = request_for(folder, place, context=32, on=machine("sim:0", "sim:1"))
    events = Events()
    engine.load(request, events.job())
    placed = {each.layer: (each.rests_on, each.runs_on) for each in events.last(ModelLoaded).placed}
    wanted = {each.layer: (each.rests_on, each.runs_on) for each in request.placements if each.size}
    assert {layer: placed[layer] for layer in wanted} == wanted
    assert list(ask(engine).tokens) == plain_tokens(folder, "hello there, world", "float32", 8)


@pytest.mark.parametrize(("template", "parts"), [(CHAT, False), (BOTH, False), (PARTS, True), (LLAVA, True)])
def test_a_message_is_a_list_of_parts_only_for_a_template_that_would_lose_it(template: str, parts: bool) -> None:
    assert wants_parts(template) is parts
    tokenizer = byte_tokenizer(template)
    said = tokenizer.decode(encode(text_request("how are you?").messages, tokenizer))
    assert "how are you?" in said
    message = [{"role": "user", "content": as_parts("how are you?") if parts else "how are you?"}]
    assert said.removeprefix("<s>") == str(
        tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    ).removeprefix("<s>")


@pytest.mark.parametrize("template", ["nothing", "{% for", "{{ raise_exception('no') }}"])
def test_a_template_that_says_nothing_either_way_gets_texts(template: str) -> None:
    assert not wants_parts(template)


@pytest.mark.parametrize("name", ["chat_template.json", "processor_config.json"])
def test_a_template_beside_the_processor_is_the_tokenizers(name: str, tmp_path: Path) -> None:
    folder = write_seeing(tmp_path / "model", "llava")
    (folder / name).write_text(json.dumps({"chat_template": PARTS}))
    assert inspect_folder(folder).kind is ModelKind.CHAT
    assert load_tokenizer(str(folder)).chat_template == PARTS


def test_it_is_said_that_text_alone_is_taken(seeing: Callable[[str], Path]) -> None:
    assert any("pictures can't be shown" in note for note in inspect_folder(seeing("gemma3")).notes)


def test_the_exported_snippet_loads_it(
    seeing: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = inspect_folder(seeing("qwen2_5_vl"))
    wishes = Wishes(pins=(("model.visual", "disk"), ("model.language_model.layers.1", "disk")))
    script = tmp_path / "load.py"
    script.write_text(python_snippet(make_plan(model, machine(), Budget(context=32), wishes)), encoding="utf-8")
    made = runpy.run_path(str(script))
    assert capsys.readouterr().out.startswith("Hello")
    assert type(made["model"]).__name__ == model.architecture
