"""The log of decisions: which transactions a number of a sink consists of.

Kept in a compacted topic of the cluster that is written to; ``docs/understanding/spark-sink.md``.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from pyrklog.base.in_turn import servers_in_turn
from pyrklog.producing import OpenTransaction, ProduceError, Producer, ProducerSettings
from pyrklog.producing.transactions import SHORT_TIMEOUT_MS
from pyrklog.scanning import ScanError, UnknownTopicError, scan
from pyrklog.scanning.places import Places
from pyrklog.spark.connection import Connection, ScanArguments
from pyrklog.spark.sink_slots import decision_id

if TYPE_CHECKING:
    import pyarrow

TOPIC = "__pyrklog_spark_sink"
PARTITIONS = 16
VERSION = 1

logger = logging.getLogger("pyrklog.spark")

Record = tuple[bytes, bytes]
"""Key and value."""

_REPLICAS_MAX = 3
# With three replicas or more: of an acknowledged decision a replica is left when a broker is gone.
_IN_SYNC_MIN = 2
_POLICY = "cleanup.policy"
_IN_SYNC = "min.insync.replicas"
_CONFIG = {
    _POLICY: "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "compression.type": "producer",
    "min.compaction.lag.ms": "0",
}
# A dead driver's decision that is open is in the way for as long as its time-out, which brokers
# look for every ten seconds.
_READ_TIMEOUT_S = SHORT_TIMEOUT_MS / 1000 + 60.0
# Brokers that know less than was written are asked again.
_KNOWN_WITHIN_S = 10.0
_SHOWN_WITHIN_S = _READ_TIMEOUT_S
_WAIT_S = 0.2
_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}

_kept_safely: set[str] = set()
"""Clusters whose topic this process has looked at: each batch is decided by new objects."""


class DecisionLogError(ProduceError):
    """The log of decisions cannot be read or created; the message says why."""


@dataclass(frozen=True)
class Decision:
    """The transactions of a number. Once all have been committed it is done, and has none."""

    number: int
    transactions: tuple[OpenTransaction, ...] = ()
    is_done: bool = False


class DecisionLog(Protocol):
    """Of one sink. All methods raise ProduceError."""

    def take_over(self) -> None:
        """From now on nobody writes decisions but this log, until another one takes over. A
        decision that somebody was writing is written or is not."""

    def peek(self) -> Decision | None:
        """The last decision that can be seen without waiting. There may be a later one."""

    def last(self) -> Decision | None:
        """The last decision that is written, for as long as nobody else takes over; None if there
        is none. What brokers that know less would say is no answer. May wait for other sinks' dead
        drivers."""

    def require_safe(self) -> None:
        """The log keeps what is written, else DecisionLogError. Takes as long as a question to the
        cluster, the first time."""

    def write(self, decision: Decision) -> None:
        """Writes a decision, if nobody else has taken over since ``last``. An exception leaves open
        whether it is written: who takes over next will see."""


def encoded(decision: Decision) -> bytes:
    """As in the topic."""
    document = {
        "version": VERSION,
        "number": decision.number,
        "state": "done" if decision.is_done else "decided",
        "transactions": [list(one[:3]) for one in decision.transactions],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decoded(value: bytes) -> Decision:
    """Raises DecisionLogError for what a newer version wrote, or something else."""
    try:
        document = json.loads(value)
        version = document["version"]
        if version != VERSION:
            raise DecisionLogError(
                f"a decision in topic {TOPIC} has version {version}, and this is {VERSION}: use "
                "the version of pyrklog that wrote it, or a later one"
            )
        rows = document["transactions"]
        transactions = tuple(OpenTransaction(str(a), int(b), int(c)) for a, b, c in rows)
        state = document["state"]
        if state not in {"decided", "done"}:
            raise ValueError(f"state {state!r}")
        return Decision(int(document["number"]), transactions, state == "done")
    except (ValueError, KeyError, TypeError) as error:
        raise DecisionLogError(f"topic {TOPIC} has a value that is no decision: {error}") from error


def partition_of(sink: str) -> int:
    """Fixed for ever: a decision that is looked for elsewhere is not found."""
    return zlib.crc32(sink.encode()) % PARTITIONS


def mark_key(sink: str) -> bytes:
    """Of the records by which drivers know that a leader shows all: no sink has a slash."""
    return f"{sink}/".encode()


class KafkaDecisions:
    """The log of a sink on a cluster."""

    def __init__(
        self,
        connection: Connection,
        settings: ProducerSettings,
        sink: str,
        create_topic: Callable[[Connection], bool] | None = None,
    ) -> None:
        self._connection = connection
        self._settings = settings._replace(
            topic=TOPIC,
            columns=["key", "value", "partition"],
            codec="gzip",  # ids have long beginnings in common, and one record holds them all
            transactional_id=decision_id(sink),
            transaction_timeout_ms=min(SHORT_TIMEOUT_MS, settings.transaction_timeout_ms),
        )
        self._sink = sink
        self._create_topic = create_topic or create_decisions
        self._producer: Producer | None = None
        self._is_read = False
        self._is_safe = False

    def take_over(self) -> None:
        self._is_read = False
        self._producer = Producer(self._settings)

    def peek(self) -> Decision | None:
        try:
            return self._last_of(self._visible("latest", self._connection.bootstrap_servers))
        except UnknownTopicError:
            return None
        except ScanError as error:
            raise _unreadable(error) from error

    def last(self) -> Decision | None:
        """A broker that has just started may not know the topic, and one that is cut off, or has
        led the partition before, may lack its last records. So a mark is written, which comes
        behind all that former drivers have written, and the partition is read until it is there."""
        if self._producer is None:
            self.take_over()
        try:
            self._require_topic()
            found = self._last_of(self._shown_with(self._mark()))
        except ScanError as error:
            raise _unreadable(error) from error
        self._is_read = True
        return found

    def require_safe(self) -> None:
        if not self._is_safe:
            require_safe(self._connection)
            self._is_safe = True

    def write(self, decision: Decision) -> None:
        if not self._is_read:
            raise DecisionLogError(
                f"nothing is decided: the last decision in topic {TOPIC} has not been read"
            )
        self.require_safe()
        self._append(self._sink.encode(), encoded(decision))

    def _last_of(self, records: list[Record]) -> Decision | None:
        found = [value for key, value in records if key == self._sink.encode()]
        return decoded(found[-1]) if found else None

    def _require_topic(self) -> None:
        """The topic exists afterwards, and a broker knows it. That there is none is the
        controller's word alone, which refuses to create it again."""
        partition = partition_of(self._sink)
        place = {TOPIC: {partition: 0}}
        unknown: ScanError | None = None
        for servers in servers_in_turn(
            self._connection.bootstrap_servers, _KNOWN_WITHIN_S, _WAIT_S
        ):
            try:
                arguments = self._arguments(servers)
                with scan({TOPIC: [partition]}, place, place, [], threads=1, **arguments):
                    return
            except UnknownTopicError as error:
                if unknown is None and self._create_topic(self._connection):
                    _kept_safely.add(self._connection.bootstrap_servers)
                unknown = error
        raise _untold(f"brokers do not know it: {unknown}")

    def _mark(self) -> Record:
        """Writes that this driver has taken over: the record, which no other is equal to."""
        assert self._producer is not None
        driver = {"version": VERSION, "driver": list(self._producer.producer_id)}
        mark = mark_key(self._sink), json.dumps(driver, separators=(",", ":")).encode()
        self._append(*mark)
        return mark

    def _append(self, key: bytes, value: bytes) -> None:
        """In a transaction of its own. The producer is used again unless that fails."""
        assert self._producer is not None
        producer, self._producer = self._producer, None
        is_read, self._is_read = self._is_read, False
        producer.send(self._row(key, value))
        producer.commit()
        self._producer, self._is_read = producer, is_read

    def _row(self, key: bytes, value: bytes) -> pyarrow.RecordBatch:
        import pyarrow

        return pyarrow.record_batch(
            {
                "key": pyarrow.array([key], pyarrow.binary()),
                "value": pyarrow.array([value], pyarrow.binary()),
                "partition": pyarrow.array([partition_of(self._sink)], pyarrow.int32()),
            }
        )

    def _shown_with(self, mark: Record) -> list[Record]:
        """All committed records, of a leader that has the mark."""
        why = "the leader that brokers name lacks what was just written"
        for servers in servers_in_turn(
            self._connection.bootstrap_servers, _SHOWN_WITHIN_S, _WAIT_S
        ):
            try:
                records = self._all(servers)
            except UnknownTopicError as error:
                why = str(error)
                continue
            if mark in records:
                return records
        raise _untold(why)

    def _all(self, servers: str) -> list[Record]:
        """Up to the present end: what another sink's open transaction hides is waited for."""
        arguments = self._arguments(servers)
        arguments["isolation"] = "read_uncommitted"
        partition = partition_of(self._sink)
        with scan({TOPIC: [partition]}, columns=[], threads=1, **arguments) as everything:
            end = everything.progress()[0].end
        return self._visible({TOPIC: {partition: end}}, servers)

    def _visible(self, end: Places, servers: str) -> list[Record]:
        """Committed records."""
        arguments = self._arguments(servers)
        arguments["isolation"] = "read_committed"
        arguments["timeout_s"] = _READ_TIMEOUT_S
        topics = {TOPIC: [partition_of(self._sink)]}
        columns = ["key", "value"]
        with scan(topics, end=end, columns=columns, threads=1, **arguments) as reading:
            table = reading.reader().read_all()
        rows = zip(*(table.column(name).to_pylist() for name in columns), strict=True)
        return [(key, value) for key, value in rows if key is not None and value is not None]

    def _arguments(self, servers: str) -> ScanArguments:
        arguments = self._connection.scan_arguments()
        arguments["bootstrap_servers"] = servers
        return arguments


def _unreadable(error: ScanError) -> DecisionLogError:
    return DecisionLogError(f"topic {TOPIC} cannot be read: {error}")


def _untold(why: str) -> DecisionLogError:
    return DecisionLogError(
        f"what was decided before is not known, so nothing is decided or aborted: topic {TOPIC} "
        f"exists, and {why}. The query can be run again"
    )


def create_decisions(connection: Connection) -> bool:
    """Creates the topic; False if it exists. Raises DecisionLogError."""
    try:
        admin = connection.admin()
        brokers = len(admin.list_topics(timeout=connection.timeout_s).brokers)
        replicas = min(_REPLICAS_MAX, max(1, brokers))
        in_sync = {_IN_SYNC: str(_IN_SYNC_MIN)} if replicas > _IN_SYNC_MIN else {}
        topic = NewTopic(TOPIC, PARTITIONS, replicas, config=_CONFIG | in_sync)
        admin.create_topics([topic], request_timeout=connection.request_timeout_s)[TOPIC].result()
    except KafkaException as error:
        failure = error.args[0]
        if failure.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise DecisionLogError(
            f"topic {TOPIC}, which keeps the sink's decisions, cannot be created: {failure.str()}"
        ) from error
    except ScanError as error:
        raise DecisionLogError(str(error)) from error
    return True


def require_safe(connection: Connection) -> None:
    """Asks once a process whether the topic keeps each sink's last decision. One that deletes old
    records raises DecisionLogError; one that may lose acknowledged ones with a broker is logged.
    """
    if connection.bootstrap_servers in _kept_safely:
        return
    timeout_s = connection.request_timeout_s
    try:
        admin = connection.admin()
        known = admin.list_topics(TOPIC, timeout=connection.timeout_s).topics[TOPIC]
        resource = ConfigResource(ResourceType.TOPIC, TOPIC)
        asked = admin.describe_configs([resource], request_timeout=timeout_s)
        configs = asked[resource].result()
    except KafkaException as error:
        # Who may write need not have the right to ask.
        text = "how topic %s is configured is not known, and it is taken for compacted: %s"
        logger.warning(text, TOPIC, error.args[0].str())
        if error.args[0].code() in _FORBIDDEN:
            _kept_safely.add(connection.bootstrap_servers)
        return
    except ScanError as error:
        raise DecisionLogError(str(error)) from error
    policy = configs[_POLICY].value
    if policy != "compact":
        raise DecisionLogError(
            f"topic {TOPIC} has {_POLICY}={policy}, with which decisions are lost, and rows can be "
            f"written twice: nothing is decided; set {_POLICY}=compact"
        )
    replicas = min((len(one.replicas) for one in known.partitions.values()), default=0)
    in_sync = int(configs[_IN_SYNC].value)
    if replicas > _IN_SYNC_MIN > in_sync:
        logger.warning(
            "topic %s has %s=%d with %d replicas: a decision that only a broker which is lost has "
            "is lost with it, and rows can be written twice; set %s=%d",
            *(TOPIC, _IN_SYNC, in_sync, replicas, _IN_SYNC, _IN_SYNC_MIN),
        )
    _kept_safely.add(connection.bootstrap_servers)
