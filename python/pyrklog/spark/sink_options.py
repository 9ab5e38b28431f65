"""The options of the sink: names, values and what they exclude.

A table for users: ``docs/using/spark.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyrklog.producing import ProducerSettings
from pyrklog.spark.connection import Connection
from pyrklog.spark.given import Given, connection, topic_name, whole
from pyrklog.spark.option_names import KAFKA_PREFIX
from pyrklog.spark.places import shown
from pyrklog.spark.sink_option_names import (
    KAFKA_WITHOUT_EFFECT,
    SPELLING,
    WITHOUT_EFFECT,
    mistake_in,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DELIVERIES = ("at_least_once", "exactly_once")

_BYTES_MAX = 1 << 30
_INT_MAX = 2**31 - 1
VERSION_MAX = 2**63 - 1
# Of ids of transactions, in which it is a part between slashes.
_APP = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True)
class Batch:
    """Which of the writes of an application to a target this is: numbers only rise."""

    app_id: str
    version: int
    topic: str | None = None
    """The target; None if rows name theirs."""

    @property
    def sink(self) -> str:
        """Who writes: an application has one sink for each target, as with Delta Lake's tables."""
        return f"{self.app_id}@{self.topic or ''}"


@dataclass(frozen=True)
class SinkOptions:
    """Checked, and with defaults filled in."""

    connection: Connection
    producer: ProducerSettings
    """Without columns and transactional id."""
    is_exactly_once: bool
    fail_on_data_loss: bool
    batch: Batch | None
    """Of a batch write that is written exactly once."""
    ignored: tuple[str, ...]
    """Options that were given and have no effect."""


def parse(options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Options by name, in any case, as Spark gives them. Raises OptionError."""
    given = Given({name.lower(): value for name, value in options.items()})
    for name in given.names():
        mistake = mistake_in(name)
        if mistake is not None:
            given.mistakes.append(mistake)
    is_exactly_once = given.word("delivery", DELIVERIES) == "exactly_once"
    cluster = connection(given)
    producer = _producer(given, cluster)
    parsed = SinkOptions(
        connection=cluster,
        producer=producer,
        is_exactly_once=is_exactly_once,
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        batch=_batch(given, producer.topic, is_stream=is_stream, is_exactly_once=is_exactly_once),
        ignored=_ignored(given),
    )
    for name, values in (("kafka.acks", ("all", "-1")), ("kafka.enable.idempotence", ("true",))):
        text = given.text(name)
        if text is not None and text.strip().lower() not in values:
            given.mistakes.append(f"{name} is {shown(text)}: it can be {values[0]} only")
    given.raise_mistakes()
    return parsed


def _ignored(given: Given) -> tuple[str, ...]:
    without = {*WITHOUT_EFFECT, *(KAFKA_PREFIX + name for name in KAFKA_WITHOUT_EFFECT)}
    known = (SPELLING.get(name) for name in given.names())
    return tuple(name for name in known if name in without)


def _producer(given: Given, cluster: Connection) -> ProducerSettings:
    defaults = ProducerSettings("", [])
    return ProducerSettings(
        bootstrap_servers=cluster.bootstrap_servers,
        columns=[],
        topic=given.value("topic", topic_name, None),
        client_id=cluster.client_id,
        codec=given.word("kafka.compression.type", CODECS),
        batch_bytes=given.count("kafka.batch.size", _BYTES_MAX) or defaults.batch_bytes,
        memory_bytes=given.count("kafka.buffer.memory") or defaults.memory_bytes,
        request_bytes=given.count("kafka.max.request.size", _BYTES_MAX) or defaults.request_bytes,
        delivery_timeout_ms=given.count("kafka.delivery.timeout.ms", _INT_MAX)
        or defaults.delivery_timeout_ms,
        request_timeout_ms=round(cluster.request_timeout_s * 1000),
        connect_timeout_ms=round(cluster.connect_timeout_s * 1000),
        security=cluster.security,
        transaction_timeout_ms=given.count("kafka.transaction.timeout.ms", _INT_MAX)
        or defaults.transaction_timeout_ms,
    )


def _batch(
    given: Given, topic: str | None, *, is_stream: bool, is_exactly_once: bool
) -> Batch | None:
    named = [name for name in ("txnAppId", "txnVersion") if given.has(name)]
    if is_stream or not is_exactly_once:
        why = "a stream has Spark's ids" if is_stream else "only with delivery exactly_once"
        given.mistakes.extend(f"option {name}: {why}" for name in named)
        return None
    if len(named) < 2:
        given.mistakes.append(
            "delivery exactly_once of a batch write needs txnAppId and txnVersion: a write that is "
            "repeated after a failure with the same ones is not written twice"
        )
        return None
    app = given.value("txnAppId", _app, "")
    version = given.value("txnVersion", lambda text: _version(text), 0)
    return Batch(app, version, topic)


def _app(text: str) -> str:
    if not _APP.fullmatch(text):
        raise ValueError("it can have 1 to 200 letters, digits, dots, dashes and underscores")
    return text


def _version(text: str) -> int:
    """Numbers of batches begin at 0."""
    try:
        return 0 if text == "0" else whole(text, VERSION_MAX)
    except ValueError:
        raise ValueError(f"it can be a whole number from 0 to {VERSION_MAX}") from None
