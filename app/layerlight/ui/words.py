"""Numbers as people read them."""

from __future__ import annotations

from layerlight.core.device import format_size


def duration(seconds: float) -> str:
    """`2.6 ms`, `254 ms`, `0.63 s`, `1 min 20 s`."""
    if seconds >= 90:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s"
    if seconds >= 10:
        return f"{seconds:.0f} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    if seconds >= 0.3:
        return f"{seconds:.2f} s"
    milliseconds = seconds * 1000
    if milliseconds >= 10:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds:.1f} ms" if milliseconds >= 0.1 else f"{milliseconds * 1000:.0f} µs"


def count(number: int) -> str:
    """`70.6 B`, `134.5 M`, `812` parameters."""
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= size:
            return f"{number / size:.2f} {unit}" if number < 100 * size else f"{number / size:.0f} {unit}"
    return str(number)


def short_size(size: int | None) -> str:
    """A size with its unit, short enough for a block: `7.5 GiB`, `316 MiB`, `56.6 MiB`."""
    if size is None:
        return "unknown"
    words = format_size(size)
    number, _, unit = words.partition(" ")
    return f"{float(number):.0f} {unit}" if float(number) >= 100 else words


def of_size(part: int, whole: int | None) -> str:
    """`7.5 of 8.0 GiB`; `7.5 GiB of unknown` when nobody knows the whole."""
    if whole is None:
        return f"{short_size(part)} used"
    unit = short_size(whole).rpartition(" ")[2]
    if short_size(part).rpartition(" ")[2] == unit:
        return f"{short_size(part).rpartition(' ')[0]} of {short_size(whole)}"
    return f"{short_size(part)} of {short_size(whole)}"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
