"""Conditions on records, as ``--filter`` takes them.

``FIELD`` holds for a record that has it, ``!FIELD`` for one that has not, ``FIELD OP TEXT`` where
the two compare so.

=====================================  =========================================================
``key``, ``value``                     the text; null is as if it were missing
``key.PATH``, ``value.PATH``           of JSON, also such as a schema makes it: names and, for
                                       lists, numbers, with dots between
``header:NAME``                        the last header of this name
``topic``                              the record's own topic
``partition``, ``offset``              numbers
``timestamp``                          milliseconds, or ``@TIME`` as in ranges of offsets
``=``, ``!=``                          equality of texts; of numbers where both are some
``~``, ``!~``                          a regular expression that matches somewhere
``<``, ``<=``, ``>``, ``>=``           order of numbers; false where one side is none
=====================================  =========================================================

``!=`` and ``!~`` are the opposites of ``=`` and ``~``: they hold for a missing field.
"""

import json
import operator
import re
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError
from pyrklog.cli.offsets import RangeError, parse_time_ms
from pyrklog.cli.records import Record

_CONDITION = re.compile(r"(!?)([^=!~<>]+?)\s*(?:(!=|!~|<=|>=|[=~<>])\s?(.*))?", re.DOTALL)
_PLACES: dict[str, Callable[[Record], Any]] = {
    "topic": lambda record: record.topic,
    "partition": lambda record: record.partition,
    "offset": lambda record: record.offset,
    "timestamp": lambda record: record.timestamp_ms,
}
_ORDERS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_KNOWN = "key, value, value.PATH, header:NAME, topic, partition, offset or timestamp"

Field = Callable[[Record], Any]
"""Text, number, or what JSON has; None: missing."""


class FilterError(ValueError):
    """The message says which condition is wrong, and why."""


class Condition(NamedTuple):
    text: str
    holds: Callable[[Record], bool]


def parse_filters(texts: Sequence[str], now_ms: int) -> tuple[Condition, ...]:
    """Parses conditions that all have to hold. Raises :class:`FilterError`."""
    return tuple(Condition(text, _parsed(text, now_ms)) for text in texts)


def conditions_of(texts: Sequence[str] | None, key: str | None = None) -> tuple[Condition, ...]:
    """Those of ``--filter`` and ``--key``, as of now. Raises :class:`CliError`."""
    try:
        found = parse_filters(texts or (), time.time_ns() // 1_000_000)
    except FilterError as error:
        raise CliError(Problem.ARGUMENT_VALUE, str(error)) from None
    if key is None:
        return found
    wanted = key.encode("utf-8", "surrogateescape")
    return (
        *found,
        Condition(f"key={key}", lambda record: wanted in (record.key, record.key_json)),
    )


def all_hold(conditions: Sequence[Condition], record: Record) -> bool:
    return all(one.holds(record) for one in conditions)


def _parsed(text: str, now_ms: int) -> Callable[[Record], bool]:
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        raise FilterError(f"--filter {text!r} is no condition such as header:NAME=TEXT")
    negated, name, sign, wanted = match.groups()
    field = _field(name.strip(), text)
    if sign is None:
        return (
            (lambda record: field(record) is None)
            if negated
            else (lambda record: field(record) is not None)
        )
    if negated:
        raise FilterError(f"--filter {text!r} has a ! before its field: write != or !~")
    if name.strip() == "timestamp" and wanted.startswith("@"):
        wanted = str(_time_ms(wanted[1:], now_ms, text))
    return _compared(field, sign, wanted, text)


def _time_ms(wanted: str, now_ms: int, text: str) -> int:
    try:
        return parse_time_ms(wanted, now_ms)
    except RangeError as error:
        raise FilterError(f"--filter {text!r}: {str(error).removeprefix('-o ')}") from None


def _field(name: str, text: str) -> Field:
    if name in _PLACES:
        return _PLACES[name]
    if name.startswith("header:") and name != "header:":
        header = name.removeprefix("header:")
        return lambda record: _text(last_header(record, header))
    whole, dot, path = name.partition(".")
    if whole in ("key", "value") and (path or not dot):
        steps, shown = path.split(".") if dot else [], attrgetter(f"shown_{whole}")
        return lambda record: _within(shown(record), steps)
    raise FilterError(f"--filter {text!r} has an unknown field {name!r}: it takes {_KNOWN}")


def last_header(record: Record, name: str) -> bytes | None:
    """The value that counts where a record has several headers of one name."""
    return next((value for key, value in reversed(record.headers) if key == name), None)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _within(data: bytes | None, steps: Sequence[str]) -> Any:
    """What JSON has at a path; None where it is no JSON or has nothing there."""
    if data is None or not steps:
        return _text(data)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    for step in steps:
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list) and step.isascii() and step.isdecimal():
            at = int(step) if len(step) < len(str(len(found))) + 1 else len(found)
            found = found[at] if at < len(found) else None
        else:
            return None
    return found


def _compared(field: Field, sign: str, wanted: str, text: str) -> Callable[[Record], bool]:
    if sign in ("~", "!~"):
        try:
            pattern = re.compile(wanted)
        except re.error as error:
            raise FilterError(f"--filter {text!r} has no regular expression: {error}") from None
        return lambda record: _matches(pattern, field(record)) is (sign == "~")
    if sign in ("=", "!="):
        return lambda record: _equals(field(record), wanted) is (sign == "=")
    bound, in_order = _number(wanted), _ORDERS[sign]
    if bound is None:
        raise FilterError(f"--filter {text!r}: {sign} takes a number, not {wanted!r}")

    def holds(record: Record) -> bool:
        found = _number(field(record))
        return found is not None and in_order(found, bound)

    return holds


def _matches(pattern: re.Pattern[str], found: Any) -> bool:
    return found is not None and pattern.search(_shown(found)) is not None


def _equals(found: Any, wanted: str) -> bool:
    if found is None:
        return False
    if _shown(found) == wanted:
        return True
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return is_number and _number(wanted) == found


def _shown(found: Any) -> str:
    """Texts as they are, other values as compact JSON."""
    if isinstance(found, str):
        return found
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _number(found: Any) -> float | None:
    """Integers stay such: offsets and times exceed what a float holds exactly."""
    if isinstance(found, bool):
        return None
    if isinstance(found, int | float):
        return found
    if not isinstance(found, str):
        return None
    for kind in (int, float):
        try:
            number: float = kind(found)
        except ValueError:
            continue
        return number if number == number else None  # not NaN, which has no order
    return None
