"""Samples of a scrape, made of what was read, and of a topic or group in detail. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from types import MappingProxyType
from typing import NamedTuple

from pyrklog.cluster.requests import TopicPartition
from pyrklog.observability.detail_table import DETAIL
from pyrklog.observability.metric import Metric
from pyrklog.observability.metric_table import (
    BROKER,
    CLUSTER,
    FINDINGS,
    GROUP_LAG_SECONDS,
    LEFT_OUT_SERIES,
    LOG_DIR,
    MS,
    PLAIN,
    QUEUE,
    REQUESTS,
    REQUESTS_PREFIX,
    StatisticMetric,
)
from pyrklog.observability.tally import Tally
from pyrklog.plane.values import PartitionImage, ReplicaOffsets
from pyrklog.protocol.lag import UNKNOWN, PartitionLag

SERIES_MAX = 500
"""Of ``/metrics``."""
DETAIL_SERIES_MAX = 5000
"""Of ``/metrics/detail``: about half a megabyte."""
LOG_DIRS_APART_MAX = 5
"""With more log directories their series are one, of all."""
ALL_LOG_DIRS = "all"
SERIES_TOLD = 5
"""Of a partition, at the broker that tells it."""
SERIES_UNCOMMITTED = 2
SERIES_LEAST = 2
"""Of a partition of which a broker has any."""
_OF_LEADERS = ("high_watermark", "log_start")
_OF_REPLICAS = ("log_end", "size_bytes")
_HASHED = "fetch"
"""Queues ``fetch-0``, ``fetch-1`` ... are one series."""


class Sample(NamedTuple):
    metric: Metric
    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True)
class Readings:
    """What a scrape reads of the broker besides the data plane's statistics and the tally: one
    field for each metric of :data:`.metric_table.BROKER`."""

    groups: int
    is_store_reachable: int
    is_ready: int
    http_connections: int
    cpu_seconds: float
    resident_bytes: int
    start_time_seconds: float
    lag_groups_left_out: int = 0
    lag_histories: int = 0
    lag_histories_left_out: int = 0
    lag_history_points: int = 0
    lag_forgotten_points: int = 0
    isr_expands: int = 0
    isr_shrinks: int = 0
    unclean_elections: int = 0


@dataclass(frozen=True)
class GroupReadings:
    """A group in detail: its members, its committed offsets with the lag, and the partitions of the
    same topics in which it has committed nothing."""

    group_id: str
    members: int
    partitions: Sequence[PartitionLag]
    uncommitted: Sequence[TopicPartition] = ()


class PartitionReadings(NamedTuple):
    """A partition in detail. ``replica``: this broker's."""

    image: PartitionImage
    is_led: bool
    is_told: bool
    """Whether this broker's answer has it (:func:`teller`)."""
    replica: ReplicaOffsets | None


class Detail(NamedTuple):
    """Of a topic or a group: samples, and how many more there would be of what was not read."""

    samples: list[Sample]
    unread: int


def of_broker(
    statistics: Mapping[str, int],
    tally: Tally,
    readings: Readings,
    log_dirs: Sequence[str],
    worst_groups: Sequence[tuple[str, int]] = (),
    findings: Mapping[str, int] = MappingProxyType({}),
    times: Iterable[Sample] = (),
) -> list[Sample]:
    """All samples of ``/metrics`` but the build's.

    ``log_dirs``: names of the directories that statistics number. ``worst_groups``: those most
    behind, and by how many milliseconds. ``findings``: of the broker's health, counted by kind.
    ``times``: :func:`.latency_samples.of_times`.
    """
    found = [
        Sample(metric, (), value)
        for name, metric in CLUSTER.items()
        if (value := getattr(tally, name)) is not None
    ]
    found += [Sample(metric, (), getattr(readings, name)) for name, metric in BROKER.items()]
    found += [Sample(GROUP_LAG_SECONDS, (group,), lag_ms * MS) for group, lag_ms in worst_groups]
    found += [Sample(FINDINGS, (kind,), count) for kind, count in findings.items()]
    found += [
        Sample(taken.metric, taken.values, statistics[name] * taken.scale)
        for name, taken in PLAIN.items()
        if name in statistics
    ]
    found += _of_log_dirs(statistics, log_dirs)
    found += times
    found += [
        Sample(REQUESTS, (name.removeprefix(REQUESTS_PREFIX),), value)
        for name, value in statistics.items()
        if name.startswith(REQUESTS_PREFIX)
    ]
    return bounded(found, SERIES_MAX - 1)  # the build's is one more


def bounded(found: list[Sample], series_max: int) -> list[Sample]:
    """The first of them, and how many more there are."""
    left_out = max(0, len(found) - (series_max - 1))
    return [*found[: series_max - 1], Sample(LEFT_OUT_SERIES, (), left_out)]


def share(asked: Iterable[str | None], series_max: int) -> int:
    """The most series of each of what is asked for, besides the one that counts those left out."""
    return (series_max - 1) // max(1, sum(one is not None for one in asked))


def detail(parts: Sequence[Detail], share: int) -> list[Sample]:
    """The first of each, and how many more there are."""
    shown = [sample for part in parts for sample in part.samples[:share]]
    left_out = sum(max(0, len(part.samples) - share) + part.unread for part in parts)
    return [*shown, Sample(LEFT_OUT_SERIES, (), left_out)]


def _of_log_dirs(statistics: Mapping[str, int], log_dirs: Sequence[str]) -> list[Sample]:
    """Waits of series that are put together are the longest, everything else is added."""
    labels_of = log_dir_labels(log_dirs)
    sums: dict[tuple[Metric, tuple[str, ...]], float] = {}
    for name, value in statistics.items():
        statistic, *places = name.split(".")
        taken = _taken(statistic, len(places))
        if taken is None or not places[0].isdecimal():
            continue
        labels = [labels_of.get(int(places[0]), places[0])]
        labels += [_HASHED if one.startswith(f"{_HASHED}-") else one for one in places[1:]]
        key = (taken.metric, tuple(labels))
        scaled = value * taken.scale
        if taken.metric.name.endswith("_seconds"):
            sums[key] = max(scaled, sums.get(key, 0))
        else:
            sums[key] = scaled + sums.get(key, 0)
    return [Sample(metric, labels, value) for (metric, labels), value in sums.items()]


def _taken(statistic: str, places: int) -> StatisticMetric | None:
    if places == 1:
        return LOG_DIR.get(statistic)
    return QUEUE.get(statistic) if places == 2 else None


def log_dir_labels(log_dirs: Sequence[str]) -> dict[int, str]:
    """The label of each directory, by its number."""
    apart = len(log_dirs) <= LOG_DIRS_APART_MAX
    return {number: name if apart else ALL_LOG_DIRS for number, name in enumerate(log_dirs)}


def teller(one: PartitionImage, brokers: Container[int], controller_id: int) -> int:
    """The one broker that tells a partition: the leader, as for kafka_exporter, so that sums over
    all brokers count it once. Without a leader the first replica that is there, or the controller.
    """
    if one.leader >= 0:
        return one.leader
    return next((broker for broker in one.replicas if broker in brokers), controller_id)


def series_of(one: PartitionImage, node_id: int, *, is_told: bool) -> int:
    """How many series a broker has of a partition, at most."""
    found = SERIES_TOLD if is_told else 0
    if one.leader == node_id:
        found += len(_OF_LEADERS)
    if node_id in one.replicas:
        found += len(_OF_REPLICAS)
    return found


def told_partitions(
    partitions: Iterable[PartitionImage],
    node_id: int,
    brokers: Container[int],
    controller_id: int,
    room: int,
) -> tuple[list[tuple[PartitionImage, bool]], int]:
    """The first partitions whose series have room, each with whether this broker tells it, and how
    many series the others have."""
    # All of them are never sorted: that would hold the interpreter, and all threads, for long.
    found: list[tuple[int, int, bool, PartitionImage]] = []
    unread = 0
    for one in partitions:
        is_told = teller(one, brokers, controller_id) == node_id
        series = series_of(one, node_id, is_told=is_told)
        if series:
            unread += series
            found.append((one.partition, series, is_told, one))
    shown: list[tuple[PartitionImage, bool]] = []
    for _, series, is_told, one in nsmallest(room // SERIES_LEAST, found):
        if series > room:
            break
        room -= series
        unread -= series
        shown.append((one, is_told))
    return shown, unread


def uncommitted(
    committed: Mapping[str, Container[int]],
    topics: Iterable[tuple[str, Iterable[PartitionImage]]],
    room: int,
) -> tuple[list[TopicPartition], int]:
    """The first partitions of these topics in which nothing is committed, and how many more there
    are."""
    shown: list[TopicPartition] = []
    count = 0
    for topic, partitions in topics:
        known = committed[topic]
        others = [one.partition for one in partitions if one.partition not in known]
        count += len(others)
        shown += ((topic, partition) for partition in nsmallest(room - len(shown), others))
    return shown, count - len(shown)


def of_topic(
    topic: str,
    partitions: Iterable[PartitionReadings],
    partition_count: int | None,
    served_bytes: tuple[int, int],
) -> list[Sample]:
    """``partitions`` are those to show, ``partition_count`` is of all, None where not the
    controller; ``served_bytes``: of the topic, out of the block cache and out of files."""
    found = []
    if partition_count is not None:
        found.append(Sample(DETAIL["partitions"], (topic,), partition_count))
    found += [
        Sample(DETAIL["served_bytes"], (topic, source), bytes_)
        for source, bytes_ in zip(("cache", "files"), served_bytes, strict=True)
    ]
    for one in partitions:
        labels = (topic, str(one.image.partition))
        if one.is_told:
            found += _of_partition(labels, one.image)
        if one.replica is not None:
            names = (*_OF_LEADERS, *_OF_REPLICAS) if one.is_led else _OF_REPLICAS
            found += [Sample(DETAIL[name], labels, getattr(one.replica, name)) for name in names]
    return found


def _of_partition(labels: tuple[str, ...], one: PartitionImage) -> Iterator[Sample]:
    replicas, in_sync = len(one.replicas), len(one.isr)
    yield Sample(DETAIL["leader"], labels, one.leader)
    yield Sample(DETAIL["replicas"], labels, replicas)
    yield Sample(DETAIL["in_sync"], labels, in_sync)
    is_preferred = bool(one.replicas) and one.leader == one.replicas[0]
    yield Sample(DETAIL["is_preferred"], labels, is_preferred)
    yield Sample(DETAIL["is_under_replicated"], labels, in_sync < replicas)


def of_group(group: GroupReadings) -> list[Sample]:
    found = [Sample(DETAIL["members"], (group.group_id,), group.members)]
    for one in group.partitions:
        labels = (group.group_id, one.topic, str(one.partition_index))
        found.append(Sample(DETAIL["committed"], labels, one.committed_offset))
        if one.lag != UNKNOWN:
            # As kafka_exporter: end minus committed offset, whatever the sign.
            found.append(Sample(DETAIL["lag"], labels, one.lag - one.ahead))
        if one.lag_ms != UNKNOWN:
            found.append(Sample(DETAIL["lag_seconds"], labels, one.lag_ms * MS))
        if one.lost != UNKNOWN:
            found.append(Sample(DETAIL["lost"], labels, one.lost))
    for topic, partition in group.uncommitted:
        labels = (group.group_id, topic, str(partition))
        found += [Sample(DETAIL[name], labels, -1) for name in ("committed", "lag")]
    return found
