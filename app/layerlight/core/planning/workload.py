"""The workload a plan is made fast for: how long prompts and answers are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Workload:
    """Tokens of the prompt and of the answer, and how many such sequences run at once."""

    prompt: int = 512
    answer: int = 256
    batch: int = 1

    def within(self, context: int) -> Workload:
        """The same work in a context that may be too short for it: both parts shrink alike, neither below a token."""
        total = self.prompt + self.answer
        if total <= context:
            return self
        prompt = max(1, context * self.prompt // total)
        return Workload(prompt, max(1, context - prompt), self.batch)

    @property
    def passes(self) -> int:
        """Decode passes: the first token of an answer comes out of the prompt's own pass."""
        return max(0, self.answer - 1)

    @property
    def mean_length(self) -> float:
        """Tokens that the KV cache holds on average while the answer is written."""
        return self.prompt + self.answer / 2


USUAL = Workload()
"""A question of a page and an answer of half a page."""
