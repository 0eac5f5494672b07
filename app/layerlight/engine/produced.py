"""An answer as it grows: its tokens, its text, and when they came."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from layerlight.core.job import Job
from layerlight.core.messages import TextProduced
from layerlight.engine.read_files import ReadFiles
from layerlight.engine.watching import LayerWatch
from layerlight.engine.whole_text import WholeText


@dataclass(slots=True)
class Produced:
    """What has been produced so far, and when."""

    whole: WholeText
    job: Job
    watch: LayerWatch
    started: float = field(default_factory=time.perf_counter)
    first: float | None = None
    last: float | None = None
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    _untold: list[int] = field(default_factory=list)

    def add(self, token: int) -> None:
        self.last = time.perf_counter()
        if self.first is None:
            self.first = self.last
            self.watch.decoding()
        self.tokens.append(token)
        self._untold.append(token)
        self._tell(self.whole.add(token))

    def finish(self) -> None:
        self._tell(self.whole.finish(), final=True)

    def _tell(self, text: str, *, final: bool = False) -> None:
        if text or (final and self._untold):
            self.text += text
            self.job.emit(TextProduced(text, tuple(self._untold)))
            self._untold.clear()


class TokenStream:
    """What generate() hands tokens to: first the prompt, then each new one."""

    def __init__(self, produced: Produced, files: ReadFiles, passed: Callable[[int], None] | None = None) -> None:
        """`passed` hears how many tokens each pass gave."""
        self._produced = produced
        self._files = files
        self._passed = passed
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        tokens = value.flatten().tolist()
        if self._passed is not None:
            self._passed(len(tokens))
        for token in tokens:
            self._produced.add(int(token))
        self._produced.job.check()
        self._files.check()

    def end(self) -> None:
        """Nothing is held back here: the answer is finished by the one who asked for it."""
