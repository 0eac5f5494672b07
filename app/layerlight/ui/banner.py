"""What the bar over the map says: a verdict, a progress or an error, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from layerlight.core.advice import Advice, advise, format_pace
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


class BannerWriter:
    """Writes the banner for a session; advice on a plan is kept, since it takes planning twice more."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._plan: Plan | None = None
        self._advice: Advice | None = None

    def advice(self, plan: Plan) -> Advice:
        if plan is not self._plan or self._advice is None:
            self._plan, self._advice = plan, advise(plan)
        return self._advice

    def write(self, prefer_next: bool = False) -> Banner | None:
        session, state = self._session, self._session.state
        if state.phase is Phase.LOADING or session.waiting == "LoadRequest":
            return self._loading()
        if state.phase is Phase.FETCHING or session.waiting == "StarterRequest":
            return self._fetching()
        if state.error is not None:
            words = f"{state.error.title}: {state.error.message}"
            return Banner("failed", words, state.error.hint, ("dismiss", "details"))
        if state.loaded is not None and not (prefer_next and not session.plan_is_loaded):
            return self._loaded()
        if session.problem is not None:
            return Banner("failed", f"{session.problem.title}: {session.problem.message}", session.problem.hint)
        if state.plan is None:
            return None
        return self._planned(state.plan)

    def _planned(self, plan: Plan) -> Banner:
        advice = self.advice(plan)
        calibrated = plan.prediction.calibrated
        basis = "Predicted from this machine’s measurements." if calibrated else "An estimate from typical speeds."
        if not plan.fits:
            return Banner("failed", advice.words, advice.hint, ())
        notes = " ".join(plan.notes)
        second = " ".join(part for part in (advice.hint, basis, notes) if part)
        actions = ("load", "apply") if advice.wishes is not None else ("load",)
        name = {"int8": "8-bit", "nf4": "4-bit", "fp4": "4-bit"}.get(
            advice.wishes.quantization or "" if advice.wishes else "", ""
        )
        return Banner(advice.verdict.value, advice.words, second, actions, apply=f"Apply {name}" if name else "")

    def _loaded(self) -> Banner:
        state = self._session.state
        plan = state.loaded_plan
        if plan is None:
            return Banner("fits", "The model is in memory.", "", ("unload",))
        advice = self.advice(plan)
        predicted = format_pace(plan.prediction.seconds_per_token)
        result = state.result
        if result is None or not result.tokens_per_second:
            second = "Answering" if state.phase is Phase.RUNNING else "Loaded. Ask it something."
            return Banner(advice.verdict.value, advice.words, second, ("unload",))
        where = advice.words.rpartition(":")[0]
        measured = f"{where}: {result.tokens_per_second:.1f} tokens a second, measured."
        return Banner(advice.verdict.value, measured, f"Predicted {predicted}.", ("unload",))

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
        parts = [f"{progress.layers_done} of {plural(progress.layers_total, 'layer')}", progress.stage]
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
