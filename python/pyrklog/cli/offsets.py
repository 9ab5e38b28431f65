"""The range of ``consume -o``: ``START``, ``START:END`` or ``:END``; END is exclusive.

Each is ``start`` (``beginning``, ``earliest``), ``end`` (``latest``), an offset, ``-N`` (N before
the end), or a time:
``@1700000000000`` (milliseconds), ``@2024-01-31``, ``@2024-01-31T12:00:00`` (UTC by default),
``@-90m`` (s, m, h, d). kcat's ``s@TIME`` and ``e@TIME`` work too.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple


class OffsetPosition(NamedTuple):
    """One end of a range. ``kind``: ``beginning``, ``end``, ``offset``, ``tail`` or ``time``."""

    kind: str
    value: int = 0
    """The offset, the number of records before the end, or milliseconds since 1970."""


class OffsetRange(NamedTuple):
    """``stop`` None: never stop."""

    start: OffsetPosition
    stop: OffsetPosition | None


class RangeError(ValueError):
    """An invalid range."""


BEGINNING = OffsetPosition("beginning")
END = OffsetPosition("end")
WORDS = {"start": BEGINNING, "beginning": BEGINNING, "earliest": BEGINNING}
WORDS |= {"end": END, "latest": END}
TIME_MS_MAX = 2**63 - 1
DIGITS_MAX = 19
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO = re.compile(r"-(\d{1,19})(ms|s|m|h|d)", re.ASCII)
_TIME = r"(?:\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?|[^:@]*)"
_RANGE = re.compile(rf"(@{_TIME}|[^:@]*)(?:(:)(@{_TIME}|[^:@]*))?")


def parse_range(texts: list[str], now_ms: int) -> OffsetRange:
    """Parses one ``-o``, or two in kcat's way. Raises :class:`RangeError`."""
    start: OffsetPosition | None = None
    stop: OffsetPosition | None = None
    for text in texts:
        if text.startswith(("s@", "e@")):
            place = _place(text[1:], now_ms)
            start, stop = (place, stop) if text[0] == "s" else (start, place)
            continue
        match = _RANGE.fullmatch(text)
        if match is None or not text:
            raise RangeError(f"-o {text!r} is no range")
        first, colon, second = match.groups()
        if first:
            start = _place(first, now_ms)
        if colon and second:
            stop = _place(second, now_ms)
    found = OffsetRange(start or BEGINNING, stop)
    refuse_backwards(found, f"-o {' -o '.join(texts)}")
    return found


def refuse_backwards(wanted: OffsetRange, text: str) -> None:
    """Raises :class:`RangeError` for a range of offsets or of times that ends before it begins."""
    start, stop = wanted
    if stop is None or stop.kind != start.kind or start.kind not in ("offset", "time"):
        return
    if stop.value < start.value:
        raise RangeError(f"{text} ends before it begins")


def parse_position(text: str, now_ms: int, option: str) -> OffsetPosition:
    """Parses one end of a range, given by another option. Raises :class:`RangeError`."""
    try:
        return _place(text, now_ms)
    except RangeError as error:
        raise RangeError(f"{option}{str(error).removeprefix('-o')}") from None


def _place(text: str, now_ms: int) -> OffsetPosition:
    if text in WORDS:
        return WORDS[text]
    if text.startswith("@"):
        return OffsetPosition("time", parse_time_ms(text[1:], now_ms))
    if re.fullmatch(r"-\d+", text, re.ASCII):
        return OffsetPosition("tail", int(text[1:]))
    if re.fullmatch(r"\d+", text, re.ASCII):
        return OffsetPosition("offset", int(text))
    if is_time(text):
        raise RangeError(f"-o {text!r} is no offset; did you mean @{text}?")
    raise RangeError(f"-o {text!r} is no offset; try start, end, 5, -10 or @2024-01-31")


def parse_time_ms(text: str, now_ms: int) -> int:
    """Parses a number, a date, or a time ago to ms. Raises :class:`RangeError`."""
    time_ms = _time_ms(text, now_ms)
    if not 0 <= time_ms <= TIME_MS_MAX:
        raise RangeError(f"-o @{text} is before 1970, or too far away")
    return time_ms


def _time_ms(text: str, now_ms: int) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX:
        return int(text)
    if text == "now":
        return now_ms
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * _UNITS_MS[ago[2]])
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise RangeError(f"-o @{text} is no time; try @2024-01-31T12:00:00 or @-90m") from None
    date = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return round(date.timestamp() * 1000)


def is_time(text: str) -> bool:
    """Whether it says a time once @ stands before it; a number alone is an offset."""
    try:
        parse_time_ms(text, now_ms=TIME_MS_MAX)
    except RangeError:
        return False
    return not text.lstrip("+-").isdecimal()


class ResolvedRange(NamedTuple):
    start: int
    stop: int | None


def resolve(
    wanted: OffsetRange,
    low: int,
    high: int,
    offset_at: Callable[[int], int],
    *,
    stable: int | None = None,
) -> tuple[ResolvedRange, str | None]:
    """The offsets to read of a log from ``low`` to ``high``, and a remark for people.

    ``offset_at(timestamp_ms)`` is the first offset of that time or later, -1 for none. A reader of
    committed records counts its start from ``stable`` (None: ``high``), but its stop from ``high``.
    Both may be past the end.
    """

    def offset(place: OffsetPosition, high: int) -> int:
        match place.kind:
            case "beginning":
                return low
            case "end":
                return high
            case "tail":
                return max(low, high - place.value)
            case "time":
                found = offset_at(place.value)
                return high if found < 0 else found
            case _:
                return place.value

    start = offset(wanted.start, high if stable is None else min(stable, high))
    stop = None if wanted.stop is None else offset(wanted.stop, high)
    if start < low:
        return ResolvedRange(low, stop), f"offset {start} is gone; the log starts at {low}"
    return ResolvedRange(start, stop), None if start <= high else past_end(start, high)


def past_end(offset: int, high: int) -> str:
    return f"offset {offset} is past the end of the log, which is {high}"
