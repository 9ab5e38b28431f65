"""What a broker or cluster holds, as its clients see it: the manifest of a fixture.

Of the formats on the disk this module knows nothing. Lists of text, so that a difference is read in
a line: ``OFFSET TIME KEY VALUE HEADERS``.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from pyrklog.errors import ErrorCode
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from pyrklog.protocol.group_admin import LIST_GROUPS, ListGroupsRequest
from pyrklog.protocol.telemetry import (
    LIST_CLIENT_METRICS_RESOURCES,
    ListClientMetricsResourcesRequest,
)
from pyrklog.protocol.transaction_admin import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from tests.support import wire
from tests.support.clients import TIMEOUT_S
from tests.support.cluster_clients import watermarks
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

TOPIC, BROKER, CLIENT_METRICS = 2, 4, 16
_DEFAULT, _STATIC = 5, 4
_OFFSET_FOR_LEADER_EPOCH = 23
_SHOWN_BYTES = 40

ISOLATIONS = ("read_uncommitted", "read_committed")

Seen = dict[str, Any]
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
Place = tuple[str, int]


def observe(bootstrap: str) -> Seen:
    """Asks every broker of the list what only it knows."""
    places = bootstrap.split(",")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait_until(lambda: _is_settled(admin), "a replica is missing")
    names = sorted(name for name in admin.list_topics(timeout=TIMEOUT_S).topics if name[0] != "_")
    return {
        "topics": wait_until(lambda: _topics(bootstrap, admin, names), "leaders move all the time"),
        "options": dict(_options(places[0], admin, names)),
        **observe_coordinators(bootstrap),
    }


def observe_coordinators(bootstrap: str) -> Seen:
    """Groups and transactions, of the coordinators that have loaded theirs."""
    places = bootstrap.split(",")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return {"groups": dict(_groups(places, admin)), "transactions": dict(_transactions(places))}


def _is_settled(admin: AdminClient) -> bool:
    """Everything is led and replicated, as it is soon after a start."""
    topics = admin.list_topics(timeout=TIMEOUT_S).topics.values()
    partitions = [one for topic in topics for one in topic.partitions.values()]
    return all(one.leader >= 0 and set(one.isrs) == set(one.replicas) for one in partitions)


# --- topics --------------------------------------------------------------------------------------


class _LeaderMovedError(Exception):
    """As after a start, when leadership goes back to the first replicas."""


def _topics(bootstrap: str, admin: AdminClient, names: list[str]) -> Seen | None:
    """None if a leader moved meanwhile."""
    try:
        return _topics_now(bootstrap, admin, names)
    except _LeaderMovedError:
        return None


def _topics_now(bootstrap: str, admin: AdminClient, names: list[str]) -> Seen:
    told = admin.describe_topics(TopicCollection(names))
    found = {name: told[name].result(TIMEOUT_S) for name in names}
    places = [(name, one.id) for name, topic in found.items() for one in topic.partitions]
    everything, committed = (read(bootstrap, places, isolation) for isolation in ISOLATIONS)
    return {
        name: {
            "id": str(topic.topic_id),
            "partitions": {
                str(one.id): {
                    "replicas": [replica.id for replica in one.replicas],
                    "start": everything[name, one.id].start,
                    "end": everything[name, one.id].end,
                    "stable": committed[name, one.id].end,
                    "records": everything[name, one.id].records,
                    "committed": [int(line.split()[0]) for line in committed[name, one.id].records],
                    **_of_leader(f"{one.leader.host}:{one.leader.port}", name, one.id),
                }
                for one in sorted(topic.partitions, key=lambda one: int(one.id))
            },
        }
        for name, topic in found.items()
    }


class Log(NamedTuple):
    """``end``: where readers of this isolation end; a line for each record."""

    start: int
    end: int
    records: list[str]


def read(bootstrap: str, places: Sequence[Place], isolation: str) -> dict[Place, Log]:
    """All that such a reader can see of these partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "enable.metrics.push": False,
            "isolation.level": isolation,
            "check.crcs": True,
        }
    )
    try:
        found = {}
        for place in places:
            start, end = watermarks(consumer, TopicPartition(*place), TIMEOUT_S)
            found[place] = Log(start, end, [])
        consumer.assign([TopicPartition(*place, found[place].start) for place in places])
        left = set(places)
        while left:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"no end of {left}"
            place = message.topic(), message.partition()
            error = message.error()
            if error is None:
                found[place].records.append(_line(message))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                # A new leader may tell of an earlier end for a moment.
                if message.offset() >= found[place].end:
                    left.discard(place)
        return found
    finally:
        consumer.close()


def _line(message: Any) -> str:
    parts = [message.offset(), message.timestamp()[1], _shown(message.key())]
    headers = [f"{name}={_shown(content)}" for name, content in message.headers() or ()]
    return " ".join(map(str, [*parts, _shown(message.value()), *headers]))


def _shown(content: bytes | None) -> str:
    if content is None:
        return "null"
    if len(content) > _SHOWN_BYTES:
        return f"{len(content)}:{hashlib.sha256(content).hexdigest()[:16]}"
    return ascii(content.decode("latin-1")).replace(" ", "\\x20")


def _of_leader(leader: str, topic: str, partition: int) -> Seen:
    return {
        "epochs": _epochs(leader, topic, partition),
        "producers": _producers(leader, topic, partition),
    }


def _epochs(leader: str, topic: str, partition: int) -> dict[str, int]:
    """Leader epoch -> its end offset. The last one has no end yet: its log end."""
    found: dict[str, int] = {}
    epoch = 0
    with wire.Connection(leader) as connection:
        while True:
            body = struct.pack(">i", -1)
            asked = wire.array([struct.pack(">iii", partition, -1, epoch)])
            body += wire.array([wire.string(topic) + asked])
            told = wire.Reader(connection.request(_OFFSET_FOR_LEADER_EPOCH, 3, body))
            told.take(4)  # throttle time
            assert told.number("i") == 1
            assert told.string() == topic
            assert told.number("i") == 1
            error, _, of_epoch, end = (told.number(code) for code in "hiiq")
            _check(error, topic, partition)
            if of_epoch < 0:
                return found
            found[str(of_epoch)] = end
            epoch += 1


def _check(error: int, topic: str, partition: int) -> None:
    if error in _MOVED:
        raise _LeaderMovedError
    assert error == 0, (topic, partition, error)


def _producers(leader: str, topic: str, partition: int) -> list[str]:
    """``ID EPOCH LAST_SEQUENCE START``; START is an open transaction's, or -1."""
    asked = DescribeProducersRequest([DescribeProducersTopic(topic, [partition])])
    with RawClient(leader) as raw:
        [[told]] = [one.partitions for one in raw.ask(DESCRIBE_PRODUCERS, 0, asked).topics]
    _check(told.error_code, topic, partition)
    return sorted(
        f"{one.producer_id} {one.producer_epoch} {one.last_sequence} {one.current_txn_start_offset}"
        for one in told.active_producers
    )


# --- the rest ------------------------------------------------------------------------------------


def _options(place: str, admin: AdminClient, names: list[str]) -> Iterator[tuple[str, Seen]]:
    """What was given to topics, brokers and subscriptions, not to the process."""
    with RawClient(place) as raw:
        listed = raw.ask(LIST_CLIENT_METRICS_RESOURCES, 0, ListClientMetricsResourcesRequest())
    subscriptions = sorted(one.name for one in listed.client_metrics_resources)
    for name in names:
        yield f"topic {name}", _given(place, TOPIC, name)
    yield "broker default", _given(place, BROKER, "")
    brokers = admin.list_topics(timeout=TIMEOUT_S).brokers
    for number, one in sorted(brokers.items()):
        yield f"broker {number}", _given(f"{one.host}:{one.port}", BROKER, str(number))
    for name in subscriptions:
        yield f"client-metrics {name}", _given(place, CLIENT_METRICS, name)


def _given(place: str, kind: int, name: str) -> dict[str, str]:
    with RawClient(place) as raw:
        asked = DescribeConfigsRequest([DescribeConfigsResource(kind, name)])
        [told] = raw.ask(DESCRIBE_CONFIGS, 1, asked).results
    assert told.error_code == 0, told
    given = [one for one in told.configs if one.config_source not in (_DEFAULT, _STATIC)]
    return {one.name: one.value for one in given}


def _groups(places: list[str], admin: AdminClient) -> Iterator[tuple[str, Seen]]:
    """Committed offsets as ``TOPIC PARTITION OFFSET NOTE``."""
    for place in places:
        with RawClient(place) as raw:
            listed = raw.ask(LIST_GROUPS, 4, ListGroupsRequest()).groups
        for one in sorted(listed, key=lambda one: str(one.group_id)):
            asked = [ConsumerGroupTopicPartitions(one.group_id)]
            told = admin.list_consumer_group_offsets(asked)[one.group_id].result(TIMEOUT_S)
            committed = [
                f"{at.topic} {at.partition} {at.offset} {at.metadata or ''}".rstrip()
                for at in told.topic_partitions
            ]
            state = {"state": one.group_state, "protocol": one.protocol_type}
            yield one.group_id, {**state, "committed": sorted(committed)}


def _transactions(places: list[str]) -> Iterator[tuple[str, str]]:
    """Transactional id -> ``STATE PRODUCER EPOCH TIME_OUT PLACES``."""
    for place in places:
        with RawClient(place) as raw:
            listed = raw.ask(LIST_TRANSACTIONS, 0, ListTransactionsRequest())
            names = [one.transactional_id for one in listed.transaction_states]
            told = raw.ask(DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(names))
        for one in told.transaction_states:
            assert one.error_code == 0
            reached = [f"{topic.topic}-{at}" for topic in one.topics for at in topic.partitions]
            words = [one.transaction_state, one.producer_id, one.producer_epoch]
            words += [one.transaction_timeout_ms, *sorted(reached)]
            yield one.transactional_id, " ".join(map(str, words))
