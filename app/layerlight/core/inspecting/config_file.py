"""config.json: read as it lies there, with what is wrong about it in words."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from layerlight.core.inspecting.plain_file import read_plain
from layerlight.core.model import FLOAT_DTYPES

LARGEST_CONFIG = 20_000_000


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of config.json, empty where it can't be used. `problem` says why, `hint` what to do."""

    content: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    hint: str = ""

    @property
    def model_type(self) -> str:
        found = self.content.get("model_type")
        return found if isinstance(found, str) else ""

    @property
    def architecture(self) -> str:
        """The first of `architectures`; empty when none is named."""
        named = self.content.get("architectures")
        return named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""

    @property
    def text(self) -> Mapping[str, Any]:
        """The part that describes the language model: nested in models that also see or hear."""
        for key in ("text_config", "llm_config", "language_config", "thinker_config"):
            nested = self.content.get(key)
            if isinstance(nested, dict):
                inner = nested.get("text_config")
                return inner if isinstance(inner, dict) else nested
        return self.content

    @property
    def dtype(self) -> str | None:
        """The float dtype it names for the model, by torch's name; None where it names none."""
        for part in (self.content, self.text):
            said = part.get("dtype") or part.get("torch_dtype")
            if isinstance(said, str) and said.removeprefix("torch.") in FLOAT_DTYPES:
                return said.removeprefix("torch.")
        return None

    @property
    def quantization(self) -> str | None:
        """The `quant_method` of weights that are quantised already."""
        for part in (self.content, self.text):
            found = part.get("quantization_config") or part.get("compression_config")
            if isinstance(found, dict):
                method = found.get("quant_method")
                if not isinstance(method, str):
                    method = "bitsandbytes" if "load_in_4bit" in found or "load_in_8bit" in found else "unknown"
                return "compressed-tensors" if method == "compressed_tensors" else method
        return None

    @property
    def remote_code(self) -> bool:
        """Whether the folder brings code of its own for the model class or its config."""
        own = self.content.get("auto_map")
        return isinstance(own, dict) and bool(own)


def read_config(path: Path) -> ConfigFile:
    """config.json at `path`. Never raises: what is wrong becomes the problem."""
    try:
        return parse_config(read_plain(path, LARGEST_CONFIG))
    except OSError as error:
        return ConfigFile(problem=f"config.json can't be read: {error.strerror or error}.", hint="Check the folder.")


def parse_config(data: bytes) -> ConfigFile:
    """The config in these bytes. Byte-order marks and other encodings are read, and are a problem: no loader does."""
    if data.startswith(b"version https://git-lfs"):
        return ConfigFile(problem="config.json is a Git LFS pointer.", hint="Fetch the real file: “git lfs pull”.")
    if not data.strip():
        return ConfigFile(problem="config.json is empty.", hint="Download it again.")
    problem = hint = ""
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            problem = "config.json was saved with a byte-order mark, which transformers can't read."
            hint = "Save it again as UTF-8 without a byte-order mark."
            data = data.decode(encoding, errors="replace").encode()
            break
    try:
        content = _decode(data)
    except (ValueError, RecursionError) as error:
        return ConfigFile(problem=f"config.json is not valid JSON: {error}.", hint="Mend it or download it again.")
    if not isinstance(content, dict):
        return ConfigFile(problem="config.json holds no object.", hint="Download it again.")
    return ConfigFile(content, problem, hint)


def _decode(data: bytes) -> Any:
    """Fast where the JSON is strict; Python's own reader also takes NaN and Infinity, as transformers does."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json.loads(data)
