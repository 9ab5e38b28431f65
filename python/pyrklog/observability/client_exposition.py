"""What clients have pushed as text, by prometheus-client. Loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import ALLOWUTF8
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from pyrklog.observability.client_samples import ClientFamily

END = b"# EOF\n"


class _Clients(Collector):
    def __init__(self, families: Iterable[ClientFamily]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        for name, kind, help_, samples in self._families:
            family = Family(name.removesuffix("_total") if kind == "counter" else name, help_, kind)
            for one in samples:
                family.add_sample(name, one.labels, one.value)
            yield family


def as_text(families: Iterable[ClientFamily], *, is_open: bool) -> bytes:
    """``is_open``: as OpenMetrics, without its last line."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Clients(families))
    # Names are plain, so all ways to escape them are the same: this one costs least.
    if is_open:
        body: bytes = generate_openmetrics(registry, escaping=ALLOWUTF8)  # type: ignore[no-untyped-call]
        return body.removesuffix(END)
    return generate_latest(registry, escaping=ALLOWUTF8)
