"""StatsD: UDP datagrams of lines ``name:value|type``.

Counters are sent as what was added since the last interval (``|c``), gauges as they are (``|g``).
Of histograms there are ``_count`` and ``_sum``, as counters: their quotient is the mean.
Names are ``broker.ID.METRIC.LABELS``, or ``METRIC`` with the labels and the broker as tags of
DogStatsD. Datagrams that get lost are lost: what they counted is missing there.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pyrklog.observability.growth import Growth, SeriesKey
from pyrklog.observability.samples import Sample

PACKET_BYTES_MAX = 1432
"""What an Ethernet's frame holds."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_NOT_IN_TAGS = re.compile(r"[|,#\s]")


class StatsdReporter:
    name = "statsd"

    def __init__(self, address: tuple[str, int], broker: int, *, tags: bool = False) -> None:
        """``address``: host and port; the host is looked up each time."""
        self._address = address
        self._broker = broker
        self._tags = tags
        self._growth = Growth()

    def report(self, at: float, samples: Sequence[Sample]) -> None:
        found = socket.getaddrinfo(*self._address, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as sender:
            # From here on what is sent counts as arrived: twice would be worse than not at all.
            grown = self._growth.take(samples)
            for packet in packets(lines(samples, grown, self._broker, tags=self._tags)):
                sender.sendto(packet, address)

    def close(self) -> None:
        """Nothing is open between reports."""


def lines(
    samples: Sequence[Sample], grown: Mapping[SeriesKey, float], broker: int, *, tags: bool
) -> Iterator[bytes]:
    """``grown``: by how much counters have grown; those that have not are left out."""
    for metric, labels, value in samples:
        if metric.kind == "histogram" and metric.name.endswith("_bucket"):
            continue
        if tags:
            named = zip(("broker", *metric.labels), (str(broker), *labels), strict=True)
            told = [f"{label}:{_NOT_IN_TAGS.sub('_', text)}" for label, text in named]
            name, end = metric.name, f"|#{','.join(told)}"
        else:
            parts = [_NOT_IN_NAMES.sub("_", text) for text in labels]
            name, end = ".".join(("broker", str(broker), metric.name, *parts)), ""
        if metric.kind != "gauge":
            growth = grown[metric.name, labels]
            if growth > 0:
                yield f"{name}:{_number(growth)}|c{end}".encode()
            continue
        if value < 0:
            # A gauge with a sign is added to.
            yield f"{name}:0|g{end}".encode()
        yield f"{name}:{_number(value)}|g{end}".encode()


def _number(value: float) -> str:
    """Without an exponent, which not every server reads."""
    return str(int(value)) if value == int(value) else f"{value:.9f}".rstrip("0").rstrip(".")


def packets(found: Iterable[bytes]) -> Iterator[bytes]:
    """As many lines in one datagram as fit."""
    packet = b""
    for line in found:
        if packet and len(packet) + 1 + len(line) > PACKET_BYTES_MAX:
            yield packet
            packet = b""
        packet = packet + b"\n" + line if packet else line
    if packet:
        yield packet
