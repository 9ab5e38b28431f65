"""Which metrics PromQL reads, and which labels it names. Enough for what we ship, no parser."""

import re
from typing import NamedTuple

from ci.metric_reference import metrics

OF_PROMETHEUS = {"up": ()}
"""Metrics that Prometheus makes itself."""
OF_SCRAPES = frozenset({"job", "instance"})
OF_DETAIL = {"pyrklog_metrics_left_out_series": frozenset({"detail_topic", "detail_group"})}
"""The jobs of `/metrics/detail` give all series these; this one needs them."""
KNOWN = {
    name: frozenset(labels) | OF_SCRAPES | OF_DETAIL.get(name, frozenset())
    for name, labels in [*((one.name, one.labels) for one in metrics()), *OF_PROMETHEUS.items()]
}
"""Labels of each metric."""
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_DURATION = re.compile(r"\[[^\]]*\]")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\}|(\())?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_WORDS = frozenset({"bool", "and", "or", "unless", "offset"})


class Read(NamedTuple):
    metric: str
    matched: frozenset[str]
    """Labels in its selector."""


def reads(expr: str) -> list[Read]:
    """The metrics of an expression. What stands before a parenthesis is a function."""
    bare = _GROUPING.sub(" ", _DURATION.sub(" ", _TEXT.sub("''", expr)))
    return [
        Read(name, frozenset(_MATCHER.findall(matchers or "")))
        for name, matchers, is_function in _SELECTOR.findall(bare)
        if not is_function and name not in _WORDS
    ]


def grouped_by(expr: str) -> frozenset[str]:
    """Labels of ``by (...)``, ``on (...)`` and the like."""
    named = [one.strip() for inner in _GROUPING.findall(expr) for one in inner.split(",")]
    return frozenset(filter(None, named))


def wrong_with(expr: str) -> list[str]:
    """Metrics that no broker has, and labels that they do not have."""
    found = reads(expr)
    wrong = [f"{one.metric} is no metric" for one in found if one.metric not in KNOWN]
    labels: frozenset[str] = frozenset().union(*(KNOWN.get(one.metric, ()) for one in found))
    for one in found:
        wrong += [f"{one.metric} has no label {label}" for label in one.matched - labels]
    wrong += [f"nothing has the label {label}" for label in grouped_by(expr) - labels]
    return wrong if found else [f"{expr!r} reads nothing"]


def labels_of(expr: str) -> frozenset[str]:
    """Labels that a result may have: of the outermost ``by``, else of its metrics."""
    outer = re.match(r"\w+ by \(([^)]*)\)", expr)
    if outer is not None:
        return frozenset(one.strip() for one in outer[1].split(","))
    added = re.match(r'count_values\("(\w+)"', expr)
    if added is not None:
        return frozenset({added[1]})
    return frozenset().union(*(KNOWN.get(one.metric, ()) for one in reads(expr)))
