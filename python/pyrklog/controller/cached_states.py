"""What a broker was told of partitions, for its first elections as a controller. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from pyrklog.cluster.requests import LiveBroker, TopicPartition
from pyrklog.metastore.znodes import Leadership, TopicAssignment
from pyrklog.protocol.inter_broker import PartitionInfo, TopicPartitions


def leaderless(
    told: Sequence[TopicPartitions], brokers: Mapping[int, LiveBroker]
) -> list[TopicPartitions]:
    """The partitions whose leader is gone and that have a live replica in sync."""
    found = []
    for topic in told:
        partitions = [
            info
            for info in topic.partitions
            if info.leader not in brokers
            and any(broker in brokers and broker not in info.unclean for broker in info.isr)
        ]
        if partitions:
            found.append(replace(topic, partitions=partitions))
    return found


def remembered_states(
    told: Sequence[TopicPartitions], topics: Mapping[str, TopicAssignment]
) -> dict[TopicPartition, tuple[Leadership, int]]:
    """Leaderships and versions of partitions, as this broker was told.

    A topic with another id is left out: it was created since under the same name, and its states
    may have the versions of the old ones.
    """
    return {
        (topic.topic, info.partition): (_leadership(info), info.partition_epoch)
        for topic in told
        if topic.topic in topics and topics[topic.topic].topic_id == topic.topic_id
        for info in topic.partitions
        if info.partition in topics[topic.topic].replicas
    }


def _leadership(info: PartitionInfo) -> Leadership:
    # Brokers are not told whether a leader recovers. A recovering leader is alone in its ISR, so
    # nobody can be elected when it is gone.
    return Leadership(
        info.leader,
        info.leader_epoch,
        info.isr,
        info.controller_epoch,
        eligible=info.eligible,
        unclean=info.unclean,
    )
