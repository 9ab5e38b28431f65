"""The shipped alert rules in less time. Pure.

An alert waits for up to an hour, which no test can. Every duration of a rule is divided by
:data:`FACTOR`, but none becomes shorter than :data:`LEAST_S`, and one that is not longer than that
stays. Durations are how long an alert must hold (``for``), windows (``[30m]``), and bounds that a
number of seconds is compared with (``..._seconds{...} > 900``). Everything else stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import yaml

FACTOR = 30
LEAST_S = 15
"""As long as a busy machine may take to elect a leader, or to start a broker."""
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d+)([smhd])")
_WINDOW = re.compile(r"\[(\d+[smhd])\]")
_BOUND_OF_SECONDS = re.compile(r"(_seconds\{[^}]*\}\)*\s*>\s*)(\d+)$")


def seconds(duration: str) -> int:
    """Of Prometheus' ``30m`` and the like; ValueError for what is none."""
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise ValueError(f"{duration!r} is no duration")
    return int(found[1]) * _UNITS_S[found[2]]


def shortened_s(whole_s: int) -> int:
    return max(min(whole_s, LEAST_S), round(whole_s / FACTOR))


def shortened(duration: str) -> str:
    return f"{shortened_s(seconds(duration))}s"


def shortened_expr(expr: str) -> str:
    in_windows = _WINDOW.sub(lambda found: f"[{shortened(found[1])}]", expr)
    return _BOUND_OF_SECONDS.sub(
        lambda found: f"{found[1]}{shortened_s(int(found[2]))}", in_windows
    )


def shortened_rules(text: str) -> str:
    """A rule file (YAML) with the same rules."""
    file: dict[str, Any] = yaml.safe_load(text)
    for group in file["groups"]:
        for rule in group["rules"]:
            rule["for"] = shortened(rule["for"])
            rule["expr"] = shortened_expr(rule["expr"])
    return yaml.safe_dump(file, sort_keys=False, width=1000)


def longest_s(text: str) -> int:
    """The longest time that a rule of a file needs to fire, or to be quiet again."""
    file = yaml.safe_load(text)
    rules = [rule for group in file["groups"] for rule in group["rules"]]
    windows = [seconds(one) for rule in rules for one in _WINDOW.findall(rule["expr"])]
    return max(*(seconds(rule["for"]) for rule in rules), *windows)


def longest_silence_s(up: Sequence[float]) -> int:
    """Of a target's `up`, second by second."""
    return max(len(list(run)) if not is_up else 0 for is_up, run in groupby(up))
