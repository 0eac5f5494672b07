"""The placement drawn in the terminal: a lane for each place, a block for each layer."""

from __future__ import annotations

import textwrap

from rich.console import Group
from rich.style import Style
from rich.text import Text

from layerlight.core.characters import printable
from layerlight.core.device import CPU, DISK, format_size
from layerlight.core.messages import StarterProgressed
from layerlight.core.plan import Placement, Plan
from layerlight.core.state import Phase, State

PLANNED, ARRIVING, RESTING = "░", "▒", "█"
LABEL = 8
"""Characters of a lane's name."""
ANSWER_LINES = 8

_CARDS = ("green3", "spring_green2", "chartreuse2", "sea_green2")
_COLOURS = {CPU: "deep_sky_blue1", DISK: "orange3"}
_RUNNING = Style(color="white", bold=True, reverse=True)


def draw(state: State, width: int, answer: bool = False) -> Group:
    """What is true now, at most `width` characters wide; with the answer's last lines when asked for."""
    lines: list[Text] = []
    if state.fetching is not None:
        lines.append(bar(state.fetching, width))
    plan = state.loaded_plan or state.plan
    if plan is not None:
        lines += [_lane(state, plan, place, width) for place in plan.places]
        lines.append(Text(_status(state), style="dim"))
    if answer and state.answer:
        lines.append(Text("\n".join(_last_lines(state.answer, width))))
    return Group(*lines)


def _last_lines(answer: str, width: int) -> list[str]:
    """What fits below the lanes: a long paragraph must not push them out of sight."""
    lines: list[str] = []
    for line in printable(answer[-ANSWER_LINES * width :]).splitlines():
        lines += textwrap.wrap(line, width) or [""]
    return lines[-ANSWER_LINES:]


def bar(progress: StarterProgressed, width: int) -> Text:
    """The starter model's progress: words, then a bar of what is done."""
    share = progress.done / progress.total if progress.total else 0.0
    room = max(10, min(40, width // 3))
    full = round(share * room)
    text = Text(RESTING * full, style="green3")
    text.append(PLANNED * (room - full), style="dim")
    text.append(f" {share:4.0%}  {progress.stage} ({progress.licence})")
    text.truncate(width)
    return text


def _lane(state: State, plan: Plan, place: str, width: int) -> Text:
    mine = [placement for placement in plan.placements if placement.rests_on == place]
    arrived = {placed.layer for placed in state.places if placed.rests_on == place}
    begun = _begun(state, plan)
    resting = sum(placed.size for placed in state.places if placed.rests_on == place)
    colour = _colour(plan, place)
    text = Text(f"{place[:LABEL]:{LABEL}} ", style=colour)
    for placement in mine:
        text.append(*_block(state, placement, arrived, begun, colour))
    total = sum(placement.size for placement in mine)
    text.append(f" {format_size(resting)} of {format_size(total)}" if resting != total else f" {format_size(total)}")
    if len(text) > width:
        return _short(state, plan, place, width, colour)
    return text


def _short(state: State, plan: Plan, place: str, width: int, colour: str) -> Text:
    """A lane with more layers than there is room: several layers to a block, the running one where it lies."""
    mine = [placement for placement in plan.placements if placement.rests_on == place]
    arrived = {placed.layer for placed in state.places if placed.rests_on == place}
    begun = _begun(state, plan)
    words = f" {len(mine)} parts, {format_size(sum(placement.size for placement in mine))}"
    room = max(4, width - LABEL - 1 - len(words))
    text = Text(f"{place[:LABEL]:{LABEL}} ", style=colour)
    for cell in range(room):
        few = mine[cell * len(mine) // room : max(cell * len(mine) // room + 1, (cell + 1) * len(mine) // room)]
        running = next((placement for placement in few if placement.layer == state.running), few[0])
        text.append(*_block(state, running, arrived, begun, colour))
    text.append(words)
    text.truncate(width)
    return text


def _block(
    state: State, placement: Placement, arrived: set[str], begun: set[str], colour: str
) -> tuple[str, Style | str]:
    if placement.layer == state.running:
        return RESTING, _RUNNING
    if placement.layer in arrived:
        return RESTING, colour
    return (ARRIVING, colour) if placement.layer in begun else (PLANNED, "dim")


def _begun(state: State, plan: Plan) -> set[str]:
    """Layers whose weights have been read by what loading said; where they rest is measured when all are there."""
    if state.progress is None:
        return set()
    done = {placement.layer for placement in plan.placements[: state.progress.layers_done]}
    return done | {state.progress.layer}


def _colour(plan: Plan, place: str) -> str:
    if place in _COLOURS:
        return _COLOURS[place]
    cards = [device.id for device in plan.machine.accelerators]
    return _CARDS[cards.index(place) % len(_CARDS)]


def _status(state: State) -> str:
    if state.phase is Phase.LOADING and state.progress is not None:
        progress = state.progress
        left = f", {progress.seconds_left:.0f} s left" if progress.seconds_left is not None else ""
        size = f"{format_size(progress.bytes_done)} of {format_size(progress.bytes_total)}"
        return f"{progress.stage}: {progress.layers_done} of {progress.layers_total} parts, {size}{left}"
    if state.running is not None and state.loaded_plan is not None:
        return f"{state.running} runs on {state.loaded_plan.placement(state.running).runs_on}"
    if state.phase is Phase.RUNNING:
        return "Reading the prompt"
    return f"{ARRIVING} loading  {RESTING} resting" if state.places else f"{PLANNED} planned"
