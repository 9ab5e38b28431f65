"""Values whose secret name stands beside them: ``name: DB_PASSWORD`` and ``value: ...`` in one
mapping, and all that stands under a heading such as ``[secrets]``."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from pyrklog.redaction.names import hides

_VALUE_NAMES = frozenset(
    (
        *("value", "values", "val", "default", "new", "old", "newvalue", "oldvalue"),
        *("current", "previous", "data", "stringdata"),
    )
)
_NO_NAMING = frozenset(["event", "message", "msg", "logger", "level", "timestamp", "time", "ts"])
"""What stands under these names nothing else."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.-]{0,999}")
_NAMING = re.compile(
    r"""
    (?<![\w.-]) (?P<name>[A-Za-z_][\w.-]*) (?:\\{0,8}["'])?
    [ \t]* (?:=>|:=|[=:]) [ \t]* (?:\\{0,8}["'])?
    (?P<named>[A-Za-z_][\w.-]*) (?=\\{0,8}["'\s,;)}\]]|\Z)
    """,
    re.VERBOSE,
)
_HEADING = re.compile(r"^[ \t]*\[{1,2}(?P<title>[^\[\]\n]+)\]{1,2}[ \t]*(?:[#;].*)?\r?$", re.M)
_UNDER_HEADING = re.compile(r"^[ \t]*(?P<name>[^\s=:#;\[][^=:\n]*?)(?P<sep>[ \t]*[=:][ \t]*)", re.M)
_FLOW = ("{", "[", '"', "'")
"""Before a name in JSON, and in YAML that looks like it."""
ITEM_CHARACTERS_MAX = 4096
"""Between a name and its value."""

Shown = Callable[[str], bool]


def is_value_name(name: str) -> bool:
    """Whether what stands under it may be the value of a name beside it."""
    return name.lower().replace("_", "").replace("-", "") in _VALUE_NAMES


def secret_name_among(pairs: Iterable[tuple[Any, Any]], shows: Shown) -> str | None:
    """The name of a secret that one of a mapping's values is."""
    return next(
        (
            value
            for name, value in pairs
            if isinstance(value, str) and _is_secret_name(str(name), value, shows)
        ),
        None,
    )


def _is_secret_name(name: str, value: str, shows: Shown) -> bool:
    return (
        name.lower() not in _NO_NAMING
        and not is_value_name(name)
        and _PLAIN_NAME.fullmatch(value) is not None
        and hides(value)
        and not shows(value)
    )


class _Name(NamedTuple):
    start: int
    end: int
    named: str


class NamedValues:
    """Of one text."""

    def __init__(self, text: str, *, is_log: bool, shows: Shown) -> None:
        self._text = text
        self._is_log = is_log
        self._shows = shows

    def name_of(self, pair: re.Match[str]) -> str | None:
        """The secret name beside the pair, if it is a value."""
        if not is_value_name(pair["name"]):
            return None
        at = bisect_left(self._names, pair.start("name"), key=lambda one: one.start)
        start, end = pair.start("name"), pair.end("name")
        if at > 0 and self._is_one_item(self._names[at - 1].start, self._names[at - 1].end, start):
            return self._names[at - 1].named
        if at < len(self._names) and self._is_one_item(start, end, self._names[at].start):
            return self._names[at].named
        return None

    @cached_property
    def _names(self) -> list[_Name]:
        return [
            _Name(one.start("name"), one.end(), one["named"])
            for one in _NAMING.finditer(self._text)
            if _is_secret_name(one["name"], one["named"], self._shows)
        ]

    def _is_one_item(self, start: int, end: int, following: int) -> bool:
        """Whether pairs that begin at ``start`` and ``following`` are in one mapping: within the
        same brackets, or in lines that are indented alike."""
        if following - end > ITEM_CHARACTERS_MAX:
            return False
        text = self._text
        between = text[end:following]
        _, *lines = between.split("\n")
        if not lines or self._is_log:
            return not lines and not _leaves_brackets(between)
        head = text[text.rfind("\n", 0, start) + 1 : start]
        if head.lstrip(" \t-")[:1] in _FLOW:
            return not _leaves_brackets(between)
        depths = [len(one) - len(one.lstrip()) for one in lines[:-1] if one.strip()]
        is_alike = not lines[-1].strip() and len(lines[-1]) == len(head)
        return is_alike and min(depths, default=len(head)) >= len(head)

    def under_headings(self) -> Iterator[tuple[re.Match[str], str]]:
        """Pairs below the heading of a secret, and that heading."""
        if self._is_log:
            return
        headings = list(_HEADING.finditer(self._text))
        for number, heading in enumerate(headings):
            if hides(heading["title"]):
                is_last = number + 1 == len(headings)
                end = len(self._text) if is_last else headings[number + 1].start()
                for pair in _UNDER_HEADING.finditer(self._text, heading.end(), end):
                    yield pair, heading["title"]


def _leaves_brackets(text: str) -> bool:
    depth = 0
    for one in text:
        if one in "{[":
            depth += 1
        elif one in "}]":
            depth -= 1
            if depth < 0:
                return True
    return False
