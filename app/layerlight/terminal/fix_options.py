"""The options that apply a fix: what to add to the command, and what to leave out of it."""

from __future__ import annotations

from typing import Any

from layerlight.core.device import Budget
from layerlight.core.fixes import Fix
from layerlight.core.plan import Plan, Wishes


def options_of(plan: Plan, fix: Fix) -> tuple[str, ...]:
    """E.g. `--quantize int8`, or `without --pin`; empty for what only a person can do."""
    if fix.machine is not None:
        return (f"--machine {fix.machine.name}",)
    if fix.model:
        return ()  # another model is no option
    return (*_of_wishes(plan.wishes, fix.wishes or plan.wishes), *_of_budget(plan.budget, fix.budget or plan.budget))


def _of_wishes(before: Wishes, after: Wishes) -> tuple[str, ...]:
    found = []
    if after.quantization and after.quantization != before.quantization:
        found.append(f"--quantize {after.quantization}")
    if after.kv and after.kv != before.kv:
        found.append(f"--kv-cache {after.kv}")
    if after.dtype and after.dtype != before.dtype:
        found.append(f"--dtype {after.dtype}")
    if before.strategy != after.strategy:
        found.append(f"--strategy {after.strategy}")
    elif before.map and not after.map:
        found.append("without --map")
    if before.pins and not after.pins:
        found.append("without --pin")
    found += [f"--pin '{which}={place}'" for which, place in after.pins if (which, place) not in before.pins]
    return tuple(found)


def _of_budget(before: Budget, after: Budget) -> tuple[str, ...]:
    found = [f"without --limit {place}" for place, _ in before.limits if after.limit(place) is None]
    if before.context != after.context:
        found.append(f"--context {after.context}")
    return tuple(found)


def of_fix(plan: Plan, fix: Fix) -> dict[str, Any]:
    """As `--json` prints it; `gain` is null where it makes fit what does not."""
    return {
        "words": fix.words,
        "price": fix.price,
        "gain": fix.gain if plan.fits else None,
        "seconds_per_token": fix.seconds_per_token,
        "options": list(options_of(plan, fix)),
        "model": fix.model or None,
    }


def in_words(plan: Plan, fixes: tuple[Fix, ...]) -> list[str]:
    """A numbered line for each fix, with its gain and options, and one for its price."""
    lines = ["", "What would help, best first:"] if fixes else []
    for number, fix in enumerate(fixes, 1):
        pace = f"{fix.seconds_per_token:.2g} s a token"
        gain = f"{fix.gain:.1f} times faster, {pace}" if plan.fits else f"it fits, {pace}"
        options = f"plan {fix.model}" if fix.model else "  ".join(options_of(plan, fix))
        lines.append(f"{number}. {fix.words} ({gain})" + (f"  {options}" if options else ""))
        lines.append(f"   Its price: {fix.price[:1].lower() + fix.price[1:]}")
    return lines
