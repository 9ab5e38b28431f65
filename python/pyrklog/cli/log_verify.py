"""``pyrklog log verify``: requests to brokers, and printed rows.

Each broker digests its own replica. The comparison covers the highest log start offset to the
lowest high watermark: later records may still change. Replicas are compacted at different times, so
what one of them has compacted is searched for damage only.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from pyrklog.base.problems import Problem
from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.cli.cluster_election import parse_places
from pyrklog.cli.cluster_reading import read_state
from pyrklog.cli.cluster_views import is_plain
from pyrklog.cli.config_cluster import refuse_others
from pyrklog.cli.connection import Connection, missing_topic
from pyrklog.cli.failures import CliError, Exit, missing_partition
from pyrklog.cli.offsets import RangeError, parse_time_ms
from pyrklog.cli.output import Listing, columns
from pyrklog.cli.replica_compare import (
    BatchDigest,
    Difference,
    Digest,
    first_damage,
    first_difference,
)
from pyrklog.cli.topic_details import query_offsets
from pyrklog.observability.health_rules import NO_BROKER, ClusterState, PartitionState
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.verification import (
    REPLICA_DIGEST,
    ReplicaDigestRequest,
    ReplicaDigestResponse,
)

COLUMNS = columns(
    "topic, partition>, replicas, start_offset> START, end_offset> END, status, "
    "first_difference> FIRST DIFFERENCE, differs, damaged, compacted_end*> COMPACTED BELOW, "
    "batches* BATCHES THERE, reason*"
)
SCHEMA = "pyrklog.log-verify/1"
EQUAL, DIFFERS, UNKNOWN = "equal", "differs", "unknown"

PIECE_BYTES = 32 * 2**20
RETRY_PAUSE_S = 0.2
TRIES_MAX = 10
_FLEETING = frozenset(
    (
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
)
"""Retention, an election or a reassignment interfered: start again."""


class Since(NamedTuple):
    """``is_time``: ``value`` is milliseconds since 1970, else an offset."""

    value: int
    is_time: bool


class NotAnswered(Exception):
    """A broker did not answer (``code`` None), or answered with an error."""

    def __init__(self, broker: int, reason: str, code: ErrorCode | None = None) -> None:
        super().__init__(f"broker {broker}: {reason}")
        self.code = code


def parse_since(text: str, now_ms: int) -> Since:
    """Parses an offset, or a time as in ``consume -o`` with or without ``@``."""
    if text.isascii() and text.isdecimal():
        return Since(int(text), is_time=False)
    try:
        return Since(parse_time_ms(text.removeprefix("@"), now_ms), is_time=True)
    except RangeError:
        fix = "give 1500, @2024-01-31T12:00:00 or @-90m"
        raise CliError(
            Problem.ARGUMENT_VALUE, f"--since {text!r} is no offset and no time", fix
        ) from None


class Replicas:
    def __init__(self, state: ClusterState, timeout_s: float) -> None:
        self._addresses = {one.number: (one.host, one.port) for one in state.brokers}
        self._timeout_s = timeout_s
        self._connections: dict[int, BrokerConnection] = {}
        self._pool = ThreadPoolExecutor(max(1, len(self._addresses)))

    def ask(
        self, partition: PartitionState, start: int, end: int, max_bytes: int = PIECE_BYTES
    ) -> dict[int, ReplicaDigestResponse]:
        """All replicas' digests of a range, made in parallel. Raises :class:`NotAnswered`."""
        request = ReplicaDigestRequest(partition.topic, partition.index, start, end, max_bytes)
        asked = {n: self._pool.submit(self._ask_one, n, request) for n in partition.replicas}
        # Wait for all before one fails: no connection may stay in the middle of an answer.
        errors = [one.exception() for one in asked.values()]
        for error in errors:
            if error is not None:
                raise error
        return {number: one.result() for number, one in asked.items()}

    def _ask_one(self, number: int, request: ReplicaDigestRequest) -> ReplicaDigestResponse:
        if number not in self._addresses:
            raise NotAnswered(number, "not alive")
        try:
            connection = self._connections.get(number)
            if connection is None:
                connection = BrokerConnection(self._addresses[number], self._timeout_s)
                self._connections[number] = connection
            answer = connection.ask(REPLICA_DIGEST, 0, request)
        except OSError as error:
            broken = self._connections.pop(number, None)
            if broken is not None:
                broken.close()
            host, port = self._addresses[number]
            raise NotAnswered(number, f"{host}:{port}: {error}") from None
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            raise NotAnswered(number, code.name, code)
        return answer

    def close(self) -> None:
        self._pool.shutdown()
        for connection in self._connections.values():
            connection.close()

    def __enter__(self) -> Replicas:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def verify(
    connection: Connection, texts: Sequence[str], since: Since | None
) -> tuple[Listing, Exit]:
    """Compares the replicas of topics or partitions; of all if none is named.

    Raises :class:`CliError` if no broker can be asked, or the cluster is not pyrklog's.
    """
    if not is_plain(connection.settings):
        raise CliError(Problem.PLAIN_TEXT_ONLY, "this command reaches brokers over plain text only")
    refuse_others(connection.settings, "use Apache Kafka's kafka-replica-verification.sh")
    state = read_state(connection)
    chosen = _chosen(state, texts)
    starts = _starts(connection, chosen, since)
    with Replicas(state, connection.settings.timeout_s) as replicas:
        items = [
            verify_partition(replicas, one, starts.get((one.topic, one.index), 0)) for one in chosen
        ]
    listing = Listing(SCHEMA, COLUMNS, items, state.cluster_id)
    return listing, exit_of([item["status"] for item in items])


def exit_of(statuses: Sequence[str]) -> Exit:
    if DIFFERS in statuses:
        return Exit.DIFFERS
    if UNKNOWN not in statuses:
        return Exit.OK
    return Exit.PARTIAL if EQUAL in statuses else Exit.UNREACHABLE


def _chosen(state: ClusterState, texts: Sequence[str]) -> list[PartitionState]:
    wanted = parse_places(texts).topics
    topics: dict[str, set[int]] = {}
    for one in state.partitions:
        topics.setdefault(one.topic, set()).add(one.index)
    for name, indexes in wanted.items():
        if name not in topics:
            raise missing_topic(name, list(topics))
        for index in indexes:
            if index not in topics[name]:
                raise missing_partition(name, index, len(topics[name]))
    return [
        one
        for one in state.partitions
        if not wanted or (one.topic in wanted and one.index in (wanted[one.topic] or (one.index,)))
    ]


def _starts(
    connection: Connection, chosen: Sequence[PartitionState], since: Since | None
) -> Mapping[tuple[str, int], int]:
    """Offsets to start at; the log end if all records are older than ``since``."""
    places = [(one.topic, one.index) for one in chosen]
    if since is None:
        return {}
    if not since.is_time:
        return dict.fromkeys(places, since.value)
    from confluent_kafka.admin import OffsetSpec

    led = [(one.topic, one.index) for one in chosen if one.leader != NO_BROKER]
    found = query_offsets(connection, led, OffsetSpec.for_timestamp(since.value))
    nothing = [place for place, offset in found.items() if offset < 0]
    ends = query_offsets(connection, nothing, OffsetSpec.latest())
    return {**found, **ends}


def verify_partition(replicas: Replicas, partition: PartitionState, since: int) -> dict[str, Any]:
    """Compares the replicas from offset ``since`` on. Returns the row of :data:`COLUMNS`."""
    item: dict[str, Any] = {
        "topic": partition.topic,
        "partition": partition.index,
        "replicas": list(partition.replicas),
        "start_offset": None,
        "end_offset": None,
        "status": UNKNOWN,
        "first_difference": None,
        "differs": [],
        "damaged": [],
        "compacted_end": None,
        "batches": [],
        "reason": None,
    }
    for tries in range(TRIES_MAX):
        try:
            found = _compare(replicas, partition, since, item)
        except NotAnswered as error:
            item["reason"] = str(error)
            if error.code not in _FLEETING or tries + 1 == TRIES_MAX:
                return item
            time.sleep(RETRY_PAUSE_S)
        else:
            item["reason"] = None
            item["status"] = EQUAL if found is None else DIFFERS
            if found is not None:
                item["first_difference"] = found.offset
                item["differs"] = found.brokers
                item["damaged"] = found.damaged
                item["batches"] = [f"{n}: {one or 'none'}" for n, one in found.batches.items()]
            return item
    return item


def _compare(
    replicas: Replicas, partition: PartitionState, since: int, item: dict[str, Any]
) -> Difference | None:
    for _ in range(TRIES_MAX):
        found = _compare_once(replicas, partition, since, item)
        if found is None or found.damaged:
            return found
        # A replica that was compacted past there meanwhile may differ. Each further try starts
        # behind what is compacted.
        now = replicas.ask(partition, 0, 0)
        if found.offset >= max(one.compacted_end for one in now.values()):
            return found
    number = partition.leader
    raise NotAnswered(number, f"compacted during each of {TRIES_MAX} comparisons: ask later")


def _compare_once(
    replicas: Replicas, partition: PartitionState, since: int, item: dict[str, Any]
) -> Difference | None:
    bounds = replicas.ask(partition, 0, 0)
    start = max(since, *(one.log_start_offset for one in bounds.values()))
    end = min(one.high_watermark for one in bounds.values())
    item["start_offset"], item["end_offset"] = min(start, end), end
    equal_from = max(start, *(one.compacted_end for one in bounds.values()))
    item["compacted_end"] = equal_from if equal_from > start else None

    def ask(first: int, stop: int, max_bytes: int | None) -> dict[int, Digest]:
        found = replicas.ask(partition, first, stop, max_bytes or PIECE_BYTES)
        return {number: _digest(one) for number, one in found.items()}

    damage = first_damage(ask, start, min(equal_from, end))
    return damage or first_difference(ask, equal_from, end, partition.leader)


def _digest(answer: ReplicaDigestResponse) -> Digest:
    batches = [
        BatchDigest(one.base_offset, one.last_offset, one.leader_epoch, one.crc)
        for one in answer.first
    ]
    first = batches[0] if batches else None
    return Digest(answer.next_offset, answer.digest, answer.damaged_offset, first)
