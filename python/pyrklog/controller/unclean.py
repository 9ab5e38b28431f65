"""Leaders after brokers started without all that they had. Pure.

After a power loss or a replaced disk a broker may lack acknowledged records. Where a live replica
has everything, the broker leaves the ISR and the eligible replicas and comes back as a follower
(KIP-966). Otherwise the unclean ones are marked, and once nobody better is to be expected the one
with the longest log leads (``cluster.md``, section 6).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pyrklog.base.pieces import Turn
from pyrklog.cluster.requests import LogEnd, TopicPartition
from pyrklog.controller.broker_request_batch import BrokerRequestBatch
from pyrklog.controller.effects import DeleteNodes, Pause, ReadMinimums, Steps, WaitForOthers
from pyrklog.controller.leader_election import after_unclean_starts, with_most
from pyrklog.controller.partitions import PartitionChanges, Procedures
from pyrklog.controller.state import ControllerState, Partition, PartitionState
from pyrklog.metastore.znodes import Leadership, unclean_path

WAIT_SECONDS = 10.0
"""For other replicas of a partition, after the last unclean one came."""


class UncleanStarts(Procedures):
    def __init__(
        self, state: ControllerState, batch: BrokerRequestBatch, partitions: PartitionChanges
    ) -> None:
        super().__init__(state, batch, partitions)
        self._waiting: dict[TopicPartition, int] = {}
        """Partitions without a leader, as all live members are marked; the number of the wait."""
        self._numbers = 0
        self._is_over = 0
        """Waits up to this number are over."""
        self._ends: dict[TopicPartition, dict[int, LogEnd]] = {}

    def expel(self, came: Collection[int]) -> Steps:
        """Unclean brokers of ``came`` leave partitions that a whole replica can lead; elsewhere
        they are marked. Leaves requests in the batch and leaderless partitions offline.
        """
        state = self._state
        unclean = sorted(broker for broker in came if state.brokers[broker].is_unclean)
        concerned: dict[Partition, None] = {}
        turn = Turn()
        for partition, broker in state.partitions_on(came):
            is_concerned = _is_concerned(partition, broker, unclean)
            if is_concerned and partition.topic.name not in state.to_delete:
                concerned[partition] = None
            if turn.is_over():
                yield Pause()
        if unclean:
            yield state.change("unclean_start", brokers=unclean, partitions=len(concerned))
        elif not concerned:
            return
        yield from self._partitions.write_changed(
            list(concerned), lambda partition: self._changed(partition, unclean)
        )
        yield from self._partitions.to_offline(
            [
                partition
                for partition in concerned
                if partition.state is PartitionState.ONLINE
                and partition.leadership is not None
                and partition.leadership.leader not in state.brokers
            ]
        )
        if unclean:
            yield DeleteNodes([unclean_path(broker) for broker in unclean])
        for broker in unclean:
            state.brokers[broker] = state.brokers[broker]._replace(is_unclean=False)
        yield from self._wait(p for p in concerned if p.leadership and p.leadership.unclean)

    def _changed(self, partition: Partition, unclean: Collection[int]) -> Leadership | None:
        state, leadership = self._state, partition.leadership
        if leadership is None:
            return None
        whole = [
            broker
            for broker in state.live_replicas(partition)
            if broker in leadership.members
            and broker not in leadership.unclean
            and not state.brokers[broker].is_unclean
        ]
        return after_unclean_starts(leadership, unclean, whole, state.epoch)

    def _wait(self, partitions: Iterable[Partition]) -> Steps:
        """Waits for their live replicas' log ends, which answer the state written."""
        keys = [partition.key for partition in partitions]
        if not keys:
            return
        self._numbers += 1
        for key in keys:
            self._waiting[key] = self._numbers
            self._ends.pop(key, None)
        yield self._state.change("unclean_wait", partitions=len(keys))
        yield WaitForOthers(self._numbers, WAIT_SECONDS)

    def gone(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            for ends in self._ends.values():
                ends.pop(broker, None)

    def ends_told(self, broker: int, ends: Mapping[TopicPartition, LogEnd]) -> Steps:
        told = []
        for key, end in ends.items():
            partition = self._state.partition(key)
            leadership = partition.leadership if partition is not None else None
            if (
                key in self._waiting
                and leadership is not None
                and end.leader_epoch == leadership.leader_epoch
                and broker in leadership.unclean
            ):
                self._ends.setdefault(key, {})[broker] = end
                told.append(key)
        yield from self._choose(told)

    def wait_over(self, number: int) -> Steps:
        """Missing replicas are given up where enough have come."""
        self._is_over = max(self._is_over, number)
        yield from self.look()

    def look(self) -> Steps:
        yield from self._choose(list(self._waiting))

    def _choose(self, keys: Iterable[TopicPartition]) -> Steps:
        waiting = {}
        for key in keys:
            partition = self._state.partition(key)
            if partition is not None and partition.leadership and partition.leadership.unclean:
                waiting[key] = partition
            else:
                self._forget(key)
        if not waiting:
            return
        minimums: dict[str, int] = yield ReadMinimums(sorted({topic for topic, _ in waiting}))
        chosen = [
            partition
            for key, partition in waiting.items()
            if self._may_choose(partition, minimums[key[0]])
        ]
        if not chosen:
            return
        yield from self._partitions.write_changed(chosen, self._best)
        led = [partition for partition in chosen if partition.leader >= 0]
        for partition in led:
            self._forget(partition.key)
        yield self._state.change("led_by_the_most", partitions=len(led))
        yield from self._batch.flush()

    def _forget(self, key: TopicPartition) -> None:
        self._waiting.pop(key, None)
        self._ends.pop(key, None)

    def _may_choose(self, partition: Partition, minimum: int) -> bool:
        leadership = partition.leadership
        ends = self._told(partition)
        if leadership is None or not ends or partition.topic.name in self._state.to_delete:
            return False
        members, marked = len(leadership.members), len(leadership.unclean)
        if marked == members == len(ends):
            return True
        is_over = self._waiting[partition.key] <= self._is_over
        is_enough = marked >= min(minimum, len(partition.replicas)) and 2 * marked > members
        return is_over and (marked == members or is_enough)

    def _best(self, partition: Partition) -> Leadership | None:
        leadership = partition.leadership
        if leadership is None or not leadership.unclean:
            return None
        return with_most(leadership, self._told(partition), self._state.epoch)

    def _told(self, partition: Partition) -> Mapping[int, LogEnd]:
        """Log ends of live members that may lead, reported since the last change. Earlier ones are
        reported again.
        """
        leadership = partition.leadership
        if leadership is None:
            return {}
        live = self._state.electable_replicas(partition)
        return {
            broker: end
            for broker, end in self._ends.get(partition.key, {}).items()
            if broker in live and end.leader_epoch == leadership.leader_epoch
        }


def _is_concerned(partition: Partition, broker: int, unclean: Collection[int]) -> bool:
    leadership = partition.leadership
    if leadership is None or broker not in leadership.members:
        return False
    return broker in unclean or bool(leadership.unclean)
