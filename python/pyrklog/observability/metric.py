"""What a metric is. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """``name`` as samples have it: counters end in ``_total``, and each part of a histogram has its
    own. ``help`` is shown without those of other metrics, so it names what it is of."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """The name of the family in OpenMetrics."""
        if self.kind == "histogram":
            return self.name.rpartition("_")[0]
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name


def counter(name: str, help_: str, *labels: str) -> Metric:
    return Metric(name, "counter", help_, labels)


def gauge(name: str, help_: str, *labels: str) -> Metric:
    return Metric(name, "gauge", help_, labels)
