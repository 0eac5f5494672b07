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
from layerlight.core.messages import LoadRequest, PromptCounted, RunResult, TextRequest
from layerlight.engine.cache_choice import cache_for
from layerlight.engine.empty_model import read_config
from layerlight.engine.failures import LIBRARY_FAILURES, ran_out, running_failure
from layerlight.engine.kept_cache import BegunCache, KeptCache
from layerlight.engine.loading import LoadedModel
from layerlight.engine.produced import Produced, TokenStream
from layerlight.engine.prompt import Prompt, end_tokens, prepare
from layerlight.engine.prompt_lookup import DraftCount, going_on, require_lookup, room_for_drafts
from layerlight.engine.prompt_passes import smaller_passes, tokens_a_pass
from layerlight.engine.returning import give_back
from layerlight.engine.streaming import settle
from layerlight.engine.watching import LayerWatch
from layerlight.engine.whole_text import WholeText

log = logging.getLogger(__name__)


class _FiniteOnly:
    """Stops a run whose logits broke, before a token is drawn from them."""

    def __call__(self, _ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if bool((scores.isnan() | scores.isposinf()).any()) or bool(scores.isneginf().all()):
            raise NotFinite(
                "The model computed values that are not numbers (NaN or infinite), so the answer has ended.",
                hint="Try float32 or bfloat16 in place of float16; if it stays, the model's files are damaged.",
            )
        return scores


@dataclass(slots=True)
class _Run:
    """One answer of one loaded model, whole or in two attempts."""

    request: TextRequest
    loaded: LoadedModel
    prompt: Prompt
    ends: tuple[int, ...]
    produced: Produced
    recomputed: int = 0
    """Tokens that the second attempt began with."""
    drafts: DraftCount = field(default_factory=DraftCount)

    @property
    def ids(self) -> tuple[int, ...]:
        """What there is to go on from: the prompt, and the answer so far."""
        return (*self.prompt.ids, *self.produced.tokens)

    @property
    def room(self) -> int:
        """Tokens that the answer may still have; none after its end."""
        tokens = self.produced.tokens
        return 0 if tokens and tokens[-1] in self.ends else self.prompt.max_new_tokens - len(tokens)


@dataclass(frozen=True, slots=True)
class _Ending:
    stopped: bool = False
    failure: LayerlightError | None = None
    overflowed: bool = False


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


def answer(request: TextRequest, loaded: LoadedModel, kept: KeptCache, job: Job) -> RunResult:
    """Runs one request to its end, to the context's, or until stopped; a stop keeps what was written.

    Begins with what `kept` has of the prompt, and leaves its own cache there. When memory runs out, all caches are
    dropped and the answer goes on from where it is, once, in smaller passes.
    Raises BadRequest, PromptTooLong, NotFinite, OutOfMemory or RunFailed; the model stays usable after each.
    """
    loaded.files.check()
    prompt = _prompt(request, loaded.tokenizer, loaded.request, loaded.config, job)
    if request.prompt_lookup:
        require_lookup(loaded.model, prompt.context)
    layout = tuple((placed.layer, placed.runs_on) for placed in loaded.placed)
    begun = kept.take(loaded.model, prompt.ids, layout, prompt.context)
    reused, chunk = begun.reused, tokens_a_pass(loaded.model, loaded.request.prefill_chunk, len(prompt.ids))
    job.emit(PromptCounted(len(prompt.ids), prompt.context, prompt.context - len(prompt.ids), reused))
    watch = LayerWatch([each.layer for each in loaded.placed], loaded.carried, job, loaded.files.glance)
    run = _Run(request, loaded, prompt, _ends(loaded), Produced(WholeText(loaded.tokenizer, prompt.ids), job, watch))
    torch.manual_seed(request.seed)
    with watch.on(loaded.model):
        ending = _attempt(run, begun, chunk)
        if ending.overflowed and run.room > 0:
            begun.drop()
            ending = _again(run)
    run.produced.finish()
    watch.tell()
    if ending.failure is not None:
        begun.drop()
        if ending.overflowed:
            give_back(loaded.places)
        raise ending.failure
    kept.keep(begun, prompt.ids, run.produced.tokens, layout, chunk)
    return _result(run, ending, reused)


def _ends(loaded: LoadedModel) -> tuple[int, ...]:
    config = loaded.config
    text_config = config.get_text_config(decoder=True)
    return end_tokens(loaded.tokenizer, config, text_config, loaded.model.generation_config)


def _again(run: _Run) -> _Ending:
    """The same answer from where it is, with an empty cache and smaller passes; nothing of it is kept afterwards."""
    give_back(run.loaded.places)
    run.recomputed = len(run.ids)
    smaller = smaller_passes(run.loaded.model, run.loaded.request.prefill_chunk, run.recomputed)
    log.warning("memory ran out: going on from %d tokens, %d in a pass", run.recomputed, smaller)
    return _attempt(run, BegunCache(None), smaller)


def _attempt(run: _Run, begun: BegunCache, chunk: int) -> _Ending:
    """Generates until the end, a stop, or a failure. No error is kept with its frames, which would keep the cache."""
    try:
        _generate(run, begun, chunk)
    except Stopped:
        return _Ending(stopped=True)
    except LIBRARY_FAILURES as error:
        log.error("the run failed\n%s", traceback.format_exc())  # as text: a kept record would keep the cache
        failure = _why(error, run).with_traceback(None)
        failure.__context__ = None
        settle(run.loaded.model)
        return _Ending(failure=failure, overflowed=ran_out(error))
    return _Ending()


def _why(error: Exception, run: _Run) -> LayerlightError:
    """What ended the run: a file that changed under it, before what a library made of that."""
    try:
        run.loaded.files.check()
    except RunFailed as failure:
        return failure
    return running_failure(error, again=run.recomputed > 0)


def _generate(run: _Run, begun: BegunCache, chunk: int) -> None:
    """`chunk`: tokens of the prompt in a pass."""
    rest = len(run.ids) - begun.reused
    cache = cache_for(begun, run.loaded)
    drafts = run.request.prompt_lookup
    cache = _call(run, cache, tokens=1 if drafts else run.room, chunk=chunk if rest > chunk else None)
    room = min(run.room, room_for_drafts(len(run.ids), run.prompt.context, drafts)) if drafts else 0
    if room > 1:
        with going_on(run.loaded.model, run.drafts, _entrance(run.loaded.model)):
            _call(run, cache, tokens=room, drafts=drafts)
    if drafts and run.room > 0:
        _call(run, cache, tokens=run.room)


def _call(run: _Run, cache: Any, tokens: int, chunk: int | None = None, drafts: int | None = None) -> Any:
    """One call of the library's: so many `tokens`, up to `drafts` drafted for each pass. The cache they left."""
    from transformers import LogitsProcessorList

    model = run.loaded.model
    ids = torch.tensor([run.ids], dtype=torch.long, device=_entrance(model))
    with torch.inference_mode(), _no_word_about_devices():
        left = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=_settings(run, tokens, chunk, drafts),
            streamer=TokenStream(run.produced, run.loaded.files, run.drafts.passed if drafts else None),
            logits_processor=LogitsProcessorList([_FiniteOnly()]),
            **({} if cache is None else {"cache": cache}),
        )
    return left.cache


@contextmanager
def _no_word_about_devices() -> Iterator[None]:
    """transformers looks at the first weight to tell where ids belong; one that is carried for each pass is nowhere."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"You are calling \.generate\(\) with the `input_ids`")
        yield


def _settings(run: _Run, tokens: int, chunk: int | None, drafts: int | None) -> Any:
    """The request as transformers wants it; nothing is left for the model's own defaults to fill in."""
    from transformers import GenerationConfig

    request, ends = run.request, run.ends
    sampling: dict[str, Any] = {"do_sample": False}
    if request.temperature > 0:
        sampling = {
            "do_sample": True,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": request.top_k,
        }
    return GenerationConfig(
        **sampling,
        max_new_tokens=tokens,
        repetition_penalty=request.repetition_penalty,
        eos_token_id=list(ends) or None,
        pad_token_id=ends[0] if ends else 0,
        use_cache=True,
        prefill_chunk_size=chunk,
        prompt_lookup_num_tokens=drafts,
        return_dict_in_generate=True,
    )


def _entrance(model: Any) -> torch.device:
    """Where ids enter: the device that runs the embedding."""
    from layerlight.engine.places import place_of_execution

    return torch.device(place_of_execution(model.get_input_embeddings()))


def _result(run: _Run, ending: _Ending, reused: int) -> RunResult:
    now = time.perf_counter()
    produced = run.produced
    count = len(produced.tokens)
    decode = (produced.last or now) - (produced.first or now)
    return RunResult(
        text=produced.text,
        tokens=tuple(produced.tokens),
        prompt_tokens=len(run.prompt.ids),
        seed=run.request.seed,
        ended=_ended(run, ending),
        seconds=now - produced.started,
        time_to_first_token=None if produced.first is None else produced.first - produced.started,
        tokens_per_second=(count - 1) / decode if count > 1 and decode > 0 else None,
        seconds_per_layer=produced.watch.seconds_per_layer(),
        reused=reused,
        recomputed=run.recomputed,
        drafts=run.drafts.told() if run.request.prompt_lookup else None,
    )


def _ended(run: _Run, ending: _Ending) -> str:
    if ending.stopped:
        return "stopped"
    if run.produced.tokens and run.produced.tokens[-1] in run.ends:
        return "end token"
    return "context" if run.prompt.cut_by_context else "length"
