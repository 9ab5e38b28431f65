"""What to give in the place of a number with a unit: ``7d`` where an option takes milliseconds."""

from __future__ import annotations

import re

_WITH_UNIT = re.compile(r"(\d{1,19})\s*([a-zA-Z]+)", re.ASCII)
_TIMES_MS = {
    **dict.fromkeys(("ms", "millis", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minutes"), 60_000),
    **dict.fromkeys(("h", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000),
}
_SIZES = {"b": 1} | {
    unit: 1024**power
    for power, letter in enumerate("kmgt", start=1)
    for unit in (letter, f"{letter}b", f"{letter}ib")
}
_TAKES_MS = {"ms": 1, "seconds": 1_000, "minutes": 60_000, "hours": 3_600_000}
"""By the last part of the option's name."""


def fix_for_number(name: str, text: str) -> str | None:
    """The number in the option's own unit. None where the name or the text has no unit."""
    given = _WITH_UNIT.fullmatch(text.strip())
    unit = "milliseconds" if name.endswith(".ms") else name.rpartition(".")[2]
    if given is None:
        return None
    is_size = unit == "bytes"
    factor = (_SIZES if is_size else _TIMES_MS).get(given[2].lower())
    divisor = 1 if is_size else _TAKES_MS.get(name.rpartition(".")[2])
    if factor is None or divisor is None:
        return None
    number, rest = divmod(int(given[1]) * factor, divisor)
    return f"it takes {unit}, as a number" if rest else f"it takes {unit}: {name}={number}"
