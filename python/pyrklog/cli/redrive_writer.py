"""Writes redriven records to their topics, and tells the fate of each."""

from typing import Any, NamedTuple

import typer

from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import counted
from pyrklog.cli.interrupts import held
from pyrklog.cli.options import Settings
from pyrklog.cli.redrive_rules import Moved

QUEUE_BYTES_MAX = 32 * 2**20
WRITTEN_WITHIN_S = 60.0
DRAIN_S = 0.5
ANY_PARTITION = -1
REFUSED = frozenset(
    (
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "MSG_SIZE_TOO_LARGE",
        "POLICY_VIOLATION",
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PART",
        "_INVALID_DIFFERENT_RECORD",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
    )
)
"""Errors by name that are about one record or one topic: the others can be redriven."""


class Sent(NamedTuple):
    """A record's fate. ``key`` and ``offset``: where it was; ``place``: where it is, if ``error``
    (librdkafka's) is None."""

    key: PartitionKey
    offset: int
    moved: Moved
    place: tuple[str, int, int] | None
    error: Any = None

    @property
    def is_refused(self) -> bool:
        return self.error is not None and self.error.name() in REFUSED


class RedriveWriter:
    def __init__(self, settings: Settings) -> None:
        """Raises :class:`CliError` if no broker answers."""
        from confluent_kafka import Producer

        self._connection = Connection(settings)
        self._is_quiet = settings.quiet
        self._has_told = False
        within_s = max(WRITTEN_WITHIN_S, settings.timeout_s)
        configuration = self._connection.configuration(
            **{
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "message.timeout.ms": round(within_s * 1000),
                "queue.buffering.max.kbytes": QUEUE_BYTES_MAX // 1024,
                # The brokers decide which records are too large, not librdkafka.
                "message.max.bytes": 10**9,
            }
        )
        self._producer = self._connection.make(Producer, configuration)
        self._sent: list[Sent] = []

    def send(self, key: PartitionKey, offset: int, moved: Moved) -> None:
        from confluent_kafka import KafkaException

        record = moved.record

        def on_delivery(error: Any, message: Any) -> None:
            place = (message.topic(), message.partition(), message.offset())
            self._sent.append(Sent(key, offset, moved, None if error else place, error))

        while True:
            try:
                with held:
                    self._producer.produce(
                        moved.topic,
                        key=record.key,
                        value=record.value,
                        headers=list(record.headers),
                        partition=ANY_PARTITION if record.partition is None else record.partition,
                        timestamp=record.timestamp_ms or 0,
                        on_delivery=on_delivery,
                    )
                    self._producer.poll(0)
                return
            except BufferError:
                with held:
                    self._producer.poll(DRAIN_S)
            except KafkaException as error:
                self._sent.append(Sent(key, offset, moved, None, error.args[0]))
                return

    def flush(self) -> list[Sent]:
        """Waits for what was sent since the last call; returns its fates. Records of a batch share
        the refusal of one of them, so each refused record is sent once more, alone."""
        sent = self._drained()
        for at, one in enumerate(sent):
            if one.is_refused:
                self.send(one.key, one.offset, one.moved)
                (sent[at],) = self._drained()
        return sent

    def _drained(self) -> list[Sent]:
        waiting = 1
        while waiting > 0:
            with held:
                waiting = self._producer.flush(DRAIN_S)
                if waiting and held.is_interrupted:
                    self._tell_waiting(waiting)
        sent, self._sent = self._sent, []
        return sent

    def _tell_waiting(self, count: int) -> None:
        if not self._has_told and not self._is_quiet:
            told = counted(count, "record")
            typer.echo(
                f"note: waiting for brokers to acknowledge {told}; Ctrl-C ends at once, and a "
                "second run may move what is on its way again",
                err=True,
            )
        self._has_told = True

    def explain(self, sent: Sent, about: str) -> Any:
        """A :class:`CliError` for a record that was not written."""
        return self._connection.explain(sent.error, about, [sent.moved.topic])
