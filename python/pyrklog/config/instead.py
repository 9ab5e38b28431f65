"""What a user of Kafka's file sets instead of options that have no effect here. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_RULES = (
    (
        r"process\.roles|controller\.(quorum|listener)\..+|metadata\.(log|max)\..+",
        "metadata is embedded, and a single broker needs no KRaft. node.id, log.dirs, listeners "
        "and all options of topics carry over; voters do not. For several brokers give each the "
        "same zookeeper.connect. process.roles still marks the file as Kafka's, whose defaults it "
        "means",
    ),
    (
        r"(listener\.name\..+\.)?(ssl|sasl)\..+|security\.providers|.*principal.*",
        "listeners are plain text: bind them to loopback or a trusted network, or put a proxy "
        "with TLS before them",
    ),
    (
        r"authorizer\..+|super\.users|allow\.everyone\..+",
        "every client may do everything: bind listeners to loopback or a trusted network",
    ),
    (
        r".*metric.*|auto\.include\.jmx\.reporter",
        "/metrics of pyrklog.http.listener, or pyrklog.metrics.otlp, .statsd, .csv.dir, .log",
    ),
    (
        r"remote\..+|log\.local\..+",
        "there is no tiered storage: log.retention.* is for all that is kept",
    ),
    (r".*quota.*", "there are no quotas of clients: max.connection.* bound connections"),
    (r"log\.message\.format\.version|inter\.broker\.protocol\.version", "nothing is to be set"),
    (r"controlled\.shutdown\..+", "an orderly end always hands its partitions over"),
    (r"password\.encoder\..+|delegation\.token\..+", "such secrets are not kept by the broker"),
)
_COMPILED = [(re.compile(pattern), sentence) for pattern, sentence in _RULES]


def instead_of(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Sentences, each with the options that it is about; none for others."""
    found: dict[str, list[str]] = {}
    for name in names:
        for pattern, sentence in _COMPILED:
            if pattern.fullmatch(name):
                found.setdefault(sentence, []).append(name)
                break
    return list(found.items())
