"""Inspection: every kind of folder told apart, layers and bytes exact, every fault said at scan."""

from __future__ import annotations

import codecs
import importlib.util
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layerlight.core.errors import BrokenModel, NotAModel, WrongKindOfModel
from layerlight.core.inspection import inspect_folder, require_runnable
from layerlight.core.model import LayerKind, Model, ModelKind
from tests.model_folders import (
    LFS_POINTER,
    llama_config,
    llama_shapes,
    write_gguf,
    write_index,
    write_json,
    write_llama,
    write_pickle,
    write_safetensors,
    write_shards,
    write_zip,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "tiny")


def change_config(folder: Path, **changes: Any) -> Path:
    write_json(folder / "config.json", llama_config(**changes))
    return folder


# -- a whole model -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [0, 1, 5])
def test_layers_are_modules_with_exact_bytes(tmp_path: Path, shards: int) -> None:
    model = inspect_folder(write_llama(tmp_path / "tiny", shards=shards))
    assert (model.kind, model.architecture, model.name, model.dtype) == (
        ModelKind.CHAT,
        "LlamaForCausalLM",
        "tiny",
        "bfloat16",
    )
    assert model.problems == ()
    decoder = 2 * (2 * 32 + 3 * 32 * 48 + 2 * 32 * 32 + 2 * 16 * 32)
    assert [(layer.name, layer.kind, layer.size) for layer in model.layers] == [
        ("model.embed_tokens", LayerKind.EMBEDDING, 64 * 32 * 2),
        ("model.rotary_emb", LayerKind.OTHER, 0),
        ("model.layers.0", LayerKind.DECODER, decoder),
        ("model.layers.1", LayerKind.DECODER, decoder),
        ("model.layers.2", LayerKind.DECODER, decoder),
        ("model.norm", LayerKind.NORM, 64),
        ("lm_head", LayerKind.HEAD, 64 * 32 * 2),
    ]
    assert model.size == sum(os.path.getsize(Path(model.folder) / file) for file in model.files) - headers(model)
    assert len(model.files) == max(shards, 1)
    assert require_runnable(model) is model


def headers(model: Model) -> int:
    return sum(8 + int.from_bytes((Path(model.folder) / file).read_bytes()[:8], "little") for file in model.files)


def test_a_tied_head_is_a_layer_without_bytes(tmp_path: Path) -> None:
    model = inspect_folder(write_llama(tmp_path / "tied", tie_word_embeddings=True))
    assert model.problems == ()
    assert model.tied == (("model.embed_tokens", "lm_head"),)
    assert (model.layer("lm_head").size, model.layer("lm_head").parameters) == (0, 0)


def test_an_embedding_saved_twice_counts_once(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "twice")
    change_config(folder, tie_word_embeddings=True)
    model = inspect_folder(folder)
    assert model.layer("lm_head").size == 0
    assert any("twice" in note for note in model.notes)


@pytest.mark.parametrize(("model_type", "tied"), [("llama", False), ("gemma2", True), ("gpt2", True)])
def test_a_config_that_does_not_say_ties_as_its_type_does(tmp_path: Path, model_type: str, tied: bool) -> None:
    folder = write_llama(tmp_path / "unsaid", tie_word_embeddings=None, model_type=model_type)
    assert bool(inspect_folder(folder).tied) is tied


@pytest.mark.parametrize(("dtype", "name"), [("BF16", "bfloat16"), ("F16", "float16"), ("F32", "float32")])
def test_bytes_and_dtype_come_from_the_files(tmp_path: Path, dtype: str, name: str) -> None:
    """A15: a config without a dtype, or with another one."""
    for said in (None, "float64"):
        folder = write_llama(tmp_path / f"{dtype}-{said}", dtype=dtype, torch_dtype=said)
        model = inspect_folder(folder)
        assert model.dtype == name
        assert model.size == model.parameters * (4 if dtype == "F32" else 2)


def test_tensors_that_are_not_loaded_are_not_counted(folder: Path) -> None:
    whole = inspect_folder(folder)
    extra = {"model.layers.3.mlp.up_proj.weight": (48, 32), "mtp.fc.weight": (8, 8), "rotary_emb.inv_freq": (4,)}
    write_safetensors(folder / "model.safetensors", llama_shapes() | extra)
    model = inspect_folder(folder)
    assert model.size == whole.size
    assert any("not part of the loaded model" in note for note in model.notes)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ({"chat_template": "{{ messages }}"}, "tokenizer_config.json"),
        ({"chat_template": [{"name": "default", "template": "{{ messages }}"}]}, "tokenizer_config.json"),
        ({"chat_template": "{{ messages }}"}, "chat_template.json"),
        ("{{ messages }}", "chat_template.jinja"),
        ("{{ messages }}", "additional_chat_templates/default.jinja"),
    ],
)
def test_a_chat_template_is_found_wherever_it_may_lie(tmp_path: Path, template: Any, name: str) -> None:
    folder = write_llama(tmp_path / "chat", chat_template=False)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(template if isinstance(template, str) else json.dumps(template))
    assert inspect_folder(folder).kind is ModelKind.CHAT


@pytest.mark.parametrize("template", [None, "", [{"name": "tool_use", "template": "x"}], 7])
def test_a_model_without_a_template_is_a_base_model(tmp_path: Path, template: Any) -> None:
    """E15: no error, plain completion instead."""
    folder = write_llama(tmp_path / "base", chat_template=False)
    write_json(folder / "tokenizer_config.json", {"chat_template": template})
    model = inspect_folder(folder)
    assert (model.kind, model.problems, model.chat_template) == (ModelKind.BASE, (), False)
    assert any("continues your text" in note for note in model.notes)


# -- which files -------------------------------------------------------------------------------------------------------


def test_a_single_file_wins_over_everything_beside_it(folder: Path) -> None:
    """E05: a stale index, pickles and other sets beside a complete file change nothing."""
    whole = inspect_folder(folder)
    write_index(folder, {f"t{number}": f"model-{number:05}-of-00030.safetensors" for number in range(30)})
    write_pickle(folder / "pytorch_model.bin", {"other": (2, 2)})
    write_safetensors(folder / "consolidated.safetensors", {"other": (2, 2)})
    model = inspect_folder(folder)
    assert (model.layers, model.files, model.problems) == (whole.layers, ("model.safetensors",), ())
    assert any("stale" in note and "30" in note for note in model.notes)


def test_a_stale_index_beside_another_complete_set_is_called_stale(tmp_path: Path) -> None:
    """E05."""
    folder = write_llama(tmp_path / "stale", shards=6)
    write_index(folder, {f"t{number}": f"model-{number:05}-of-00030.safetensors" for number in range(30)})
    model = inspect_folder(folder)
    assert "stale" in model.problems[0]
    assert "6 other files" in model.problems[0]


@pytest.mark.parametrize("gone", [[2], [1, 6]])
def test_missing_shards_are_named(tmp_path: Path, gone: list[int]) -> None:
    """E04."""
    folder = write_llama(tmp_path / "holes", shards=6)
    for number in gone:
        (folder / f"model-{number:05}-of-00006.safetensors").unlink()
    model = inspect_folder(folder)
    for number in gone:
        assert f"model-{number:05}-of-00006.safetensors" in model.problems[0]
    assert f"{len(gone)} of 6" in model.problems[0]
    with pytest.raises(BrokenModel, match="missing"):
        require_runnable(model)


def test_a_truncated_shard_is_said_with_both_sizes(tmp_path: Path) -> None:
    """E02."""
    folder = write_llama(tmp_path / "cut", shards=6)
    shard = folder / "model-00003-of-00006.safetensors"
    whole = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[: whole // 2])
    problem = inspect_folder(folder).problems[0]
    for words in (shard.name, str(whole), str(whole // 2)):
        assert words in problem


@pytest.mark.parametrize("content", [LFS_POINTER, b""])
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_pointer_or_an_empty_file_is_said(folder: Path, content: bytes, name: str) -> None:
    """E01, for safetensors and pickles."""
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)
    problem = inspect_folder(folder).problems[0]
    assert name in problem
    assert ("pointer" if content else "empty") in problem


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda folder: None, "There are no weights"),
        (lambda folder: (folder / "model.safetensors.part").write_bytes(b"1"), "still being downloaded"),
        (lambda folder: (folder / "tf_model.h5").write_bytes(b"1"), "TensorFlow"),
        (lambda folder: (folder / "flax_model.msgpack").write_bytes(b"1"), "Flax"),
        (lambda folder: write_safetensors(folder / "weights.safetensors", llama_shapes()), "weights.safetensors"),
        (lambda folder: (folder / "model.safetensors").symlink_to(folder / "gone"), "link to a file that is gone"),
        (lambda folder: write_index(folder, {"a": "../../secret.safetensors"}), "outside its folder"),
        (lambda folder: write_index(folder, {"a": "/etc/secret.safetensors"}), "outside its folder"),
        (lambda folder: write_index(folder, {}), "names no file"),
        (lambda folder: (folder / "model.safetensors.index.json").write_text("{"), "can't be read"),
        (lambda folder: write_json(folder / "model.safetensors.index.json", {"weight_map": 3}), "no weight_map"),
    ],
)
def test_why_there_are_no_weights(folder: Path, prepare: Callable[[Path], object], words: str) -> None:
    """A folder with a config alone keeps its kind."""
    (folder / "model.safetensors").unlink()
    prepare(folder)
    model = inspect_folder(folder)
    assert (model.kind, model.layers) == (ModelKind.CHAT, ())
    assert words in model.problems[0]
    assert model.hint
    with pytest.raises(BrokenModel):
        require_runnable(model)


@pytest.mark.parametrize("index", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_an_index_that_transformers_can_t_read_is_a_problem_before_the_load(tmp_path: Path, index: str) -> None:
    """E07: as it is of config.json."""
    folder = write_llama(tmp_path / "marked", shards=2)
    content = (folder / "model.safetensors.index.json").read_bytes()
    (folder / "model.safetensors.index.json").unlink()
    (folder / index).write_bytes(codecs.BOM_UTF8 + content)
    model = inspect_folder(folder)
    assert index in model.problems[0]
    assert "byte-order mark" in model.problems[0]
    assert model.hint
    with pytest.raises(BrokenModel):
        require_runnable(model)


def test_shards_without_an_index_are_told_apart(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "loose", shards=3)
    (folder / "model.safetensors.index.json").unlink()
    assert "no model.safetensors.index.json" in inspect_folder(folder).problems[0]
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert "Only some" in inspect_folder(folder).problems[0]


def test_an_index_that_promises_more_than_the_shards_hold(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "short", shards=2)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"]["model.layers.9.weight"] = "model-00001-of-00002.safetensors"
    write_json(folder / "model.safetensors.index.json", index)
    assert "model.layers.9.weight" in inspect_folder(folder).problems[0]


def test_decoder_layers_without_weights_are_named(folder: Path) -> None:
    change_config(folder, num_hidden_layers=5)
    assert "2 of 5 decoder layers have no weights: 3, 4" in inspect_folder(folder).problems[0]


def test_a_missing_head_is_said(folder: Path) -> None:
    write_safetensors(folder / "model.safetensors", llama_shapes(head=False))
    assert "no output head" in inspect_folder(folder).problems[0]


def test_a_file_that_the_config_names_comes_first(folder: Path) -> None:
    shutil.move(folder / "model.safetensors", folder / "special.safetensors")
    assert inspect_folder(change_config(folder, transformers_weights="special.safetensors")).problems == ()
    assert "gone" in inspect_folder(change_config(folder, transformers_weights="gone.safetensors")).problems[0]


@pytest.mark.parametrize("sharded", [False, True])
def test_pickled_weights_give_the_same_layers(folder: Path, sharded: bool) -> None:
    """B01's `.bin` model: sizes known, marked as pickle."""
    whole = inspect_folder(folder)
    (folder / "model.safetensors").unlink()
    shapes = llama_shapes()
    if sharded:
        half = len(shapes) // 2
        parts = {
            "pytorch_model-00001-of-00002.bin": list(shapes)[:half],
            "pytorch_model-00002-of-00002.bin": list(shapes)[half:],
        }
        for file, names in parts.items():
            write_pickle(folder / file, {name: shapes[name] for name in names})
        write_index(
            folder, {name: file for file, names in parts.items() for name in names}, "pytorch_model.bin.index.json"
        )
    else:
        write_pickle(folder / "pytorch_model.bin", shapes)
    model = inspect_folder(folder)
    assert model.problems == ()
    assert [(layer.name, layer.size) for layer in model.layers] == [(layer.name, layer.size) for layer in whole.layers]
    assert model.pickled
    assert not whole.pickled
    assert any("pickles" in note for note in model.notes)


# -- config.json -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"{", "not valid JSON"),
        (b"[]", "no object"),
        (LFS_POINTER, "Git LFS pointer"),
        (json.dumps(llama_config(model_type=None)).encode(), "names no model_type"),
        (json.dumps(llama_config(model_type="lamma")).encode(), "“lamma” is not one that transformers"),
        (b"\xef\xbb\xbf" + json.dumps(llama_config()).encode(), "byte-order mark"),
        (json.dumps(llama_config()).encode("utf-16"), "byte-order mark"),
    ],
)
def test_what_is_wrong_with_a_config_is_told_apart(folder: Path, content: bytes, words: str) -> None:
    """E07: each fault its own words, and what can be read is."""
    (folder / "config.json").write_bytes(content)
    model = inspect_folder(folder)
    assert words in model.problems[0]
    assert model.hint
    assert model.size > 0
    if words == "byte-order mark":
        assert (model.kind, model.shape is not None) == (ModelKind.CHAT, True)


def test_a_config_without_architectures_still_loads(folder: Path) -> None:
    """E07."""
    model = inspect_folder(change_config(folder, architectures=None))
    assert (model.kind, model.problems) == (ModelKind.CHAT, ())
    assert any("names no architecture" in note for note in model.notes)


def test_weights_without_a_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    model = inspect_folder(folder)
    assert model.kind is ModelKind.UNKNOWN
    assert "no config.json" in model.problems[0]


@pytest.mark.parametrize("figure", ["hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings"])
@pytest.mark.parametrize("value", ["many", -1, None, [], 1.5, True, {}, 2**70, 2**39])
def test_figures_that_can_not_be_never_crash(folder: Path, figure: str, value: Any) -> None:
    config = llama_config()
    config[figure] = value
    write_json(folder / "config.json", config)
    assert inspect_folder(folder).kind is ModelKind.CHAT


# -- other kinds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "model_type", "kind"),
    [
        ("BertModel", "bert", ModelKind.ENCODER),
        ("BertForMaskedLM", "bert", ModelKind.ENCODER),
        ("LlamaForSequenceClassification", "llama", ModelKind.ENCODER),
        ("MistralModel", "mistral", ModelKind.ENCODER),
        ("XLMRobertaModel", "xlm-roberta", ModelKind.ENCODER),
        ("T5ForConditionalGeneration", "t5", ModelKind.UNKNOWN),
        ("WhisperForConditionalGeneration", "whisper", ModelKind.UNKNOWN),
        ("BartForConditionalGeneration", "bart", ModelKind.UNKNOWN),
        ("GPT2LMHeadModel", "gpt2", ModelKind.CHAT),
        ("Gemma3ForConditionalGeneration", "gemma3", ModelKind.CHAT),
        ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", ModelKind.CHAT),
    ],
)
def test_what_an_architecture_can_do(folder: Path, architecture: str, model_type: str, kind: ModelKind) -> None:
    model = inspect_folder(change_config(folder, architectures=[architecture], model_type=model_type))
    assert model.kind is kind
    if not kind.generates_text:
        assert model.problems
        with pytest.raises(WrongKindOfModel, match="does not write text"):
            require_runnable(model)


def test_an_adapter_names_its_base(tmp_path: Path) -> None:
    """E08."""
    write_json(tmp_path / "adapter_config.json", {"peft_type": "LORA", "base_model_name_or_path": "someone/base-7b"})
    write_safetensors(tmp_path / "adapter_model.safetensors", {"lora_A.weight": (4, 4)})
    model = inspect_folder(tmp_path)
    assert model.kind is ModelKind.ADAPTER
    assert "someone/base-7b" in model.problems[0]
    assert "someone/base-7b" in model.hint
    with pytest.raises(WrongKindOfModel, match="adapter"):
        require_runnable(model)


def test_a_folder_with_gguf_files_only(tmp_path: Path) -> None:
    """E08: not supported here, but named."""
    entries = {
        "general.architecture": "llama",
        "general.name": "Small One",
        "general.tags": ["a", "b"],
        "general.license": "apache-2.0",
        "llama.context_length": 4096,
        "tokenizer.ggml.tokens": ["x"],
    }
    write_gguf(tmp_path / "m-Q4_K.gguf", entries)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF\x03")
    model = inspect_folder(tmp_path)
    assert (model.kind, model.architecture, len(model.files)) == (ModelKind.GGUF, "llama", 2)
    assert "not supported" in model.problems[0]
    told = " ".join(model.notes)
    for words in ("Small One", "4096", "apache-2.0", "broken.gguf is cut short"):
        assert words in told
    with pytest.raises(WrongKindOfModel, match="several times the file") as refused:
        require_runnable(model)
    assert "does not write text" not in refused.value.message
    assert "4 or 8 bit" in refused.value.hint


def write_pipeline(folder: Path) -> Path:
    write_json(
        folder / "model_index.json",
        {
            "_class_name": "TinyPipeline",
            "unet": ["diffusers", "UNet2DConditionModel"],
            "vae": ["diffusers", "AutoencoderKL"],
            "text_encoder": ["transformers", "CLIPTextModel"],
            "tokenizer": ["transformers", "CLIPTokenizer"],
            "safety_checker": [None, None],
        },
    )
    for part in ("unet", "vae", "text_encoder", "tokenizer"):
        (folder / part).mkdir()
    write_json(folder / "unet/config.json", {})
    write_safetensors(folder / "unet/diffusion_pytorch_model.safetensors", {"w": (10, 10)}, "F16")
    write_safetensors(folder / "vae/diffusion_pytorch_model.safetensors", {"w": (5, 5)}, "F32")
    write_shards(folder / "text_encoder", {"a": (4, 4), "b": (4, 4)}, 2)
    return folder


def test_an_image_pipeline_has_components_with_sizes(tmp_path: Path) -> None:
    model = inspect_folder(write_pipeline(tmp_path))
    assert (model.kind, model.architecture, model.problems) == (ModelKind.IMAGE, "TinyPipeline", ())
    sizes = {component.name: component.size for component in model.components}
    assert sizes == {"unet": 200, "vae": 100, "text_encoder": 64, "tokenizer": 0}
    assert {layer.name: layer.size for layer in model.layers} == {"unet": 200, "vae": 100, "text_encoder": 64}
    with pytest.raises(WrongKindOfModel):
        require_runnable(model)


def test_an_image_pipeline_says_what_it_lacks(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path)
    shutil.rmtree(folder / "vae")
    (folder / "unet/diffusion_pytorch_model.safetensors").write_bytes(LFS_POINTER)
    problems = " ".join(inspect_folder(folder).problems)
    assert "vae is missing" in problems
    assert "unet/diffusion_pytorch_model.safetensors is a Git LFS pointer" in problems


# -- code, tokenizers, quantised files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("model_type", "runs"), [("llama", True), ("brand_new", False)])
def test_code_in_the_folder_is_never_run_and_said(folder: Path, model_type: str, runs: bool) -> None:
    """E12: with a type that transformers has, its own class serves; without one the model is refused."""
    marker = folder / "marker"
    (folder / "modeling_own.py").write_text(f"open({str(marker)!r}, 'w').close()")
    (folder / "configuration_own.py").write_text(f"open({str(marker)!r}, 'w').close()")
    own = {"AutoConfig": "configuration_own.Own", "AutoModelForCausalLM": "modeling_own.Own"}
    model = inspect_folder(change_config(folder, auto_map=own, model_type=model_type))
    assert not marker.exists()
    assert (model.problems == ()) is runs
    assert any("never run" in words for words in (*model.notes, *model.problems))


class Payload:
    """Leaves a marker when it is unpickled by a reader that runs what it reads."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch '{self.marker}'",)


@pytest.mark.parametrize("file", ["pytorch_model.bin", "pytorch_model-00001-of-00001.bin"])
def test_a_pickle_with_code_is_a_problem_and_never_runs(folder: Path, file: str) -> None:
    """E13."""
    marker = folder / "marker"
    program = pickle.dumps({"model.norm.weight": Payload(marker)}, 2)
    (folder / "model.safetensors").unlink()
    write_zip(folder / file, program)
    if file != "pytorch_model.bin":
        write_index(folder, {"model.norm.weight": file}, "pytorch_model.bin.index.json")
    model = inspect_folder(folder)
    assert not marker.exists()
    assert f"{os.system.__module__}.system" in model.problems[0]
    assert "was not run" in model.problems[0]
    assert model.pickled
    pickle.loads(program)
    assert marker.exists(), "the payload is a real one"


def test_no_tokenizer_is_said(folder: Path) -> None:
    """E14: such a model can be planned, not run."""
    (folder / "tokenizer.json").unlink()
    model = inspect_folder(folder)
    assert (model.tokenizer, model.tokenizer_problem) == (False, model.problems[0])
    assert "no tokenizer files" in model.problems[0]
    assert require_runnable(model, tokenizer=False) is model
    with pytest.raises(BrokenModel, match="tokenizer"):
        require_runnable(model)


@pytest.mark.parametrize(("converter", "found"), [(False, False), (True, True)])
def test_a_sentencepiece_model_alone_names_the_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch, converter: bool, found: bool
) -> None:
    """E14: only tokenizer.model, and the converter absent."""
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")
    pretend_installed(monkeypatch, {"sentencepiece": converter, "tiktoken": False})
    model = inspect_folder(folder)
    assert model.tokenizer is found
    assert found or "sentencepiece" in model.problems[0]


@pytest.mark.parametrize("files", [["tokenizer.json"], ["vocab.json", "merges.txt"], ["vocab.txt"], ["tekken.json"]])
def test_tokenizers_of_every_form_are_found(folder: Path, files: list[str]) -> None:
    (folder / "tokenizer.json").unlink()
    for name in files:
        (folder / name).write_text("{}")
    assert inspect_folder(folder).tokenizer


@pytest.mark.parametrize(
    ("method", "package"),
    [
        ("gptq", "gptqmodel"),
        ("awq", "gptqmodel"),
        ("compressed-tensors", "compressed-tensors"),
        ("bitsandbytes", "bitsandbytes"),
        ("hqq", "hqq"),
        ("fp8", None),
        ("mxfp4", None),
    ],
)
def test_quantised_weights_name_their_method_and_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch, method: str, package: str | None
) -> None:
    change_config(folder, quantization_config={"quant_method": method})
    pretend_installed(monkeypatch, {})
    model = inspect_folder(folder)
    assert model.quantization == method
    assert any(method in note for note in model.notes)
    if package is None:
        assert not any("package" in problem for problem in model.problems)
    else:
        assert package in model.problems[0]
        assert package in model.hint


def test_an_old_bitsandbytes_config_without_a_method(folder: Path) -> None:
    assert (
        inspect_folder(change_config(folder, quantization_config={"load_in_4bit": True})).quantization == "bitsandbytes"
    )


def pretend_installed(monkeypatch: pytest.MonkeyPatch, installed: dict[str, bool]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if installed.get(name) else None)


# -- paths -------------------------------------------------------------------------------------------------------------


def cached(tmp_path: Path) -> Path:
    cache = tmp_path / "hub" / "models--org--tiny-model"
    write_llama(cache / "snapshots" / "old")
    newest = write_llama(cache / "snapshots" / "abc123")
    (cache / "blobs").mkdir()
    shutil.move(newest / "model.safetensors", cache / "blobs" / "f00d")
    (newest / "model.safetensors").symlink_to("../../blobs/f00d")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("abc123\n")
    return cache


def test_a_cache_folder_leads_to_its_newest_snapshot(tmp_path: Path) -> None:
    cache = cached(tmp_path)
    model = inspect_folder(cache)
    assert (model.name, Path(model.folder)) == ("org/tiny-model", cache / "snapshots" / "abc123")
    assert model.problems == ()
    assert inspect_folder(cache / "snapshots" / "abc123") == model


@pytest.mark.parametrize("reference", ["", "gone", "../../elsewhere", None])
def test_a_cache_folder_with_an_odd_reference(tmp_path: Path, reference: str | None) -> None:
    cache = cached(tmp_path)
    os.utime(cache / "snapshots" / "old", ns=(1, 1))
    if reference is None:
        (cache / "refs" / "main").write_bytes(b"\xff\xfe")
    else:
        (cache / "refs" / "main").write_text(reference)
    assert Path(inspect_folder(cache).folder).name == "abc123"


def test_a_cache_folder_without_a_snapshot(tmp_path: Path) -> None:
    (tmp_path / "models--a--b" / "snapshots").mkdir(parents=True)
    with pytest.raises(NotAModel, match="without a snapshot"):
        inspect_folder(tmp_path / "models--a--b")


@pytest.mark.parametrize("name", ["模型 é 📦 100%#?", "two  spaces ", "-dash", "a'b\"c", "x" * 200])
def test_odd_names_are_read_as_they_are(tmp_path: Path, name: str) -> None:
    """E11."""
    model = inspect_folder(str(write_llama(tmp_path / name, shards=2)))
    assert (model.name, model.problems) == (name, ())


def test_a_path_beyond_260_characters(tmp_path: Path) -> None:
    """E10."""
    place = tmp_path / ("long " * 18) / ("longer " * 14) / ("longest " * 12)
    assert len(str(place)) > 300
    assert inspect_folder(write_llama(place)).problems == ()


def test_nothing_is_written_into_the_folder(folder: Path) -> None:
    """E10: a read-only folder is as good as any."""
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}
    changed = folder.stat().st_mtime_ns
    inspect_folder(folder)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")} == before
    assert folder.stat().st_mtime_ns == changed


def test_a_file_of_the_model_leads_to_its_folder(folder: Path) -> None:
    assert inspect_folder(folder / "model.safetensors") == inspect_folder(folder)


def test_no_folder_no_model(tmp_path: Path) -> None:
    with pytest.raises(NotAModel, match="There is no folder") as caught:
        inspect_folder(tmp_path / "nowhere")
    assert caught.value.exit_code == 2
    with pytest.raises(NotAModel, match="holds no model"):
        inspect_folder(tmp_path)


@pytest.mark.parametrize("path", ["x" * 5000, "nul\0byte", "~no-such-person/model", "\ud83d"])
def test_a_path_that_can_not_be_is_no_model(path: str) -> None:
    """E10, E11: named, never a crash."""
    with pytest.raises(NotAModel):
        inspect_folder(path)


@pytest.mark.parametrize("name", ["x" * 300, "nul\0byte", "a/../../b", "C:\\b", "\ud83d", ""])
def test_an_index_with_impossible_file_names(folder: Path, name: str) -> None:
    (folder / "model.safetensors").unlink()
    write_index(folder, {"w": name})
    assert inspect_folder(folder).problems
    assert inspect_folder(change_config(folder, transformers_weights=name or "../up")).problems


def test_a_folder_of_models_points_inside(folder: Path) -> None:
    with pytest.raises(NotAModel) as caught:
        inspect_folder(folder.parent)
    assert "tiny" in caught.value.hint


def test_a_huge_header_among_good_shards(tmp_path: Path) -> None:
    """E17: said at scan, by name."""
    folder = write_llama(tmp_path / "huge", shards=2)
    (folder / "model-00001-of-00002.safetensors").write_bytes((2**60).to_bytes(8, "little") + bytes(100))
    assert "model-00001-of-00002.safetensors claims a header of" in inspect_folder(folder).problems[0]


def test_a_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_llama(tmp_path / "mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert inspect_folder("~/mine").problems == ()


# -- weights in whole numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["I8", "U8", "I32", "I64", "BOOL", "BF16", "F16", "F32", "F64", "F8_E4M3"])
def test_whole_numbers_are_weights_only_where_the_config_says_how(folder: Path, dtype: str) -> None:
    """Loaded at face value they would answer nonsense without a word."""
    write_safetensors(folder / "model.safetensors", llama_shapes(), dtype)
    whole = dtype[0] in "IU" or dtype == "BOOL"
    problems = inspect_folder(folder).problems
    assert bool(problems) is whole
    assert not whole or "does not say how" in problems[0]
    change_config(folder, quantization_config={"quant_method": "bitsandbytes"})
    assert not any("does not say how" in problem for problem in inspect_folder(folder).problems)


def test_a_mask_among_the_weights_may_hold_whole_numbers(folder: Path) -> None:
    shapes = llama_shapes()
    masks = {f"model.layers.{index}.self_attn.mask": (4, 4) for index in range(3)}
    write_shards(folder, shapes, 1)
    (folder / "model.safetensors").unlink()
    write_safetensors(folder / "masks.safetensors", masks, "BOOL")
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    write_index(folder, index | dict.fromkeys(masks, "masks.safetensors"))
    assert inspect_folder(folder).problems == ()
