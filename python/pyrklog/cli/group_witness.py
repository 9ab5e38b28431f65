"""Whether all groups are told of.

ListGroups asks the brokers that live, and each tells of the groups whose partition of
``__consumer_offsets`` it leads. While a partition has no leader, or gets another one, nobody tells
of its groups, and that is no error. So the leaders are asked before and after: where they were the
same all the while, every group was told of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.protocol.list_offsets import (
    LATEST,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

OFFSETS_TOPIC = "__consumer_offsets"
_OFFSETS_VERSION = 4
"""Since this one the answer tells the leader epoch."""


class Coordinator(NamedTuple):
    """The leader of a partition, -1: nobody; its epoch, None: it does not say that it leads."""

    leader: int
    epoch: int | None


Witness = Mapping[int, Coordinator]
"""By partition of ``__consumer_offsets``; nothing if there is no such topic, and no group."""


def witness(admin: ReassignmentAdmin) -> Witness:
    """Asks the leaders themselves: one that has not heard of its leadership tells no group. For
    their ends, with which they tell their own epochs: a first record may be of an earlier one."""
    leaders = {
        index: leader
        for (topic, index), leader in admin.leaders().items()
        if topic == OFFSETS_TOPIC
    }
    asked: dict[int, list[ListOffsetsPartition]] = {}
    for index, leader in sorted(leaders.items()):
        partition = ListOffsetsPartition(index, timestamp=LATEST)
        asked.setdefault(leader, []).append(partition)
    requests = {
        broker: ListOffsetsRequest(topics=[ListOffsetsTopic(OFFSETS_TOPIC, partitions)])
        for broker, partitions in asked.items()
    }
    epochs = {
        (broker, one.partition_index): one.leader_epoch
        for broker, told in admin.ask_each(LIST_OFFSETS, _OFFSETS_VERSION, requests).items()
        for topic in told.topics
        for one in topic.partitions
        if not one.error_code and one.leader_epoch >= 0
    }
    return {
        index: Coordinator(leader, epochs.get((leader, index))) for index, leader in leaders.items()
    }


def unknown_groups(before: Witness, after: Witness) -> list[str]:
    """Why there may be groups that nobody has told of between these two."""
    found = []
    for index in sorted(before.keys() | after.keys()):
        why = _unknown(before.get(index), after.get(index))
        if why is not None:
            found.append(f"not all groups are known: partition {index} of {OFFSETS_TOPIC} {why}")
    return found


def _unknown(before: Coordinator | None, after: Coordinator | None) -> str | None:
    for one in (before, after):
        if one is not None and one.leader < 0:
            return "has no leader"
        if one is not None and one.epoch is None:
            return f"is not confirmed by its leader {one.leader}"
    return None if before == after else "has got another leader meanwhile"
