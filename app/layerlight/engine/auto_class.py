"""Which of transformers' auto classes makes a model of a config: the causal one, or the one of models that also see."""

from __future__ import annotations

from typing import Any


def auto_class(config: Any) -> Any:
    """AutoModelForCausalLM where it knows the config, else AutoModelForImageTextToText where that does.

    The causal one comes first: of some types that also see (Llama 4, Mllama, Qwen3.5) it loads the language model
    alone, and pictures are not taken yet. Of a config that neither knows, the causal one says so in words.
    """
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    seeing = type(config) not in AutoModelForCausalLM._model_mapping
    if seeing and type(config) in AutoModelForImageTextToText._model_mapping:
        return AutoModelForImageTextToText
    return AutoModelForCausalLM
