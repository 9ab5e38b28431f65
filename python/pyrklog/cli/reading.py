"""Partitions being read: assigned by hand, each from its start up to its stop."""

import time
from collections.abc import Sequence
from typing import Any

import typer

from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.offsets import Bounded, Range, resolve
from pyrklog.cli.options import Settings
from pyrklog.cli.record_format import Bounds
from pyrklog.cli.topic_details import query_offsets

BOUNDS_AGE_MAX_S = 1.0
GROUP_ID = "pyrklog-cli"
"""librdkafka asks for a group id; with offsets neither fetched nor committed it is never used."""

Key = tuple[str, int]


class Reading:
    """Some partitions of some topics, read with a ``confluent_kafka.Consumer``."""

    def __init__(
        self,
        settings: Settings,
        topics: Sequence[str],
        partitions: Sequence[int] | None,
        *,
        read_committed: bool,
    ) -> None:
        """Nothing is asked of the broker yet. ``partitions`` empty or None: all of them."""
        self._settings = settings
        self._committed = read_committed
        self._topics = list(dict.fromkeys(topics))
        self._partitions = partitions or ()
        self._bounded: dict[Key, Bounded] = {}
        self._open: set[Key] = set()
        self._at_end: set[Key] = set()
        self._known_bounds: dict[Key, tuple[float, Bounds]] = {}
        self._consumer: Any = None

    def start(self, wanted: Range) -> None:
        """Connects, turns the range into offsets and begins to read.

        Raises :class:`RangeError`, and :class:`CliError` where a partition is missing or nobody
        answers.
        """
        self._connection = Connection(self._settings)
        from confluent_kafka import Consumer, TopicPartition

        existing = self._connection.topic_partitions(self._topics)
        keys = [
            (name, partition)
            for name, all_of_them in existing.items()
            for partition in _chosen(name, all_of_them, self._partitions)
        ]
        self._bounded = self._resolve(keys, wanted)
        self._open = {
            key for key, one in self._bounded.items() if one.stop is None or one.start < one.stop
        }
        isolation = "read_committed" if self._committed else "read_uncommitted"
        configuration = self._connection.configuration(
            **{
                "group.id": GROUP_ID,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": isolation,
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer = self._connection.make(Consumer, configuration)
        self._consumer.assign(
            [
                TopicPartition(name, partition, self._bounded[name, partition].start)
                for name, partition in sorted(self._open)
            ]
        )

    def finished(self, at_end: bool) -> bool:
        """Whether every partition has reached its stop or, with ``at_end``, its end."""
        return not (self._open - self._at_end if at_end else self._open)

    def read(self, limit: int, wait_s: float) -> list[Any]:
        """Up to ``limit`` messages within their ranges. Raises :class:`CliError`."""
        found: list[Any] = []
        for message in self._consumer.consume(limit, wait_s):
            key = (message.topic(), message.partition())
            if message.error() is not None:
                self._on_error(message, key)
            elif key in self._open and not self._past_stop(key, message.offset()):
                self._at_end.discard(key)
                found.append(message)
                self._past_stop(key, message.offset() + 1)
        return found

    def bounds(self, topic: str, partition: int) -> Bounds:
        """Log start offset, last stable offset and high watermark, at most a second old."""
        from confluent_kafka.admin import OffsetSpec

        known = self._known_bounds.get((topic, partition))
        if known is not None and time.monotonic() - known[0] < BOUNDS_AGE_MAX_S:
            return known[1]
        key = (topic, partition)
        latest = OffsetSpec.latest()
        bounds = Bounds(
            start=query_offsets(self._connection, [key], OffsetSpec.earliest())[key],
            last_stable=query_offsets(self._connection, [key], latest, committed=True)[key],
            high_watermark=query_offsets(self._connection, [key], latest)[key],
        )
        self._known_bounds[key] = (time.monotonic(), bounds)
        return bounds

    def close(self) -> None:
        """Ends reading."""
        if self._consumer is not None:
            self._consumer.close()

    def _resolve(self, keys: list[Key], wanted: Range) -> dict[Key, Bounded]:
        from confluent_kafka.admin import OffsetSpec

        query = self._connection
        lows = query_offsets(query, keys, OffsetSpec.earliest())
        highs = query_offsets(query, keys, OffsetSpec.latest(), committed=self._committed)
        at: dict[int, dict[Key, int]] = {
            place.value: query_offsets(query, keys, OffsetSpec.for_timestamp(place.value))
            for place in wanted
            if place is not None and place.kind == "time"
        }
        found: dict[Key, Bounded] = {}
        for key in keys:
            offsets = {timestamp_ms: answer[key] for timestamp_ms, answer in at.items()}
            found[key], remark = resolve(wanted, lows[key], highs[key], offsets.__getitem__)
            if remark is not None and not self._settings.quiet:
                typer.echo(f"note: {key[0]} [{key[1]}]: {remark}", err=True)
        return found

    def _past_stop(self, key: Key, position: int) -> bool:
        """Whether a partition has come to its stop; it is then read no further."""
        stop = self._bounded[key].stop
        if stop is None or position < stop:
            return False
        from confluent_kafka import TopicPartition

        self._open.discard(key)
        self._consumer.pause([TopicPartition(*key)])
        return True

    def _on_error(self, message: Any, key: Key) -> None:
        from confluent_kafka import KafkaError

        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add(key)
            if key in self._open:
                self._past_stop(key, message.offset())
            return
        if error.retriable() or error.code() in (
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._TRANSPORT,
        ):
            return
        where = f"{key[0]} [{key[1]}]" if key[0] else "reading"
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise CliError(Exit.FAILED, f"{where}: {error.str()}", "start again with another -o")
        raise self._connection.explain(error, where)


def _chosen(name: str, existing: list[int], partitions: Sequence[int]) -> list[int]:
    if not partitions:
        return existing
    for partition in partitions:
        if partition not in existing:
            count = len(existing)
            raise CliError(
                Exit.NOT_FOUND, f"topic {name} has no partition {partition}, only {count}"
            )
    return sorted(set(partitions))
