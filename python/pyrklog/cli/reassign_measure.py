"""Reads what a plan is made of from a cluster: replicas, bytes, rates, racks, disks, minimums."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from pyrklog.balance.model import FILL_MAX, Broker, Cluster, LogDir, Partition, PartitionKey
from pyrklog.base.problems import Problem
from pyrklog.cli.cluster_requests import Address, ClusterRequests
from pyrklog.cli.cluster_views import read_plain_state
from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import CliError
from pyrklog.cli.in_parallel import in_parallel
from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.cli.topic_measures import group_offsets
from pyrklog.cli.write_rates import add_write_rates
from pyrklog.observability.health_rules import ClusterState, PartitionState
from pyrklog.protocol.log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from pyrklog.protocol.reassignments import OngoingPartitionReassignment

READ_MOST = 5
"""Readings of the metadata while reassignments begin or end."""
GROUPS_MAX = 1000
"""With more groups, what consumers read counts as nothing."""


@dataclass
class Measured:
    """``moving``: partitions of running reassignments, which count where they are going to.
    ``replica_bytes``: of each replica, by topic, partition and broker."""

    cluster: Cluster
    cluster_id: str | None
    addresses: Mapping[int, Address]
    moving: set[PartitionKey] = field(default_factory=set)
    replica_bytes: dict[tuple[str, int, int], int] = field(default_factory=dict)


def measure(
    connection: Connection,
    admin: ReassignmentAdmin,
    *,
    rates_of: Collection[str] | None = (),
    without_silent: bool = False,
    fill_max: float = FILL_MAX,
) -> Measured:
    """``rates_of``: topics whose rates are read; None: all. ``fill_max``: share of a volume that
    plans fill at most. Raises :class:`CliError` if a live
    broker does not tell its bytes, unless ``without_silent``."""
    state, moving = _consistent(connection, admin)
    addresses = {one.number: (one.host, one.port) for one in state.brokers}
    directories = _directories(connection, state, without_silent)
    sizes: dict[tuple[str, int, int], int] = {}
    for number, told in directories.items():
        for directory in told.results:
            for topic in directory.topics:
                for one in topic.partitions:
                    if not one.is_future_key:
                        sizes[topic.name, one.partition_index, number] = one.partition_size
    largest: dict[PartitionKey, int] = {}
    for (topic_name, index, _), size in sizes.items():
        largest[topic_name, index] = max(size, largest.get((topic_name, index), 0))
    partitions = {}
    for one_state in state.partitions:
        key = one_state.topic, one_state.index
        removing = moving[key].removing_replicas if key in moving else ()
        partitions[key] = _partition(one_state, removing, largest.get(key, 0))
    if rates_of is None or rates_of:
        _add_rates(connection, addresses, partitions, rates_of)
    arriving: dict[int, list[int]] = {}
    for key, move in moving.items():
        for number in move.adding_replicas:
            lacks = largest.get(key, 0) - sizes.get((*key, number), 0)
            arriving.setdefault(number, []).append(max(0, lacks))
    brokers = {
        one.number: Broker(
            one.number,
            one.rack or None,
            _log_dirs(directories.get(one.number)),
            arriving.get(one.number, ()),
            one.number in directories,
        )
        for one in state.brokers
    }
    cluster = Cluster(brokers, partitions, fill_max)
    return Measured(cluster, state.cluster_id, addresses, set(moving), sizes)


def _consistent(
    connection: Connection, admin: ReassignmentAdmin
) -> tuple[ClusterState, Mapping[PartitionKey, OngoingPartitionReassignment]]:
    """Metadata, and the moves that were under way before and after it was read. A move that ends in
    between would leave replicas that go among those that stay."""
    moving = admin.moving()
    for _ in range(READ_MOST):
        state = read_plain_state(connection.settings, lambda _: True)
        after = admin.moving()
        if after.keys() == moving.keys():
            break
        moving = after
    return state, moving


def _partition(one: PartitionState, removing: Collection[int], size: int) -> Partition:
    replicas = tuple(number for number in one.replicas if number not in removing)
    return Partition(
        replicas, size, leader=one.leader, isr=tuple(one.isr), min_insync=one.min_insync
    )


def _directories(
    connection: Connection, state: ClusterState, without_silent: bool
) -> dict[int, DescribeLogDirsResponse]:
    """What each live broker tells of its log directories."""

    def ask(number: int) -> DescribeLogDirsResponse | CliError:
        settings = connection.settings
        if without_silent:
            settings = replace(settings, timeout_s=min(settings.timeout_s, 3.0))
        broker = next(one for one in state.brokers if one.number == number)
        if not broker.answers and without_silent:
            return CliError(Problem.BROKER_AWAY, f"broker {number} does not answer")
        with ClusterRequests(settings) as requests:
            try:
                return requests.ask(
                    (broker.host, broker.port), DESCRIBE_LOG_DIRS, DescribeLogDirsRequest()
                )
            except CliError as error:
                return error

    numbers = [one.number for one in state.brokers]
    found = {}
    for number, told in zip(numbers, in_parallel(ask, numbers), strict=True):
        if isinstance(told, CliError):
            if without_silent:
                continue
            what = f"broker {number} does not tell its bytes: {told.what}"
            raise CliError(told.problem, what, told.fix)
        found[number] = told
    return found


def _log_dirs(told: DescribeLogDirsResponse | None) -> tuple[LogDir, ...]:
    found = []
    for one in told.results if told is not None else ():
        if one.error_code:
            continue
        used = sum(
            partition.partition_size for topic in one.topics for partition in topic.partitions
        )
        is_known = one.total_bytes >= 0 and one.usable_bytes >= 0
        total, free = (one.total_bytes, one.usable_bytes) if is_known else (None, None)
        found.append(LogDir(one.log_dir, used, total, free))
    return tuple(found)


def _add_rates(
    connection: Connection,
    addresses: Mapping[int, Address],
    partitions: dict[PartitionKey, Partition],
    topics: Collection[str] | None,
) -> None:
    wanted = {key for key in partitions if topics is None or key[0] in topics}
    firsts = add_write_rates(connection, addresses, partitions, wanted)
    groups = group_offsets(connection, addresses, most=GROUPS_MAX) or {}
    readers: dict[PartitionKey, int] = {}
    for offsets in groups.values():
        for key, offset in offsets.items():
            if key in firsts and offset >= firsts[key]:
                readers[key] = readers.get(key, 0) + 1
    for key, count in readers.items():
        one = partitions[key]
        partitions[key] = replace(one, rate_out=one.rate_in * count)
