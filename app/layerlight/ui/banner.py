"""What the bar over the map says: a verdict, a progress or an error, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layerlight.core.advice import format_pace, lookup_words, verdict_of
from layerlight.core.pacing.correction import uncorrected
from layerlight.core.plan import Plan
from layerlight.core.state import Phase
from layerlight.ui.session import Session
from layerlight.ui.words import duration, of_size, plural, short_size


@dataclass(frozen=True, slots=True)
class Banner:
    """`kind` is `fits`, `slow`, `failed` or `progress`; `share` of a progress is None while nothing can be told."""

    kind: str
    words: str
    second: str = ""
    actions: tuple[str, ...] = ()
    """`load`, `apply`, `unload`, `details`, `dismiss`, `cancel`; the last is the primary one."""
    share: float | None = None
    apply: str = ""
    """What the button `apply` says."""
    load: str = ""
    """What the button `load` says, where it is not just “Load”."""
    refusal: str = ""
    """Why the button `load` is greyed, where it is."""


SLOW = 1.0
"""Seconds a token from which a load is not the first thing to do."""
FIX_NAMES = {"int8": "8-bit", "nf4": "4-bit", "fp4": "4-bit"}


class BannerWriter:
    """Writes the banner for a session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def write(self, prefer_next: bool = False) -> Banner | None:
        session, state = self._session, self._session.state
        if state.phase is Phase.LOADING or session.waiting == "LoadRequest":
            return self._loading()
        if state.phase is Phase.FETCHING or session.waiting == "StarterRequest":
            return self._fetching()
        if state.phase is Phase.CALIBRATING or session.waiting == "CalibrateRequest":
            return self._calibrating()
        if state.error is not None:
            words = f"{state.error.title}: {state.error.message}"
            return Banner("failed", words, state.error.hint, ("dismiss", "details"))
        if state.loaded is not None and not (prefer_next and not session.plan_is_loaded):
            return self._loaded()
        if session.problem is not None:
            return Banner("failed", f"{session.problem.title}: {session.problem.message}", session.problem.hint)
        if session.planning.is_making:
            return Banner("progress", "Planning", "A large model takes a moment", ())
        if state.plan is None:
            return None
        return self._planned(state.plan)

    def _planned(self, plan: Plan) -> Banner:
        session = self._session
        advice = session.planning.advice or verdict_of(plan)
        if not plan.fits:
            return Banner("failed", advice.words, advice.hint, ())
        refusal = session.load_refusal
        elsewhere = session.elsewhere
        basis = _basis(plan) if elsewhere is None else f"So it would be on {elsewhere.title}, by its data sheets."
        shape = refusal if not session.has_weights and elsewhere is None else ""
        second = " ".join(part for part in (advice.hint, basis, shape, *plan.notes) if part)
        name = FIX_NAMES.get(advice.wishes.quantization or "" if advice.wishes else "", "")
        apply = f"Apply {name}" if name else ""
        actions = ("apply",) if name else ()
        slow = plan.prediction.seconds_per_token >= SLOW
        if not refusal or shape:
            actions = ("load", *actions)
        return Banner(
            advice.verdict.value,
            _asked(advice.words, name) if slow and not refusal else advice.words,
            second,
            actions,
            apply=apply,
            load="Load anyway" if slow and not refusal else "",
            refusal=shape,
        )

    def _loaded(self) -> Banner:
        state = self._session.state
        plan = state.loaded_plan
        if plan is None:
            return Banner("fits", "The model is in memory.", "", ("unload",))
        advice = verdict_of(plan)
        result = state.result
        if result is None or not result.tokens_per_second:
            second = "Answering" if state.phase is Phase.RUNNING else "Loaded. Ask it something."
            return Banner(advice.verdict.value, advice.words, second, ("unload",))
        where = advice.words.rpartition(":")[0]
        measured = f"{where}: {result.tokens_per_second:.1f} tokens a second, measured."
        return Banner(advice.verdict.value, measured, f"{_foretold(plan)}.", ("unload",))

    def _calibrating(self) -> Banner:
        session, calibrating = self._session, self._session.state.calibrating
        if session.stopping:
            return Banner("progress", "Stopping", "Nothing is kept of what was measured", ())
        if calibrating is None:
            return Banner("progress", "Measuring this machine", "At most 15 s. Close what is busy", ("cancel",))
        share = min(1.0, calibrating.done / calibrating.total) if calibrating.total else None
        words = f"{calibrating.done:.0f} of at most {calibrating.total:.0f} s"
        return Banner("progress", words, f"Measuring this machine: {calibrating.stage}", ("cancel",), share)

    def _loading(self) -> Banner:
        session, progress = self._session, self._session.state.progress
        if session.stopping:
            doing = progress.stage if progress else "the current step"
            share = progress.bytes_done / progress.bytes_total if progress and progress.bytes_total else None
            return Banner("progress", "Stopping", f"Waiting for: {doing}", (), share)
        if progress is None or session.state.phase != Phase.LOADING:
            warm = session.state.engine_warm
            second = "Checking the plan" if warm else "The engine is still warming up; loading begins by itself"
            return Banner("progress", "Loading", second, ("cancel",))
        parts = [f"{progress.layers_done} of {plural(progress.layers_total, 'part')}", progress.stage]
        if progress.seconds_left is not None:
            parts.append(f"about {duration(max(1.0, progress.seconds_left))} left")
        share = progress.bytes_done / progress.bytes_total if progress.bytes_total else None
        return Banner(
            "progress", of_size(progress.bytes_done, progress.bytes_total), ", ".join(parts), ("cancel",), share
        )

    def _fetching(self) -> Banner:
        session, fetching = self._session, self._session.state.fetching
        if session.stopping:
            return Banner("progress", "Stopping", "What has arrived is kept for the next try", ())
        if fetching is None:
            return Banner("progress", "Getting the starter model", "Asking for it", ("cancel",))
        licence = f", licence {fetching.licence}" if fetching.licence else ""
        share = min(1.0, fetching.done / fetching.total) if fetching.total else None
        words = of_size(fetching.done, fetching.total) if fetching.total else short_size(fetching.done)
        return Banner("progress", words, f"{fetching.stage}{licence}", ("cancel",), share)


def paces(seconds: Sequence[float]) -> list[str]:
    """`7.9` and `8.1`, or `0.13 s` and `0.12 s`: in the unit that the first asks for, which the last then names."""
    if seconds[0] >= 0.2:
        return [*(f"{each:.2g}" for each in seconds[:-1]), f"{seconds[-1]:.2g} s a token"]
    return [*(f"{1 / each:.1f}" for each in seconds[:-1]), f"{1 / seconds[-1]:.1f} tokens a second"]


def _foretold(plan: Plan) -> str:
    """`Predicted 7.9, last time 8.1 tokens a second`."""
    last = plan.prediction.correction.last_time
    predicted = uncorrected(plan).prediction.seconds_per_token
    if last is None or min(last, predicted) <= 0:
        return f"Predicted {format_pace(plan.prediction.seconds_per_token)}"
    first, second = paces((predicted, last))
    return f"Predicted {first}, last time {second}"


def _basis(plan: Plan) -> str:
    """What the numbers stand on, and what prompt lookup gave."""
    return f"{_stands_on(plan)} {lookup_words(plan)}".rstrip()


def _stands_on(plan: Plan) -> str:
    if plan.prediction.correction.last_time is not None:
        return f"{_foretold(plan)}."
    if plan.prediction.correction.runs:
        return "Predicted from this machine’s measurements and earlier runs."
    if plan.prediction.calibrated:
        return "Predicted from this machine’s measurements."
    return "An estimate from typical speeds."


def _asked(words: str, better: str) -> str:
    """A slow load is asked about, not begun in passing."""
    return words if not better else f"{words.rstrip('.')}. Load anyway, or take {better}?"
