"""Replicas that start at their leaders' ends and lack older records at first. Pure.

They are strangers until they are whole: neither leader, nor in the ISR, nor eligible. The
controller keeps them in nodes of their own (``expansion.md``, section 3). A node is written before
a replica is added, and removed after it is whole or gone. What it says of others is void.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pyrklog.cluster.requests import TopicPartition
from pyrklog.controller.effects import Steps, WritePartialReplicas
from pyrklog.controller.state import ControllerState, Partition
from pyrklog.metastore import znodes


class PartialReplicas:
    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def take(self, found: Mapping[TopicPartition, tuple[int, ...]]) -> Steps:
        """A controller starts: takes what the store has, and removes what is void."""
        concerned = []
        for key, replicas in found.items():
            partition = self._state.partition(key)
            if partition is not None:
                partition.partial = replicas
                concerned.append(partition)
        yield from self.settle(concerned)
        # An Apache controller may have made other brokers lead.
        yield from self.leaders_elected(concerned)

    def remember(self, partition: Partition, replicas: Sequence[int]) -> None:
        """Takes what this broker was told of a partition."""
        partition.partial = _counting(partition, replicas)

    def add(self, wanted: Mapping[Partition, Collection[int]]) -> Steps:
        """These replicas are about to be added. Replicas whose broker, or whose leader's, does not
        know partial ones are left out, and copy.
        """
        state = self._state
        changed = []
        for partition, brokers in wanted.items():
            fit = tuple(b for b in sorted(brokers) if state.knows_partial(b))
            if fit and state.knows_partial(partition.leader):
                partition.partial = tuple(dict.fromkeys((*partition.partial, *fit)))
                changed.append(partition)
        yield from self._write(changed)

    def settle(self, partitions: Iterable[Partition]) -> Steps:
        """Removes replicas that are members, or are not being added any more."""
        changed = []
        for partition in partitions:
            if not partition.partial:
                continue
            kept = _counting(partition, partition.partial)
            if kept != partition.partial:
                partition.partial = kept
                changed.append(partition)
        yield from self._write(changed)

    def leaders_elected(self, partitions: Iterable[Partition]) -> Steps:
        """A leader that does not know partial replicas would take one for whole: before it hears of
        its office they begin to copy. One that does not know it either stays out.
        """
        state = self._state
        changed = []
        for partition in partitions:
            if not partition.partial or partition.leader not in state.brokers:
                continue
            if state.knows_partial(partition.leader):
                continue
            kept = tuple(b for b in partition.partial if not state.knows_partial(b))
            if kept != partition.partial:
                partition.partial = kept
                changed.append(partition)
        yield from self._write(changed)

    def _write(self, partitions: Sequence[Partition]) -> Steps:
        if not partitions:
            return
        yield WritePartialReplicas(
            {p.key: znodes.PartialReplicas(p.topic.id, p.partial) for p in partitions}
        )
        for partition in partitions:
            fields = {"replicas": list(partition.partial)}
            yield self._state.partition_change("partial_replicas", partition, fields)


def _counting(partition: Partition, replicas: Sequence[int]) -> tuple[int, ...]:
    """Those that are being added and are no members: only these are partial."""
    members = partition.leadership.members if partition.leadership is not None else ()
    return tuple(b for b in replicas if b in partition.adding and b not in members)
