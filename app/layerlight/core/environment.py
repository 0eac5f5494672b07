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

APPLE = {
    "PYTORCH_ENABLE_MPS_FALLBACK": "1",  # an operator that Metal lacks runs on the CPU in place of failing
    HIGH_WATERMARK: "1.0",  # no more than Metal recommends: beyond it the whole Mac swaps
    LOW_WATERMARK: "0.9",  # torch's own default, 1.4, is above that and would be refused
}


def engine_environment(base: Mapping[str, str], tuned: bool = True) -> dict[str, str]:
    """The environment for a process that will import torch, made from `base`; set it before that import.

    What a person has set in `base` stays as it is. `tuned=False` (a setting) leaves torch's own behaviour alone and
    adds only what keeps the libraries off the network. The two watermarks of Metal's memory are set together or not
    at all, because torch refuses a low one above the high one.
    """
    ours = OFFLINE | (TUNING | APPLE if tuned else {})
    if HIGH_WATERMARK in base or LOW_WATERMARK in base:
        ours = {name: value for name, value in ours.items() if name not in (HIGH_WATERMARK, LOW_WATERMARK)}
        ours |= _other_watermark(base)
    return {**ours, **base}


def _other_watermark(base: Mapping[str, str]) -> dict[str, str]:
    """The low watermark for a high one that a person set alone below torch's own low one of 1.4.

    torch reads a high of 0 as “no limit” and then takes any low one.
    """
    high = _ratio(base.get(HIGH_WATERMARK, ""))
    if LOW_WATERMARK in base or high is None or high <= 0:
        return {}
    return {LOW_WATERMARK: base[HIGH_WATERMARK]}


def _ratio(words: str) -> float | None:
    try:
        return float(words)
    except ValueError:
        return None
