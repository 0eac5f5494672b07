"""What a config's architecture can do: write text, only read it, or neither, and why."""

from __future__ import annotations

from dataclasses import dataclass

from layerlight.core.inspecting.config_defaults import TRANSFORMERS, config_defaults
from layerlight.core.inspecting.config_file import ConfigFile
from layerlight.core.model import ModelKind

_READERS = """
albert bert bert-generation big_bird camembert clip convbert data2vec-text deberta deberta-v2 distilbert electra ernie
esm eurobert fnet funnel flaubert gte ibert jina_embeddings_v3 layoutlm layoutlmv3 longformer luke megatron-bert
mobilebert modernbert mpnet mra nomic_bert nystromformer rembert roberta roberta-prelayernorm roc_bert roformer siglip
splinter squeezebert xlm xlm-roberta xlm-roberta-xl xmod yoso
"""
_ENCODERS = frozenset(_READERS.split())

_TWO_PART = """
audioflamingo3 bart bigbird_pegasus blenderbot blenderbot-small blip blip-2 encoder-decoder florence2 fsmt instructblip
instructblipvideo led longt5 m2m_100 marian mbart mt5 mvp nllb-moe pegasus pegasus_x pix2struct plbart pp_formulanet
prophetnet seamless_m4t seamless_m4t_v2 speech-encoder-decoder speech_to_text switch_transformers t5 t5gemma t5gemma2
trocr udop umt5 vision-encoder-decoder whisper
"""
_ENCODER_DECODERS = frozenset(_TWO_PART.split())
_OTHER_WAYS = frozenset({"diffusion_gemma", "pi0", "evolla", "git", "musicgen", "musicgen_melody", "gemma4_assistant"})

_WRITERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForVisionText2Text", "WithLMHead")
_JUDGES = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMaskedLM")
_EMBEDDERS = ("Model", "ForMultipleChoice", "ForPreTraining", "ForNextSentencePrediction", "Encoder")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The kind of a model with a config; problems are (problem, hint)."""

    kind: ModelKind
    architecture: str = ""
    problems: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def judge(config: ConfigFile, chat_template: bool) -> Verdict:
    """What the model in this config is for. A model that writes text is a chat model where it has a chat template."""
    if not config.content:
        return Verdict(ModelKind.UNKNOWN)
    model_type, architecture = config.model_type, config.architecture
    writer = ModelKind.CHAT if chat_template else ModelKind.BASE
    if not model_type:
        hint = "Add the model_type that the model's page names, or download config.json again."
        kind = writer if architecture.endswith(_WRITERS) else ModelKind.UNKNOWN
        return Verdict(kind, architecture, (("config.json names no model_type.", hint),))
    if model_type in _ENCODER_DECODERS:
        return _unknown(architecture, f"{architecture or model_type} is an encoder-decoder model.")
    if model_type in _OTHER_WAYS:
        return _unknown(architecture, f"{architecture or model_type} does not write text token by token.")
    if architecture.endswith(_JUDGES) or (architecture.endswith(_EMBEDDERS) and not architecture.endswith(_WRITERS)):
        return _encoder(architecture, model_type)
    if model_type in _ENCODERS and not config.content.get("is_decoder"):
        return _encoder(architecture, model_type)
    known = config_defaults(model_type)
    if known is not None and known.use != "nested":
        if architecture and not architecture.endswith(_WRITERS):
            return Verdict(
                writer, architecture, (), (*_code_note(config), f"{architecture} is loaded as {model_type}.")
            )
        return Verdict(writer, architecture, (), (*_code_note(config), *_name_note(architecture)))
    kind = writer if architecture.endswith(_WRITERS) else ModelKind.UNKNOWN
    return Verdict(kind, architecture, (_not_known(config),))


def _encoder(architecture: str, model_type: str) -> Verdict:
    return Verdict(
        ModelKind.ENCODER,
        architecture,
        ((f"{architecture or model_type} reads text and does not write it.", "Choose a chat or base text model."),),
    )


def _unknown(architecture: str, why: str) -> Verdict:
    return Verdict(ModelKind.UNKNOWN, architecture, ((why, "Choose a chat or base text model."),))


def _not_known(config: ConfigFile) -> tuple[str, str]:
    if config.remote_code:
        return (
            f"The model type “{config.model_type}” needs code from its folder, which is never run here.",
            "Choose a version of the model that transformers has itself.",
        )
    return (
        f"The model type “{config.model_type}” is not one that transformers {TRANSFORMERS} can write text with.",
        "It may be newer than this Layerlight, or misspelt in config.json.",
    )


def _code_note(config: ConfigFile) -> tuple[str, ...]:
    if not config.remote_code:
        return ()
    return ("The folder brings code of its own. It is never run: transformers' own class is used.",)


def _name_note(architecture: str) -> tuple[str, ...]:
    return () if architecture else ("config.json names no architecture: the usual one of its type is loaded.",)
