"""The environment variables that torch and its family read once, when they are first imported."""

from __future__ import annotations

from collections.abc import Mapping

HIGH_WATERMARK = "PYTORCH_MPS_HIGH_WATERMARK_RATIO"
LOW_WATERMARK = "PYTORCH_MPS_LOW_WATERMARK_RATIO"

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}
"""Layerlight runs what is in the folder: no library asks a network for anything."""

TUNING = {
    "OMP_WAIT_POLICY": "PASSIVE",  # GNU OpenMP spins at barriers: ten times slower beside a busy window
    "KMP_BLOCKTIME": "0",  # the same for the OpenMP of macOS and Windows builds
    "TOKENIZERS_PARALLELISM": "false",  # else tokenizers warns about every fork
}

APPLE = {"PYTORCH_ENABLE_MPS_FALLBACK": "1"}
"""An operator that Metal lacks runs on the CPU in place of failing."""

WATERMARKS = {HIGH_WATERMARK: "1.0", LOW_WATERMARK: "0.9"}
"""No more than Metal recommends: beyond that a Mac swaps. torch's own are 1.7 and 1.4."""

SWITCH = "LAYERLIGHT_ENGINE_ENVIRONMENT"
"""`0` leaves torch's own behaviour alone, also in the processes started from there."""

TORCHS_HIGH, TORCHS_LOW = 1.7, 1.4
"""What torch takes for a watermark that is not set, as parts of what Metal recommends."""


def engine_environment(base: Mapping[str, str], tuned: bool = True) -> dict[str, str]:
    """The environment for a process that will import torch, made from `base`; set it before that import.

    What a person has set in `base` stays as it is. `tuned=False` (a setting, or SWITCH=0 in `base`) adds only what
    keeps the libraries off the network, and SWITCH=0. The low watermark of Metal's memory never ends above the high
    one, which torch refuses, unless a person has set both so.
    """
    if not tuned or base.get(SWITCH) == "0":
        return {**OFFLINE, **base, SWITCH: "0"}
    return {**OFFLINE, **TUNING, **APPLE, **_watermarks(base), **base}


def _watermarks(base: Mapping[str, str]) -> dict[str, str]:
    """Both watermarks when neither is in `base`; of one set alone, the other only where torch's own would clash."""
    if HIGH_WATERMARK not in base and LOW_WATERMARK not in base:
        return WATERMARKS
    high, low = _ratio(base.get(HIGH_WATERMARK)), _ratio(base.get(LOW_WATERMARK))
    if LOW_WATERMARK not in base and high is not None and 0 < high < TORCHS_LOW:  # a high of 0 is “no limit”
        return {LOW_WATERMARK: base[HIGH_WATERMARK]}
    if HIGH_WATERMARK not in base and low is not None and low > TORCHS_HIGH:
        return {HIGH_WATERMARK: base[LOW_WATERMARK]}
    return {}


def _ratio(words: str | None) -> float | None:
    try:
        return float(words or "")
    except ValueError:
        return None
