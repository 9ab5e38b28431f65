"""What brokers tell of topics: partitions, bytes, offsets, the last minute's records, groups.

Over plain text each is one of our own requests, since librdkafka alone takes longer to load than a
list may take; otherwise librdkafka asks, which tells no bytes. Everything but the partitions is
told as far as it is known: a broker that does not answer holds up no list.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pyrklog.cli.cluster_requests import Address, ClusterRequests
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import CliError
from pyrklog.cli.in_parallel import in_parallel
from pyrklog.cli.replica_sizes import replica_bytes
from pyrklog.observability.health_rules import is_under_replicated
from pyrklog.protocol.list_offsets import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pyrklog.protocol.metadata import MetadataResponse
from pyrklog.protocol.reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
)

ANSWER_S = 3.0
"""Longest wait for a broker's numbers."""
RATE_WINDOW_S = 60
GROUPS_AT_ONCE = 100
_FETCHES_SEVERAL = 8
"""The first version of OffsetFetch for several groups (KIP-709)."""

GroupOffsets = Mapping[str, Mapping[PartitionKey, int]]
"""Committed offsets by group."""


class PartitionPlace(NamedTuple):
    """``leader`` -1: none. ``leader_epoch`` None: unknown. ``adding``: replicas that a running
    reassignment adds, where that is known."""

    partition: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    leader_epoch: int | None = None
    adding: Sequence[int] = ()

    @property
    def is_under_replicated(self) -> bool:
        return is_under_replicated(self.replicas, self.isr, self.adding)


@dataclass(frozen=True)
class TopicStates:
    """``topics``: partitions by number; none of a topic that the user may not see."""

    cluster_id: str | None
    brokers: Mapping[int, Address]
    topics: Mapping[str, Sequence[PartitionPlace]]

    def led(self, topics: Iterable[str]) -> dict[PartitionKey, int]:
        """The leader of each partition that has one."""
        return {
            (name, one.partition): one.leader
            for name in topics
            for one in self.topics[name]
            if one.leader >= 0
        }


@dataclass
class Sizes:
    """``partitions``: bytes of each one's largest replica. ``silent``: brokers that do not tell."""

    partitions: dict[PartitionKey, int] = field(default_factory=dict)
    silent: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Rate:
    """Of a partition: records a second, and all records of its log (at most)."""

    records_per_s: float
    records: int

    def bytes_per_s(self, size: int) -> float:
        """If records are about equally long. ``size``: the log's bytes."""
        return self.records_per_s * size / self.records if self.records > 0 else 0.0


def is_plain(connection: Connection) -> bool:
    return connection.settings.security_protocol == "plaintext"


def read_topics(connection: Connection) -> TopicStates:
    """All topics, by name. Raises :class:`CliError`."""
    if not is_plain(connection):
        return _by_librdkafka(connection)
    connection.check_properties()
    with ClusterRequests(connection.settings) as requests:
        told = requests.metadata()
        adding = _adding(requests, told)
    topics = {
        topic.name: [
            PartitionPlace(
                one.partition_index,
                one.leader_id,
                one.replica_nodes,
                one.isr_nodes,
                one.leader_epoch,
                adding.get((topic.name, one.partition_index), ()),
            )
            for one in sorted(topic.partitions, key=lambda one: one.partition_index)
        ]
        for topic in sorted(told.topics, key=lambda topic: topic.name)
    }
    brokers = {one.node_id: (one.host, one.port) for one in told.brokers}
    return TopicStates(told.cluster_id, brokers, topics)


def _adding(requests: ClusterRequests, told: MetadataResponse) -> dict[PartitionKey, list[int]]:
    """Replicas that are being added to partitions, if some are not whole."""
    controller = [one for one in told.brokers if one.node_id == told.controller_id]
    partitions = [one for topic in told.topics for one in topic.partitions]
    if not controller or all(len(one.isr_nodes) >= len(one.replica_nodes) for one in partitions):
        return {}
    request = ListPartitionReassignmentsRequest(round(ANSWER_S * 1000))
    address = (controller[0].host, controller[0].port)
    try:
        found = requests.ask(address, LIST_PARTITION_REASSIGNMENTS, request)
    except CliError:
        return {}  # Kafka before 2.4 has no such request
    return {
        (topic.name, one.partition_index): one.adding_replicas
        for topic in found.topics
        for one in topic.partitions
    }


def _by_librdkafka(connection: Connection) -> TopicStates:
    metadata = connection.metadata()
    topics = {
        name: [
            PartitionPlace(one.id, one.leader, list(one.replicas), list(one.isrs))
            for one in sorted(topic.partitions.values(), key=lambda one: one.id)
        ]
        for name, topic in sorted(metadata.topics.items())
    }
    brokers = {number: (one.host, one.port) for number, one in metadata.brokers.items()}
    return TopicStates(metadata.cluster_id, brokers, topics)


def _requests(connection: Connection) -> ClusterRequests:
    timeout_s = min(ANSWER_S, connection.settings.timeout_s)
    return ClusterRequests(replace(connection.settings, timeout_s=timeout_s))


def sizes(
    connection: Connection, states: TopicStates, topics: Sequence[str] | None = None
) -> Sizes | None:
    """Bytes of these topics' partitions (None: of all); None over TLS or with authentication."""
    if not is_plain(connection):
        return None
    wanted = None
    if topics is not None:
        wanted = {name: [one.partition for one in states.topics[name]] for name in topics}
    with _requests(connection) as requests:
        found, silent = replica_bytes(requests, states.brokers, wanted)
    told = Sizes(silent=silent)
    for (topic, partition, _), size in found.items():
        key = (topic, partition)
        told.partitions[key] = max(size, told.partitions.get(key, 0))
    return told


def offsets_at(
    connection: Connection, states: TopicStates, leaders: Mapping[PartitionKey, int], at: int
) -> dict[PartitionKey, int]:
    """The first offset at or after a time in milliseconds (-1 for none), or at ``EARLIEST`` or
    ``LATEST``, in the partitions whose leaders tell it now."""
    if not leaders:
        return {}
    if not is_plain(connection):
        return _offsets_by_librdkafka(connection, leaders, at)
    wanted: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
    for (topic, partition), leader in leaders.items():
        asked = ListOffsetsPartition(partition, timestamp=at)
        wanted.setdefault(leader, {}).setdefault(topic, []).append(asked)
    found: dict[PartitionKey, int] = {}
    with _requests(connection) as requests:
        for leader, topics in wanted.items():
            if leader not in states.brokers:
                continue
            request = ListOffsetsRequest(
                topics=[ListOffsetsTopic(name, some) for name, some in topics.items()]
            )
            try:
                told = requests.ask(states.brokers[leader], LIST_OFFSETS, request)
            except CliError:
                continue
            for answered in told.topics:
                for one in answered.partitions:
                    if one.error_code == 0:
                        found[answered.name, one.partition_index] = one.offset
    return found


def _offsets_by_librdkafka(
    connection: Connection, keys: Iterable[PartitionKey], at: int
) -> dict[PartitionKey, int]:
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    words = {LATEST: OffsetSpec.latest, EARLIEST: OffsetSpec.earliest}
    spec = words[at]() if at in words else OffsetSpec.for_timestamp(at)
    futures = connection.admin.list_offsets(
        {TopicPartition(*key): spec for key in keys}, request_timeout=connection.settings.timeout_s
    )
    found: dict[PartitionKey, int] = {}
    for place, future in futures.items():
        try:
            found[place.topic, place.partition] = future.result().offset
        except KafkaException:
            continue  # its leader moves, or is away
    return found


def rates(
    connection: Connection, states: TopicStates, leaders: Mapping[PartitionKey, int]
) -> dict[PartitionKey, Rate]:
    """Records a second that the last minute brought, by their timestamps."""
    since_ms = time.time_ns() // 1_000_000 - RATE_WINDOW_S * 1000
    firsts, starts, ends = in_parallel(
        lambda at: offsets_at(connection, states, leaders, at), [since_ms, EARLIEST, LATEST]
    )
    return {
        key: Rate(
            max(0, ends[key] - firsts[key]) / RATE_WINDOW_S if firsts[key] >= 0 else 0.0,
            max(0, ends[key] - starts[key]),
        )
        for key in leaders
        if key in firsts and key in starts and key in ends
    }


def group_offsets(
    connection: Connection, brokers: Mapping[int, Address], *, most: int | None = None
) -> GroupOffsets | None:
    """Of all groups; None if there are more than ``most``."""
    if is_plain(connection):
        with _requests(connection) as requests:
            return _asked(requests, brokers, most)
    from pyrklog.cli.group_state import all_partitions, committed_offsets, list_groups

    names = [one["name"] for one in list_groups(connection)]
    if most is not None and len(names) > most:
        return None
    there = all_partitions(connection)
    told = in_parallel(lambda name: committed_offsets(connection, name, there), names)
    return {
        name: {key: offset for key, (offset, _) in offsets.items()}
        for name, offsets in zip(names, told, strict=True)
    }


def _asked(
    requests: ClusterRequests, brokers: Mapping[int, Address], most: int | None
) -> GroupOffsets | None:
    """Each broker lists the groups that it coordinates, and has their offsets."""
    from pyrklog.protocol.group_admin import LIST_GROUPS, ListGroupsRequest

    listed: dict[Address, list[str]] = {}
    for _, address in sorted(brokers.items()):
        try:
            told = requests.ask(address, LIST_GROUPS, ListGroupsRequest())
        except CliError:
            continue
        listed[address] = [one.group_id for one in told.groups]
    if most is not None and sum(map(len, listed.values())) > most:
        return None
    found: dict[str, dict[PartitionKey, int]] = {}
    for address, names in listed.items():
        try:
            found.update(_committed(requests, address, names))
        except CliError:
            continue
    return found


def _committed(
    requests: ClusterRequests, address: Address, names: Sequence[str]
) -> dict[str, dict[PartitionKey, int]]:
    from pyrklog.protocol.offsets import (
        OFFSET_FETCH,
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
    )

    if not names:
        return {}
    found: dict[str, dict[PartitionKey, int]] = {}
    if requests.version(address, OFFSET_FETCH) < _FETCHES_SEVERAL:
        for name in names:
            single = requests.ask(address, OFFSET_FETCH, OffsetFetchRequest(name, topics=None))
            found[name] = _flat(single.topics)
        return found
    for first in range(0, len(names), GROUPS_AT_ONCE):
        some = names[first : first + GROUPS_AT_ONCE]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name) for name in some])
        for group in requests.ask(address, OFFSET_FETCH, request).groups:
            found[group.group_id] = _flat(group.topics)
    return found


def _flat(topics: Iterable[Any]) -> dict[PartitionKey, int]:
    return {
        (topic.name, one.partition_index): one.committed_offset
        for topic in topics
        for one in topic.partitions
        if one.error_code == 0 and one.committed_offset >= 0
    }
