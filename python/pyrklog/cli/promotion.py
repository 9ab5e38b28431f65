"""Early promotion (``docs/understanding/expansion.md``, section 7): new replicas become whole at
once, because what they lack is deleted everywhere. Only where nobody is known to need it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.expansion import Backlog, log_starts, policies
from pyrklog.cli.failures import CliError
from pyrklog.cli.group_state import committed_offsets, list_groups
from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.cli.topic_trim import Trim, apply
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

WINDOW = "pyrklog.expansion.window.ms"
LOWEST_CONSUMED = -20_012
"""As a timestamp, ours: the lowest offset that consumers fetched from a replica in the window."""
IDLE_STATES = ("Empty", "Dead")
_ANY_REPLICA = -2
_OFFSETS_VERSION = _CONFIGS_VERSION = 1
_BROKER = 4
_DELETE = frozenset({"delete"})


class Promotion(NamedTuple):
    """A partition's log is to begin at ``start``, where its newest partial replica does."""

    key: PartitionKey
    leader_start: int
    start: int

    @property
    def records(self) -> int:
        """Offsets that go."""
        return self.start - self.leader_start


class Commits(NamedTuple):
    """Of a group. ``is_idle``: nobody is in it."""

    is_idle: bool
    offsets: Mapping[PartitionKey, int]


class Reader(NamedTuple):
    """A replica that consumers may read from: the lowest offset that they fetched within the window
    of its broker. ``why``: nothing is known of it."""

    broker: int
    lowest: int | None
    window_ms: int = 0
    why: str = ""


def wanted(backlogs: Mapping[PartitionKey, Sequence[Backlog]]) -> list[Promotion]:
    """What makes the partial replicas of these partitions whole."""
    found = []
    for key, lacks in sorted(backlogs.items()):
        partial = [one for one in lacks if one.is_partial]
        starts = [one.start for one in partial if one.start is not None]
        leader_start = partial[0].leader_start if partial else None
        if starts and leader_start is not None:
            found.append(Promotion(key, leader_start, max(starts)))
    return found


def objections(
    one: Promotion,
    policy: Collection[str] | None,
    groups: Mapping[str, Commits],
    readers: Iterable[Reader],
    passed_over: Collection[str] = (),
) -> list[str]:
    """Why a partition is not promoted. ``passed_over``: groups that nobody needs any more."""
    found = []
    if policy is None or frozenset(policy) != _DELETE:
        told = ",".join(sorted(policy)) if policy else "unknown"
        found.append(f"its cleanup.policy is {told}, not delete")
    for name, group in sorted(groups.items()):
        committed = group.offsets.get(one.key)
        if committed is None or committed >= one.start:
            continue
        if name in passed_over and group.is_idle:
            continue
        fix = f"; nobody is in it: --without-group {name} passes over it" if group.is_idle else ""
        below = f"{one.start - committed} below {one.start}"
        found.append(f"group {name} has committed {committed}, {below}{fix}")
    for reader in readers:
        if reader.lowest is None:
            found.append(f"broker {reader.broker} {reader.why}")
        elif reader.lowest < one.start:
            below = f"{one.start - reader.lowest} below {one.start}"
            window = f"{reader.window_ms / 1000:g} s"
            fetched = f"a consumer has fetched {reader.lowest} from broker {reader.broker}"
            told = f"{fetched} within the last {window}, {below}"
            found.append(f"{told}; it counts for {window} at most, if none fetches there again")
    return found


def delete(
    connection: Connection, admin: ReassignmentAdmin, promoted: Sequence[Promotion]
) -> list[tuple[Promotion, CliError | None]]:
    """Deletes the records; returns why it failed. A new replica that is whole may lead before the
    former leader has answered, which then does not know what has become of it."""
    trims = [Trim(one.key, one.leader_start, one.start, one.start) for one in promoted]
    _, results = apply(connection, trims)
    errors = {one.key: error for one, (_, error) in zip(promoted, results, strict=True)}
    leaders = admin.leaders()
    asked: dict[int, list[PartitionKey]] = {}
    for key, error in errors.items():
        if error is not None:
            asked.setdefault(leaders.get(key, -1), []).append(key)
    starts = {key: start for (key, _), start in log_starts(admin, asked).items()}
    return [
        (one, None if starts.get(one.key, -1) >= one.start else errors[one.key]) for one in promoted
    ]


class Findings:
    """What brokers tell of the partitions."""

    def __init__(
        self, connection: Connection, admin: ReassignmentAdmin, keys: Collection[PartitionKey]
    ) -> None:
        # Fetches first: a commit that is asked for afterwards is not of before the window.
        self._readers = _readers(connection, admin, keys)
        self._policies = policies(admin, {topic for topic, _ in keys})
        self._groups = _groups(connection, keys)

    def objections(self, one: Promotion, passed_over: Collection[str]) -> list[str]:
        policy = self._policies.get(one.key[0])
        return objections(one, policy, self._groups, self._readers[one.key], passed_over)


def _groups(connection: Connection, keys: Collection[PartitionKey]) -> dict[str, Commits]:
    found = {}
    for group in list_groups(connection):
        offsets = {
            key: offset
            for key, (offset, _) in committed_offsets(connection, group["name"], keys).items()
            if offset >= 0
        }
        if offsets:
            found[group["name"]] = Commits(group["state"] in IDLE_STATES, offsets)
    return found


def _readers(
    connection: Connection, admin: ReassignmentAdmin, keys: Collection[PartitionKey]
) -> dict[PartitionKey, list[Reader]]:
    """The leader's and the followers' that are in sync, since consumers read from these."""
    topics = connection.metadata().topics
    members = {key: tuple(topics[key[0]].partitions[key[1]].isrs) for key in keys}
    asked: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
    for (topic, index), brokers in sorted(members.items()):
        for broker in brokers:
            partition = ListOffsetsPartition(index, timestamp=LOWEST_CONSUMED)
            asked.setdefault(broker, {}).setdefault(topic, []).append(partition)
    requests = {
        broker: ListOffsetsRequest(
            _ANY_REPLICA, topics=[ListOffsetsTopic(*each) for each in of_topics.items()]
        )
        for broker, of_topics in asked.items()
    }
    told = {
        (broker, answered.name, one.partition_index): (one.error_code, one.offset)
        for broker, answer in admin.ask_each(LIST_OFFSETS, _OFFSETS_VERSION, requests).items()
        for answered in answer.topics
        for one in answered.partitions
    }
    windows = _windows(admin, asked)
    return {
        key: [_reader(broker, told.get((broker, *key)), windows.get(broker)) for broker in brokers]
        for key, brokers in members.items()
    }


def _reader(broker: int, told: tuple[int, int] | None, window_ms: int | None) -> Reader:
    if told is None or window_ms is None:
        return Reader(broker, None, why="does not tell where consumers read")
    code, offset = told
    if code == ErrorCode.OFFSET_NOT_AVAILABLE:
        window = f"{window_ms / 1000:g} s"
        why = f"has not looked at consumers for {window} yet; that takes {window} more at most"
        return Reader(broker, None, window_ms, why)
    if code:
        why = f"does not tell where consumers read: {ErrorCode(code).name}"
        return Reader(broker, None, window_ms, why)
    return Reader(broker, offset, window_ms)


def _windows(admin: ReassignmentAdmin, brokers: Collection[int]) -> dict[int, int]:
    requests = {
        broker: DescribeConfigsRequest([DescribeConfigsResource(_BROKER, str(broker), [WINDOW])])
        for broker in brokers
    }
    return {
        broker: int(option.value)
        for broker, told in admin.ask_each(DESCRIBE_CONFIGS, _CONFIGS_VERSION, requests).items()
        for resource in told.results
        for option in resource.configs
        if option.name == WINDOW and option.value is not None
    }
