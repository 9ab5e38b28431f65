"""Reads what clients push: OpenTelemetry's MetricsData (OTLP 1), by its own library, which only
this module knows besides the reporter.

Everything is bounded here, since any client can push: points, labels, lengths. Names become
Prometheus' own, texts printable. Histograms and summaries, which no client of Kafka pushes, are
left out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, islice
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

POINTS_MAX = 2_000
"""Points read of one push."""
CONTAINERS_MAX = 2_000
"""Resources, scopes and metrics looked at in one push."""
LABELS_MAX = 12
"""Of a point; also of the client."""
LABELS_LOOKED_AT_MAX = 24
NAME_CHARS_MAX = 200
TEXT_CHARS_MAX = 128
LABEL_CHARS_MAX = 600
"""Names and values of labels together: a point with more is left out, of a client those beyond."""

OWN_PREFIX = "pyrklog_"
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
_DELTA = 1
"""``AGGREGATION_TEMPORALITY_DELTA``: the value counts from the last push on."""
_NOT_RECORDED = 1
"""``DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK``."""
_REPLACED = "\N{REPLACEMENT CHARACTER}"

Labels = tuple[tuple[str, str], ...]
"""Sorted by name."""


class Point(NamedTuple):
    name: str
    labels: Labels
    is_counter: bool
    """Else a gauge."""
    is_delta: bool
    value: float


class Reading(NamedTuple):
    """``left_out``: points that are not among ``points``; a lower bound beyond
    :data:`CONTAINERS_MAX`."""

    client: Labels
    """What the client says of itself, such as its group."""
    points: list[Point]
    left_out: int


class InvalidMetricsError(Exception):
    """The bytes are not MetricsData."""


def read_metrics(data: bytes) -> Reading:
    """Raises :class:`InvalidMetricsError`."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    message = MetricsData()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise InvalidMetricsError(str(error)) from None
    client: Labels = ()
    points: list[Point] = []
    left_out = 0
    for found in islice(_metrics(message), CONTAINERS_MAX):
        if isinstance(found, tuple):
            client = client or _within_bound(found)
            continue
        numbers, rest = _number_points(found)
        left_out += rest
        room = POINTS_MAX - len(points)
        left_out += max(0, len(numbers) - room)
        taken = (_point(found, one) for one in islice(numbers, room))
        kept = [point for point in taken if point is not None]
        left_out += min(room, len(numbers)) - len(kept)
        points += kept
    return Reading(client, points, left_out)


def _metrics(message: Any) -> Iterator[Labels | Metric]:
    """The labels of each resource, then its metrics. Containers without any count as well."""
    for resource in message.resource_metrics:
        yield _labels(resource.resource.attributes)
        for scope in resource.scope_metrics:
            yield ()
            yield from scope.metrics


def _number_points(metric: Metric) -> tuple[Any, int]:
    """Its points that are numbers, and how many others it has."""
    kind = metric.WhichOneof("data")
    if kind == "gauge" or kind == "sum":
        return getattr(metric, kind).data_points, 0
    return (), 0 if kind is None else len(getattr(metric, kind).data_points)


def _point(metric: Metric, number: NumberDataPoint) -> Point | None:
    kind = number.WhichOneof("value")
    name = metric_name(metric.name)
    if kind is None or number.flags & _NOT_RECORDED or not name:
        return None
    labels = _labels(number.attributes)
    if len(_within_bound(labels)) < len(labels):
        return None
    is_sum = metric.WhichOneof("data") == "sum"
    is_counter = is_sum and metric.sum.is_monotonic
    is_delta = is_sum and metric.sum.aggregation_temporality == _DELTA
    value = float(getattr(number, kind))
    # One such counter makes a whole answer unreadable, and such a difference stays in its sum.
    if (is_counter and value < 0) or ((is_counter or is_delta) and not isfinite(value)):
        return None
    return Point(name, labels, is_counter, is_delta, value)


def _labels(attributes: Iterable[Any]) -> Labels:
    """The first of each name, of values that are plain."""
    found: dict[str, str] = {}
    for one in islice(attributes, LABELS_LOOKED_AT_MAX):
        kind = one.value.WhichOneof("value")
        name = label_name(one.key)
        if kind in _TEXTS and name and name not in found and len(found) < LABELS_MAX:
            found[name] = shown_text(_TEXTS[kind](getattr(one.value, kind)))
    return tuple(sorted(found.items()))


def _within_bound(labels: Labels) -> Labels:
    """The first ones, of :data:`LABEL_CHARS_MAX` characters together."""
    sizes = accumulate(len(name) + len(value) for name, value in labels)
    return labels[: bisect_right(list(sizes), LABEL_CHARS_MAX)]


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "string_value": str,
    "int_value": str,
    "double_value": repr,
    "bool_value": lambda value: "true" if value else "false",
}


def metric_name(text: str) -> str:
    """``org.apache.kafka.x`` -> ``org_apache_kafka_x``; empty for no name."""
    name = _plain(text[:NAME_CHARS_MAX])
    # What looks like the broker's own is a client's all the same.
    return f"client_{name}" if name.startswith(OWN_PREFIX) else name


def label_name(text: str) -> str:
    """Two underscores at the beginning are Prometheus' own."""
    return _plain(text[:TEXT_CHARS_MAX].lstrip("_"))


def _plain(text: str) -> str:
    name = _NOT_IN_NAMES.sub("_", text)
    return f"_{name}" if name[:1].isdigit() else name


def shown_text(text: str) -> str:
    """Short, on one line, without control characters."""
    text = text[:TEXT_CHARS_MAX]
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _REPLACED for one in text)
