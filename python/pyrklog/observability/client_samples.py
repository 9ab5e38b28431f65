"""Samples of ``/metrics/clients``: what clients have pushed (KIP-714). Pure.

Clients choose names and types, so they may disagree: a name that is a counter and a gauge, or a
counter that another name stands in the way of, has no type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from pyrklog.observability.metric import Metric
from pyrklog.observability.metric_table import LEFT_OUT_SERIES
from pyrklog.observability.samples import Sample
from pyrklog.telemetry.client_metrics import Exposed, ExposedClient

CLIENT_ID, INSTANCE_ID = "client_id", "client_instance_id"
_TOTAL = "_total"
_ENDINGS = (_TOTAL, "_created")

CLIENT_METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "instances": Metric(
            "pyrklog_client_metrics_instances",
            "gauge",
            "Client instances that have lately asked this broker what to push, or have pushed.",
        ),
        "pushes": Metric(
            "pyrklog_client_metrics_pushes_total", "counter", "Pushes of clients that were taken."
        ),
        "refused": Metric(
            "pyrklog_client_metrics_refused_total",
            "counter",
            "Requests for subscriptions and pushes that were refused.",
            ("error",),
        ),
    }
)
INFO = "pyrklog_client_info"
INFO_HELP = "1, with what the client and its connection say of it."
PUSHED_HELP = "Pushed by clients."


Kind = Literal["counter", "gauge", "unknown"]


class ClientSample(NamedTuple):
    who: Mapping[str, str]
    """Shared by all samples of a client."""
    told: Sequence[tuple[str, str]]
    value: float

    @property
    def labels(self) -> dict[str, str]:
        """A client does not say which client it is: the broker does."""
        return {**dict(self.told), **self.who}


class ClientFamily(NamedTuple):
    """``name`` as its samples have it."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[ClientSample]


def own_samples(exposed: Exposed) -> list[Sample]:
    refused = CLIENT_METRICS["refused"]
    return [
        Sample(CLIENT_METRICS["instances"], (), exposed.instances),
        Sample(CLIENT_METRICS["pushes"], (), exposed.pushes),
        *(Sample(refused, (error,), count) for error, count in sorted(exposed.refused.items())),
        Sample(LEFT_OUT_SERIES, (), exposed.left_out),
    ]


def client_families(clients: Sequence[ExposedClient]) -> list[ClientFamily]:
    """By name; the first says who the clients are."""
    if not clients:
        return []
    who = [ClientSample(_who(one), one.info, 1.0) for one in clients]
    kinds: dict[str, Kind] = {}
    found: dict[str, list[ClientSample]] = {}
    for name, kind, sample in _pushed(clients):
        found.setdefault(name, []).append(sample)
        if kinds.setdefault(name, kind) != kind:
            kinds[name] = "unknown"
    stems = Counter(map(_stem, kinds))
    for name, kind in kinds.items():
        if kind == "counter" and (not _stem(name) or stems[_stem(name)] > 1):
            kinds[name] = "unknown"
    pushed = (ClientFamily(name, kinds[name], PUSHED_HELP, found[name]) for name in sorted(found))
    return [ClientFamily(INFO, "gauge", INFO_HELP, who), *pushed]


def _stem(name: str) -> str:
    """A counter claims all names that are its stem with such endings."""
    while name.endswith(_ENDINGS):
        name = name[: name.rindex("_")]
    return name


def _pushed(clients: Iterable[ExposedClient]) -> Iterator[tuple[str, Kind, ClientSample]]:
    for one in clients:
        who = _who(one)
        for (name, labels), value in one.series.items():
            kind: Kind = "counter" if value.is_counter else "gauge"
            shown = f"{name.removesuffix(_TOTAL)}{_TOTAL}" if value.is_counter else name
            yield shown, kind, ClientSample(who, labels, value.value)


def _who(client: ExposedClient) -> dict[str, str]:
    return {CLIENT_ID: client.client_id, INSTANCE_ID: client.instance_id}
