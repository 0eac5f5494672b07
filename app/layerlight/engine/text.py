"""TextRequest → text, token by token."""

from __future__ import annotations

import logging
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from layerlight.core.errors import LayerlightError, NotFinite, RunFailed, Stopped
from layerlight.core.job import Job
from layerlight.core.messages import LoadRequest, PromptCounted, RunResult, TextProduced, TextRequest
from layerlight.engine.empty_model import read_config
from layerlight.engine.failures import LIBRARY_FAILURES, ran_out, running_failure
from layerlight.engine.loading import LoadedModel
from layerlight.engine.prompt import Prompt, end_tokens, prepare
from layerlight.engine.read_files import ReadFiles
from layerlight.engine.returning import give_back
from layerlight.engine.streaming import settle
from layerlight.engine.watching import LayerWatch
from layerlight.engine.whole_text import WholeText

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Answer:
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


class _Streamer:
    """What generate() hands tokens to: first the prompt, then each new one."""

    def __init__(self, answer: _Answer, files: ReadFiles) -> None:
        self._answer = answer
        self._files = files
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        for token in value.flatten().tolist():
            self._answer.add(int(token))
        self._answer.job.check()
        self._files.check()

    def end(self) -> None:
        """Nothing is held back here: the answer is finished by the one who asked for it."""


class _FiniteOnly:
    """Stops a run whose logits broke, before a token is drawn from them."""

    def __call__(self, _ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if bool((scores.isnan() | scores.isposinf()).any()) or bool(scores.isneginf().all()):
            raise NotFinite(
                "The model computed values that are not numbers (NaN or infinite), so the answer has ended.",
                hint="Try float32 or bfloat16 in place of float16; if it stays, the model's files are damaged.",
            )
        return scores


def count_prompt(request: TextRequest, load: LoadRequest, tokenizer: Any, job: Job) -> Prompt:
    """The prompt of a model that is not loaded yet. Raises what `prepare` and `read_config` raise."""
    return _prompt(request, tokenizer, load, read_config(load), job)


def context_of(load: LoadRequest, config: Any) -> int:
    """Tokens that prompt and answer may have together: what was planned, at most what the model was made for."""
    longest = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    return min(load.context, longest) if isinstance(longest, int) and longest > 0 else load.context


def _prompt(request: TextRequest, tokenizer: Any, load: LoadRequest, config: Any, job: Job) -> Prompt:
    vocabulary = int(config.get_text_config(decoder=True).vocab_size)
    return prepare(request, tokenizer, context_of(load, config), vocabulary, job.check)


def answer(request: TextRequest, loaded: LoadedModel, job: Job) -> RunResult:
    """Runs one request to its end, to the context's, or until stopped; a stop keeps what was written.

    Raises BadRequest, PromptTooLong, NotFinite, OutOfMemory or RunFailed; the model stays usable after each.
    """
    text_config = loaded.config.get_text_config(decoder=True)
    loaded.files.check()
    prompt = _prompt(request, loaded.tokenizer, loaded.request, loaded.config, job)
    job.emit(PromptCounted(len(prompt.ids), prompt.context, prompt.context - len(prompt.ids)))
    watch = LayerWatch([each.layer for each in loaded.placed], loaded.carried, job, loaded.files.glance)
    produced = _Answer(WholeText(loaded.tokenizer, prompt.ids), job, watch)
    ends = end_tokens(loaded.tokenizer, loaded.config, text_config, loaded.model.generation_config)
    stopped = overflowed = False
    failure: LayerlightError | None = None
    try:
        with watch.on(loaded.model):
            _generate(request, prompt, ends, loaded, produced)
    except Stopped:
        stopped = True
    except LIBRARY_FAILURES as error:
        log.error("the run failed\n%s", traceback.format_exc())  # as text: a kept record would keep the cache
        failure = _why(error, loaded).with_traceback(None)
        settle(loaded.model)
        overflowed = ran_out(error)
    produced.finish()
    watch.tell()
    if failure is not None:
        if overflowed:
            give_back(loaded.places)
        raise failure
    return _result(request, prompt, produced, watch, ends, stopped)


def _why(error: Exception, loaded: LoadedModel) -> LayerlightError:
    """What ended the run: a file that changed under it, before what a library made of that."""
    try:
        loaded.files.check()
    except RunFailed as failure:
        return failure
    return running_failure(error)


def _generate(
    request: TextRequest, prompt: Prompt, ends: tuple[int, ...], loaded: LoadedModel, produced: _Answer
) -> None:
    from transformers import LogitsProcessorList

    model = loaded.model
    torch.manual_seed(request.seed)
    ids = torch.tensor([prompt.ids], dtype=torch.long, device=_entrance(model))
    with torch.inference_mode(), _no_word_about_devices():
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=_settings(request, prompt, ends, loaded),
            streamer=_Streamer(produced, loaded.files),
            logits_processor=LogitsProcessorList([_FiniteOnly()]),
        )


@contextmanager
def _no_word_about_devices() -> Iterator[None]:
    """transformers looks at the first weight to tell where ids belong; one that is carried for each pass is nowhere."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"You are calling \.generate\(\) with the `input_ids`")
        yield


def _settings(request: TextRequest, prompt: Prompt, ends: tuple[int, ...], loaded: LoadedModel) -> Any:
    """The request as transformers wants it; nothing is left for the model's own defaults to fill in."""
    from transformers import GenerationConfig

    sampling: dict[str, Any] = {"do_sample": False}
    if request.temperature > 0:
        sampling = {
            "do_sample": True,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": request.top_k,
        }
    chunk = loaded.request.prefill_chunk
    return GenerationConfig(
        **sampling,
        max_new_tokens=prompt.max_new_tokens,
        repetition_penalty=request.repetition_penalty,
        eos_token_id=list(ends) or None,
        pad_token_id=ends[0] if ends else 0,
        use_cache=True,
        prefill_chunk_size=chunk if len(prompt.ids) > chunk else None,
    )


def _entrance(model: Any) -> torch.device:
    """Where ids enter: the device that runs the embedding."""
    from layerlight.engine.places import place_of_execution

    return torch.device(place_of_execution(model.get_input_embeddings()))


def _result(
    request: TextRequest,
    prompt: Prompt,
    produced: _Answer,
    watch: LayerWatch,
    ends: tuple[int, ...],
    stopped: bool,
) -> RunResult:
    now = time.perf_counter()
    count = len(produced.tokens)
    decode = (produced.last or now) - (produced.first or now)
    return RunResult(
        text=produced.text,
        tokens=tuple(produced.tokens),
        prompt_tokens=len(prompt.ids),
        seed=request.seed,
        ended=_ended(prompt, produced, ends, stopped),
        seconds=now - produced.started,
        time_to_first_token=None if produced.first is None else produced.first - produced.started,
        tokens_per_second=(count - 1) / decode if count > 1 and decode > 0 else None,
        seconds_per_layer=watch.seconds_per_layer(),
    )


def _ended(prompt: Prompt, produced: _Answer, ends: tuple[int, ...], stopped: bool) -> str:
    if stopped:
        return "stopped"
    if produced.tokens and produced.tokens[-1] in ends:
        return "end token"
    return "context" if prompt.cut_by_context else "length"
