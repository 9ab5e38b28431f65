"""Topics and partitions of the image in pages, for DescribeTopicPartitions (KIP-966). Pure.

Rules: ``KRaftMetadataCache.getTopicMetadataForDescribeTopicResponse`` of Kafka 3.9.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from pyrklog.cluster.image import GAP_MAX, INTERNAL_TOPICS, LEADER_NONE, ClusterImage, TopicEntry
from pyrklog.cluster.requests import NO_TOPIC_ID, TopicPartition
from pyrklog.cluster.topic_names import wrong_with_name
from pyrklog.errors import ErrorCode
from pyrklog.plane.values import PartitionImage

UNKNOWN_MAX = 2_000
"""Kafka has no such bound."""


class PagedTopic(NamedTuple):
    name: str
    error: ErrorCode
    topic_id: bytes = NO_TOPIC_ID
    partitions: Sequence[PartitionImage] = ()

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class TopicPage(NamedTuple):
    """``after`` is where the next page begins; None: this is the last one."""

    topics: Sequence[PagedTopic]
    after: TopicPartition | None


def read_page(
    image: ClusterImage,
    names: Sequence[str] | None,
    start: TopicPartition,
    limit: int,
    listener: str,
) -> TopicPage:
    """Topics in order of their names, each once, with ``limit`` partitions in all.

    ``names`` None: all topics. Unknown names do not count, but a page has :data:`UNKNOWN_MAX` of
    them at most. A leader that clients of ``listener`` cannot reach is shown as none.
    """
    first, first_partition = start
    if names is None:
        wanted = image.names_from(first, limit + 1)
    else:
        later = {name for name in names if name >= first}
        wanted = heapq.nsmallest(limit + UNKNOWN_MAX + 1, later)
    reachable = {
        broker.id
        for broker in image.brokers
        if any(name == listener for name, *_ in broker.endpoints)
    }
    topics: list[PagedTopic] = []
    left, unknown_left = limit, UNKNOWN_MAX
    for name in wanted:
        entry = image.topics.get(name)
        if left == 0 or (entry is None and unknown_left == 0):
            return TopicPage(topics, (name, 0))
        if entry is None:
            unknown_left -= 1
            topics.append(_unknown(name))
            continue
        begin = first_partition if name == first else 0
        partitions, after = _partitions(entry, begin, left)
        shown = [_as_seen(one, reachable) for one in partitions]
        topics.append(PagedTopic(name, ErrorCode.NONE, entry.id, shown))
        if after is not None:
            return TopicPage(topics, (name, after))
        left -= len(shown)
    return TopicPage(topics, None)


def _unknown(name: str) -> PagedTopic:
    if wrong_with_name(name) is not None:
        return PagedTopic(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
    return PagedTopic(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _partitions(
    entry: TopicEntry, begin: int, limit: int
) -> tuple[list[PartitionImage], int | None]:
    """Those of a topic, and the first one behind them. Missing ones are left out."""
    highest = max(entry.partitions, default=-1)
    end = min(highest + 1, len(entry.partitions) + GAP_MAX)
    stop = min(end, begin + limit)
    found = [entry.partitions[index] for index in range(begin, stop) if index in entry.partitions]
    return found, stop if stop < end else None


def _as_seen(partition: PartitionImage, reachable: set[int]) -> PartitionImage:
    if partition.leader in reachable:
        return partition
    return partition._replace(leader=LEADER_NONE)
