"""Samples as text, in the format that the scraper asks for.

Tests compare it with what prometheus-client writes, which only renders what clients push
(:mod:`.client_exposition`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import isfinite
from typing import NamedTuple

from pyrklog.observability.client_samples import ClientFamily
from pyrklog.observability.metric import Metric
from pyrklog.observability.metric_table import BUILD
from pyrklog.observability.samples import Sample

OPENMETRICS = "application/openmetrics-text"
OPENMETRICS_TYPE = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
PLAIN_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SERIES_KEPT = 1024
"""Series whose text before the value is kept: those of ``/metrics``, twice."""
_PLAIN_DIGITS = 6


class Exposition(NamedTuple):
    body: bytes
    content_type: str


def render(
    samples: Sequence[Sample],
    accept: str,
    version: str | None = None,
    clients: Sequence[ClientFamily] = (),
) -> Exposition:
    """``accept`` is the header of the request; ``version`` adds the metric of the build, and
    ``clients`` come last."""
    is_open = wants_openmetrics(accept)
    lines = [] if version is None else _build(version, is_open=is_open)
    for family in _families(samples):
        lines += _head(family[0].metric, is_open=is_open)
        lines += [f"{_series(one.metric, one.labels)}{_number(one.value)}\n" for one in family]
    body = "".join(lines).encode()
    if clients:
        body += _of_clients(clients, is_open=is_open)
    if is_open:
        return Exposition(body + b"# EOF\n", OPENMETRICS_TYPE)
    return Exposition(body, PLAIN_TYPE)


def _families(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    """A family's samples come together, as both formats demand."""
    found: dict[str, list[Sample]] = {}
    for one in samples:
        family = found.get(one.metric.family)
        if family is None:
            found[one.metric.family] = [one]
        else:
            family.append(one)
    yield from found.values()


def _build(version: str, *, is_open: bool) -> list[str]:
    name = BUILD.name.removesuffix("_info") if is_open else BUILD.name
    return [
        f"# HELP {name} {BUILD.help}\n",
        f"# TYPE {name} {'info' if is_open else 'gauge'}\n",
        f"{_series(BUILD, (version,))}1.0\n",
    ]


@lru_cache(maxsize=SERIES_KEPT)
def _head(metric: Metric, *, is_open: bool) -> tuple[str, str]:
    name = metric.name if metric.kind == "counter" and not is_open else metric.family
    return f"# HELP {name} {metric.help}\n", f"# TYPE {name} {metric.kind}\n"


def _series(metric: Metric, labels: tuple[str, ...]) -> str:
    """What comes before the value."""
    return _text(metric.name, metric.labels, labels)


@lru_cache(maxsize=SERIES_KEPT)
def _text(metric: str, names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return f"{metric} "
    # By name, as prometheus-client has them.
    pairs = sorted(zip(names, values, strict=True))
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{metric}{{{told}}} "


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    """As Go writes it."""
    number = float(value)
    if not isfinite(number):
        return "NaN" if number != number else "+Inf" if number > 0 else "-Inf"
    text = repr(number)
    point = text.find(".")
    if number > 0 and point > _PLAIN_DIGITS:
        mantissa = f"{text[0]}.{text[1:point]}{text[point + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{point - 1:02d}"
    return text


def _of_clients(families: Iterable[ClientFamily], *, is_open: bool) -> bytes:
    """By prometheus-client: names and types are what clients have made of them."""
    from pyrklog.observability.client_exposition import as_text

    return as_text(families, is_open=is_open)


def wants_openmetrics(accept: str) -> bool:
    return any(one.partition(";")[0].strip() == OPENMETRICS for one in accept.split(","))
