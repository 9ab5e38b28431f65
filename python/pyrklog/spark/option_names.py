"""The names of the source's options, and what becomes of those of Kafka's consumer."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pyrklog.security.options import OPTIONS as SECURITY_OPTIONS
from pyrklog.security.options import REFUSED as SECURITY_REFUSED

KAFKA_PREFIX = "kafka."

# Of the stock connector, which are ours too. Spark gives names in lower case.
STOCK = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxRecordsPerPartition",
    "minPartitions",
)
OURS = (
    "badRecords",
    "commitGroup",
    "decode",
    "descriptors",
    "framed",
    "largeBytes",
    "maxBytesPerPartition",
    "maxBytesPerTrigger",
    "message",
    "onBad",
    "pushFilters",
    "registry",
    "schema",
    "subject",
    "table",
    "writerSchema",
)

# Of the stock connector: how its Java consumer is driven, which has no counterpart.
WITHOUT_EFFECT = (
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
)

# Refused by name, with what is meant instead.
NOT_OF_READS = {
    "checkpointLocation": "it is of writeStream",
    "delivery": "it is of writes",
    "queryName": "it is of writeStream",
    "topic": "it is of writes; to read, use subscribe",
    "txnAppId": "it is of writes",
    "txnVersion": "it is of writes",
}

KAFKA_USED = (
    "bootstrap.servers",
    "check.crcs",
    "client.id",
    "client.rack",
    "default.api.timeout.ms",
    "isolation.level",
    "request.timeout.ms",
    "socket.connection.setup.timeout.ms",
)

# The stock connector refuses these, too.
KAFKA_REFUSED = {
    "auto.offset.reset": "the stream's offsets are Spark's: use startingOffsets",
    "enable.auto.commit": "offsets are committed with batches: use commitGroup",
    "interceptor.classes": "there is no Java consumer",
    "key.deserializer": "keys are binary: cast or decode them in the query",
    "value.deserializer": "there is no Java consumer: use decode",
}

KAFKA_WITHOUT_EFFECT = (
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.include.jmx.reporter",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "exclude.internal.topics",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partition.assignment.strategy",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
)

# An option that asks for more security than there is must not be lost.
KAFKA_SECURITY_PREFIXES = ("sasl.", "ssl.", "security.providers")

_KAFKA_ALL = (*KAFKA_USED, *SECURITY_OPTIONS, *KAFKA_REFUSED, *KAFKA_WITHOUT_EFFECT)
_ALL = (
    *STOCK,
    *OURS,
    *WITHOUT_EFFECT,
    *NOT_OF_READS,
    *(KAFKA_PREFIX + name for name in _KAFKA_ALL),
)
SPELLING = {name.lower(): name for name in _ALL}
"""Of each known name in lower case, as users write it."""


def mistake_in(name: str) -> str | None:
    """Why an option of this name, in lower case, is refused, as a sentence; None if it is known."""
    known = SPELLING.get(name)
    if known in NOT_OF_READS:
        return f"option {known}: {NOT_OF_READS[known]}"
    if name.startswith(KAFKA_PREFIX):
        bare = name.removeprefix(KAFKA_PREFIX)
        if bare.startswith(KAFKA_SECURITY_PREFIXES) and bare not in SECURITY_OPTIONS:
            return security_mistake(bare)
        if bare in KAFKA_REFUSED:
            return f"option {name}: {KAFKA_REFUSED[bare]}"
    if known is not None:
        return None
    if name == "path":
        return "load() takes no path: use option subscribe"
    near = nearest(name, SPELLING)
    hint = f"; did you mean {SPELLING[near]}?" if near is not None else ""
    return f"there is no option {name}{hint}"


def security_mistake(bare: str) -> str:
    """Why an option of TLS or SASL is refused."""
    if bare in SECURITY_REFUSED:
        return f"option {KAFKA_PREFIX}{bare}: {SECURITY_REFUSED[bare]}"
    near = nearest(bare, SECURITY_OPTIONS)
    hint = f"; did you mean {KAFKA_PREFIX}{near}?" if near is not None else ""
    return f"option {KAFKA_PREFIX}{bare} is of security, and not supported{hint}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like ``name``, if one is like it."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return found[0] if found else None
