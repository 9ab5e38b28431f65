"""The names of the sink's options, and what becomes of those of Kafka's producer."""

from __future__ import annotations

from pyrklog.security.options import OPTIONS as SECURITY_OPTIONS
from pyrklog.spark.option_names import (
    KAFKA_PREFIX,
    KAFKA_SECURITY_PREFIXES,
    nearest,
    security_mistake,
)

STOCK = ("topic",)
# Of the stock connector: it, too, writes headers where the column is, whatever the option says.
WITHOUT_EFFECT = ("includeHeaders",)
OURS = ("delivery", "failOnDataLoss", "txnAppId", "txnVersion")
# Spark gives a stream's options to its sink, too.
OF_SPARK = ("checkpointLocation", "queryName")

# Refused by name, with what is meant instead.
NOT_OF_WRITES = {
    "commitGroup": "it is of reads",
    "decode": "it is of reads: make values of columns by to_json(struct(...))",
    "maxOffsetsPerTrigger": "it is of reads",
    "startingOffsets": "it is of reads",
    "subscribe": "it is of reads; to write, use topic",
}

KAFKA_USED = (
    "acks",
    "batch.size",
    "bootstrap.servers",
    "buffer.memory",
    "client.id",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "max.request.size",
    "request.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "transaction.timeout.ms",
)

_LEVEL = "batches are compressed at the codec's default level"
KAFKA_REFUSED = {
    "compression.gzip.level": _LEVEL,
    "compression.lz4.level": _LEVEL,
    "compression.zstd.level": _LEVEL,
    "interceptor.classes": "there is no Java producer",
    "key.serializer": "keys are strings or binary: cast or encode them in the query",
    "partitioner.class": "there is no Java producer: compute the column partition in the query",
    "partitioner.ignore.keys": "compute the column partition in the query",
    "transaction.two.phase.commit.enable": "transactions are the sink's: use delivery",
    "transactional.id": "the sink gives each task its own",
    "value.serializer": "values are strings or binary: cast or encode them in the query",
}

KAFKA_WITHOUT_EFFECT = (
    "auto.include.jmx.reporter",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "metadata.max.age.ms",
    "metadata.max.idle.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
)

_KAFKA_ALL = (*KAFKA_USED, *SECURITY_OPTIONS, *KAFKA_REFUSED, *KAFKA_WITHOUT_EFFECT)
SPELLING = {
    name.lower(): name
    for name in (
        *STOCK,
        *WITHOUT_EFFECT,
        *OURS,
        *OF_SPARK,
        *NOT_OF_WRITES,
        *(KAFKA_PREFIX + name for name in _KAFKA_ALL),
    )
}
"""Of each known name in lower case, as users write it."""


def mistake_in(name: str) -> str | None:
    """Why an option of this name, in lower case, is refused, as a sentence; None if it is known."""
    known = SPELLING.get(name)
    if known in NOT_OF_WRITES:
        return f"option {known}: {NOT_OF_WRITES[known]}"
    if name.startswith(KAFKA_PREFIX):
        bare = name.removeprefix(KAFKA_PREFIX)
        if bare.startswith(KAFKA_SECURITY_PREFIXES) and bare not in SECURITY_OPTIONS:
            return security_mistake(bare)
        if bare in KAFKA_REFUSED:
            return f"option {name}: {KAFKA_REFUSED[bare]}"
    if known is not None:
        return None
    if name == "path":
        return "a sink takes no path: use option topic, or a column topic"
    near = nearest(name, SPELLING)
    hint = f"; did you mean {SPELLING[near]}?" if near is not None else ""
    return f"there is no option {name} of the sink{hint}"
