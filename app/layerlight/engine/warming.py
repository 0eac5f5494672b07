"""Imports the libraries before they are needed, so that the first load begins at once."""

from __future__ import annotations

import gc
import os
import time

from layerlight.core.environment import engine_environment
from layerlight.core.messages import EngineWarmed


def set_environment() -> None:
    """Sets what torch and its family read at import; call it before anything imports them."""
    os.environ.update(engine_environment(os.environ))


def warm_up() -> EngineWarmed:
    """Imports torch and the rest, and says what is there."""
    started = time.monotonic()
    import accelerate
    import torch
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig  # noqa: F401
    from transformers.generation import utils as _generation  # noqa: F401
    from transformers.models.llama import modeling_llama as _llama  # noqa: F401

    from layerlight.engine import engine as _engine  # noqa: F401

    torch.set_num_threads(_threads())
    gc.freeze()  # what was imported stays: searching it for garbage made every cancelled load wait 0.2 s
    versions = (
        ("torch", str(torch.__version__)),
        ("transformers", str(transformers.__version__)),
        ("accelerate", str(accelerate.__version__)),
    )
    return EngineWarmed(versions, time.monotonic() - started)


def _threads() -> int:
    """Physical cores, and no more than this process may use: two threads on one core only wait for each other."""
    import psutil

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))
