"""What a text request may ask for."""

from __future__ import annotations

from layerlight.core.errors import BadRequest
from layerlight.core.messages import TextRequest

LARGEST_SEED = 2**63 - 1
COLDEST = 0.01
"""Above 0, which is greedy: a smaller temperature makes logits overflow and chooses nothing else."""

MOST_DRAFTED = 32
"""Drafted tokens that one pass checks: it computes logits for each, which a plan leaves no room for by the hundred."""


def require_sensible(request: TextRequest) -> None:
    """Raises BadRequest for settings that no run can honour. Temperature 0 is greedy, top_k 0 is off."""
    temperature, penalty, lookup = request.temperature, request.repetition_penalty, request.prompt_lookup
    warm = temperature == 0 or COLDEST <= temperature <= 100
    settings = (
        ("The temperature", temperature, warm, f"0 (always the likeliest token), or between {COLDEST} and 100"),
        ("top_p", request.top_p, 0 < request.top_p <= 1, "above 0 and at most 1"),
        ("top_k", request.top_k, request.top_k >= 0, "0 (off) or more"),
        ("The repetition penalty", penalty, 0.1 <= penalty <= 10, "between 0.1 and 10; 1 is off"),
        ("The number of new tokens", request.max_new_tokens, request.max_new_tokens >= 1, "at least 1"),
        ("The number of drafted tokens", lookup, 0 <= lookup <= MOST_DRAFTED, f"0 (off) to {MOST_DRAFTED}"),
        ("The seed", request.seed, 0 <= request.seed <= LARGEST_SEED, f"between 0 and {LARGEST_SEED}"),
    )
    for name, value, sensible, allowed in settings:
        if value != value or not sensible:  # NaN is no number, and not even itself
            raise BadRequest(f"{name} can't be {value}.", hint=f"It must be {allowed}.")
    if not any(message.content.strip() for message in request.messages if message.role != "system"):
        raise BadRequest("The prompt is empty.", hint="Write something first.")
