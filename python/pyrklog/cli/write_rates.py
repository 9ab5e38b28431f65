"""What producers write to partitions, without a read from any disk where brokers are pyrklog's.

Records: pyrklog's leaders tell where their logs ended a minute ago (PartitionOffsets, ``lag.md``);
others are asked by the records' timestamps, for which they read their logs, and by the clock of
this machine. Bytes: two looks at sizes and log ends, a few seconds apart, tell how long records are
now. Leaders are asked side by side, so that many partitions, or a silent broker, hold up little.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from pyrklog.balance.model import Partition, PartitionKey
from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.cli.broker_healths import is_ours
from pyrklog.cli.cluster_requests import Address, ClusterRequests
from pyrklog.cli.connection import Connection
from pyrklog.cli.in_parallel import in_parallel
from pyrklog.cli.replica_sizes import replica_bytes
from pyrklog.cli.topic_measures import ANSWER_S, RATE_WINDOW_S, TopicStates, offsets_at
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.lag import (
    OFFSETS_MAX,
    PARTITION_OFFSETS,
    PartitionOffsetsPartition,
    PartitionOffsetsRequest,
    PartitionOffsetsResponse,
    PartitionOffsetsTopic,
)
from pyrklog.protocol.list_offsets import EARLIEST, LATEST

GOING_ON_S = 10
"""What the last seconds brought is what goes on: a load may have ended within the minute."""
LOOKS_APART_S = 2.0
"""Between two looks at sizes."""
HISTORY_LEAST_MS = 5_000
"""A shorter history tells less than the two looks."""
_RETRY_PAUSE_S = 0.2

Led = Mapping[PartitionKey, int]
ByLeader = Mapping[int, Sequence[PartitionKey]]


class _Cluster(NamedTuple):
    """``window_s``: over which rates count."""

    connection: Connection
    addresses: Mapping[int, Address]
    window_s: int


class Look(NamedTuple):
    """Of a leader's log at one moment."""

    at_s: float
    start: int
    end: int
    bytes: int


@dataclass
class Growth:
    """What a log has grown by. ``records_per_s`` None: unknown. ``first``: the first offset of the
    window."""

    start: int
    end: int
    records_per_s: float | None = None
    first: int | None = None

    @property
    def is_growing(self) -> bool:
        """As far as is known."""
        return self.records_per_s != 0.0


def add_write_rates(
    connection: Connection,
    addresses: Mapping[int, Address],
    partitions: dict[PartitionKey, Partition],
    wanted: Collection[PartitionKey],
    window_s: int = RATE_WINDOW_S,
) -> dict[PartitionKey, int]:
    """Adds what the last seconds brought. Returns their first offset, of partitions that were
    written to."""
    asked = _Cluster(connection, addresses, window_s)
    led = {
        key: partitions[key].leader_now
        for key in wanted
        if partitions[key].is_led and partitions[key].leader_now in addresses
    }
    growths = _growths(asked, led)
    # One that has not grown is not waited for.
    growing = _by_leader({key: led[key] for key, one in growths.items() if one.is_growing})
    before = _looks(connection, addresses, growing)
    if before:
        time.sleep(LOOKS_APART_S)
    after = _looks(connection, addresses, growing) if before else {}
    found = {}
    for key in (key for keys in growing.values() for key in keys):
        looks = before.get(key), after.get(key)
        rates = rates_of(growths[key], *looks, partitions[key].size_bytes, window_s)
        if rates is None:
            continue
        found[key], rate_in = rates
        partitions[key] = replace(partitions[key], rate_in=rate_in)
    return found


def rates_of(
    growth: Growth,
    before: Look | None,
    after: Look | None,
    size_bytes: int,
    window_s: int = RATE_WINDOW_S,
) -> tuple[int, float] | None:
    """The window's first offset, and bytes a second; None: nothing is written, as far as is known.

    The mean size of a record is that between the looks; where they tell none, as nothing came or
    retention deleted, that of the whole log.
    """
    records_per_s, bytes_each = growth.records_per_s, None
    if before is not None and after is not None and after.start == before.start:
        records = after.end - before.end
        if records > 0 and after.bytes > before.bytes:
            bytes_each = (after.bytes - before.bytes) / records
        if records_per_s is None:
            records_per_s = max(0, records) / max(0.001, after.at_s - before.at_s)
    if not records_per_s:
        return None
    if bytes_each is None:
        count = growth.end - growth.start
        bytes_each = size_bytes / count if count > 0 else 0.0
    first = growth.first
    if first is None:
        first = growth.end - round(records_per_s * window_s)
    return max(first, growth.start), records_per_s * bytes_each


def _by_leader(led: Led) -> dict[int, list[PartitionKey]]:
    found: dict[int, list[PartitionKey]] = {}
    for key, leader in sorted(led.items()):
        found.setdefault(leader, []).append(key)
    return found


def _growths(asked: _Cluster, led: Led) -> dict[PartitionKey, Growth]:
    """Of partitions whose leaders answer."""
    by_leader = _by_leader(led)
    leaders = list(by_leader)

    def ask(broker: int) -> dict[PartitionKey, Growth] | None:
        return _of_ours(asked, broker, by_leader[broker])

    told = dict(zip(leaders, in_parallel(ask, leaders), strict=True))
    found: dict[PartitionKey, Growth] = {}
    for growths in told.values():
        found |= growths or {}
    others = {key: leader for key, leader in led.items() if told[leader] is None}
    return found | (_by_timestamps(asked, others) if others else {})


def _of_ours(
    asked: _Cluster, broker: int, keys: Sequence[PartitionKey]
) -> dict[PartitionKey, Growth] | None:
    """None: the broker does not know the request, as it is of another kind, or older. One that does
    not answer in time tells no more."""
    found: dict[PartitionKey, Growth] = {}
    try:
        timeout_s = min(ANSWER_S, asked.connection.settings.timeout_s)
        with BrokerConnection(asked.addresses[broker], timeout_s) as asking:
            if not is_ours(asking, broker):
                return None
            for some in _some_at_a_time(keys):
                found |= growths_in(_ask(asking, some, asked.window_s))
    except TimeoutError:
        return found
    except (OSError, UnicodeError):
        # An older one closes the connection.
        return found or None
    return found


def _some_at_a_time(keys: Iterable[PartitionKey]) -> Iterator[list[PartitionKey]]:
    left = iter(keys)
    while some := list(islice(left, OFFSETS_MAX)):
        yield some


def _ask(
    asking: BrokerConnection, keys: Iterable[PartitionKey], window_s: int
) -> PartitionOffsetsResponse:
    topics: dict[str, list[PartitionOffsetsPartition]] = {}
    for topic, index in keys:
        topics.setdefault(topic, []).append(PartitionOffsetsPartition(index))
    request = PartitionOffsetsRequest(
        [PartitionOffsetsTopic(*one) for one in topics.items()], window_s * 1000
    )
    deadline = time.monotonic() + ANSWER_S
    while True:
        told = asking.ask(PARTITION_OFFSETS, 0, request)
        if told.error_code != ErrorCode.THROTTLING_QUOTA_EXCEEDED or time.monotonic() > deadline:
            return told
        time.sleep(_RETRY_PAUSE_S)


def growths_in(told: PartitionOffsetsResponse) -> dict[PartitionKey, Growth]:
    found = {}
    for topic in told.topics:
        for one in topic.partitions:
            if one.error_code:
                continue
            growth = Growth(one.log_start_offset, one.log_end_offset)
            if one.past and one.past[0].age_ms >= HISTORY_LEAST_MS:
                [past] = one.past
                records = max(0, past.end_offset_now - past.end_offset)
                growth.records_per_s = records * 1000 / past.age_ms
                growth.first = past.end_offset
            found[topic.name, one.partition_index] = growth
    return found


def _by_timestamps(asked: _Cluster, led: Led) -> dict[PartitionKey, Growth]:
    connection, addresses, window_s = asked
    states = TopicStates(None, addresses, {})
    since_ms = time.time_ns() // 1_000_000 - window_s * 1000
    firsts, starts, ends = in_parallel(
        lambda at: offsets_at(connection, states, led, at), [since_ms, EARLIEST, LATEST]
    )
    found = {}
    for key in led:
        first, start, end = (told.get(key, -1) for told in (firsts, starts, ends))
        if start < 0 or end < 0:
            continue
        records = end - max(first, start) if first >= 0 else 0
        found[key] = Growth(start, end, max(0, records) / window_s, max(first, start))
    return found


def _looks(
    connection: Connection, addresses: Mapping[int, Address], growing: ByLeader
) -> dict[PartitionKey, Look]:
    """Of leaders that tell sizes and offsets."""
    leaders = list(growing)
    found: dict[PartitionKey, Look] = {}
    for looks in in_parallel(
        lambda leader: _look(connection, leader, addresses[leader], growing[leader]), leaders
    ):
        found |= looks
    return found


def _look(
    connection: Connection, leader: int, address: Address, keys: Sequence[PartitionKey]
) -> dict[PartitionKey, Look]:
    led = dict.fromkeys(keys, leader)
    states = TopicStates(None, {leader: address}, {})
    wanted: dict[str, list[int]] = {}
    for topic, index in keys:
        wanted.setdefault(topic, []).append(index)
    starts = offsets_at(connection, states, led, EARLIEST)
    settings = replace(connection.settings, timeout_s=min(ANSWER_S, connection.settings.timeout_s))
    # One after the other, so that records between both questions are the fewest.
    with ClusterRequests(settings) as requests:
        sizes, _ = replica_bytes(requests, {leader: address}, wanted)
    at_s = time.monotonic()
    ends = offsets_at(connection, states, led, LATEST)
    return {
        key: Look(at_s, starts[key], ends[key], sizes[*key, leader])
        for key in keys
        if key in starts and key in ends and (*key, leader) in sizes
    }
