"""What a text request may ask for."""

from __future__ import annotations

import math
from typing import Any

import pytest

from layerlight.core.errors import BadRequest
from layerlight.core.messages import ChatMessage, TextRequest
from layerlight.core.sampling import COLDEST, MOST_DRAFTED, require_sensible


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (ChatMessage("user", ""),),
        (ChatMessage("user", " \n\t "),),
        (ChatMessage("system", "Be brief."),),
        (ChatMessage("system", "Be brief."), ChatMessage("user", "")),
    ],
)
def test_an_empty_prompt_is_refused(messages: tuple[ChatMessage, ...]) -> None:
    """F05: empty, only spaces, only a system message."""
    with pytest.raises(BadRequest, match="empty"):
        require_sensible(TextRequest(messages, seed=0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", math.nan), ("temperature", math.inf), ("temperature", 1e9),
        ("top_p", 0.0), ("top_p", 1.5), ("top_p", -1.0), ("top_p", math.nan),
        ("top_k", -1),
        ("temperature", 1e-300), ("temperature", 0.009), ("top_k", -(10**400)),
        ("repetition_penalty", 1e-300), ("repetition_penalty", 1e300), ("repetition_penalty", 0.09),
        ("repetition_penalty", 10.1), ("repetition_penalty", math.nan),
        ("repetition_penalty", 0.0), ("repetition_penalty", -1.0), ("repetition_penalty", math.inf),
        ("max_new_tokens", 0), ("max_new_tokens", -1),
        ("seed", -1), ("seed", 2**63), ("prompt_lookup", -1), ("prompt_lookup", MOST_DRAFTED + 1),
    ],
)  # fmt: skip
def test_settings_that_no_run_can_honour_are_refused(name: str, value: float) -> None:
    """F06: said with what is allowed."""
    settings: dict[str, Any] = {"seed": 0, name: value}
    with pytest.raises(BadRequest) as refused:
        require_sensible(TextRequest((ChatMessage("user", "hi"),), **settings))
    assert "must be" in refused.value.hint


def test_the_edges_of_what_is_allowed_are_allowed() -> None:
    """F06."""
    for settings in (
        {"temperature": 0.0}, {"temperature": 2.0, "top_p": 1.0, "top_k": 0}, {"seed": 2**63 - 1},
        {"temperature": COLDEST}, {"temperature": 100.0}, {"repetition_penalty": 0.1}, {"repetition_penalty": 10.0},
        {"top_p": 1e-300}, {"top_k": 10**400}, {"prompt_lookup": MOST_DRAFTED}, {"max_new_tokens": 10**400},
    ):  # fmt: skip
        require_sensible(TextRequest((ChatMessage("user", "hi"),), **{"seed": 0, **settings}))  # type: ignore[arg-type]
