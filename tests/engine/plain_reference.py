"""Plain transformers in a process of its own: greedy tokens to compare with.

python -m tests.engine.plain_reference FOLDER DTYPE ATTENTION COUNT PROMPT…
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def reference(folder: Path, dtype: str, attention: str, count: int, prompts: Sequence[str]) -> list[list[int]]:
    """Token ids of each prompt's greedy answer, by a fresh process that knows nothing of Layerlight."""
    words = [sys.executable, "-m", "tests.engine.plain_reference", str(folder), dtype, attention, str(count), *prompts]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    answers: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def _answers(folder: str, dtype: str, attention: str, count: int, prompts: Sequence[str]) -> list[list[int]]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation=attention)
    answers = []
    for prompt in prompts:
        chat = [{"role": "user", "content": prompt}]
        inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt")
        told = model.generate(**inputs, max_new_tokens=count, do_sample=False)
        answers.append(told[0, inputs["input_ids"].shape[1] :].tolist())
    return answers


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_answers(*sys.argv[1:4], int(sys.argv[4]), sys.argv[5:])) + "\n")
