"""Collects requests to brokers while states change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from pyrklog.base.pieces import Turn, pieces
from pyrklog.cluster.image import LEADER_BEING_DELETED
from pyrklog.cluster.requests import (
    EPOCH_DURING_DELETE,
    EPOCH_NONE,
    LeaderAndIsrRequest,
    StopReplica,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from pyrklog.controller.effects import Pause, Send, Steps
from pyrklog.controller.state import ControllerState, Partition, Topic
from pyrklog.protocol.inter_broker import PartitionInfo, TopicPartitions

_ByTopic = defaultdict[Topic, list[PartitionInfo]]

SLOW_REPLICAS_MAX = 20
"""Replicas that one request has a broker make, or stop. It gets its next request once it has
answered, which waits for its disk; and producers wait for what others may tell it meanwhile."""


class BrokerRequestBatch:
    def __init__(self, state: ControllerState, numbers: Iterator[int]) -> None:
        self._state = state
        self._numbers = numbers
        self._clear()

    def _clear(self) -> None:
        self._lead: dict[int, dict[Partition, bool]] = {}
        self._metadata: dict[Partition, None] = {}
        self._metadata_brokers: set[int] = set()
        self._is_full = False
        self._stop: dict[int, list[StopReplica]] = {}

    def leader_and_isr(
        self, brokers: Iterable[int], partition: Partition, *, is_new: bool = False
    ) -> None:
        for broker in brokers:
            if broker in self._state.brokers:
                wanted = self._lead.setdefault(broker, {})
                wanted[partition] = wanted.get(partition, False) or is_new
        self.update_metadata(self._state.brokers, [partition])

    def update_metadata(self, brokers: Iterable[int], partitions: Iterable[Partition]) -> None:
        self._metadata_brokers.update(brokers)
        self._metadata.update(dict.fromkeys(partitions))

    def tell_all(self, brokers: Iterable[int]) -> None:
        """Tells ``brokers`` all partitions, and that no other topics exist."""
        self.update_metadata(brokers, self._state.partitions())
        self._is_full = True

    def stop_replica(self, broker: int, partition: Partition, *, delete: bool) -> None:
        if broker not in self._state.brokers:
            return
        leadership = partition.leadership
        epoch = leadership.leader_epoch if leadership else EPOCH_NONE
        if partition.topic.name in self._state.to_delete:
            epoch = EPOCH_DURING_DELETE
        topic = partition.topic
        item = StopReplica(topic.name, partition.index, epoch, delete, topic.id)
        self._stop.setdefault(broker, []).append(item)

    def flush(self) -> Steps:
        """Sends all requests; a broker gets UpdateMetadata before the others, and hears of new
        replicas apart from those that it has."""
        state = self._state
        infos: dict[Partition, PartitionInfo] = {}
        told: _ByTopic = defaultdict(list)
        turn = Turn()
        for partition in self._metadata:
            infos[partition] = info = state.info(partition)
            if partition.topic.name in state.to_delete:
                info = replace(info, leader=LEADER_BEING_DELETED)
            told[partition.topic].append(info)
            if turn.is_over():
                yield Pause()
        topics = _topics(told)
        # A topic whose znode cannot be read must not seem deleted.
        is_full = self._is_full and not state.unreadable
        if is_full:
            topics += self._without_partitions({topic.topic for topic in topics})
        number = next(self._numbers)
        images = [broker.image for _, broker in sorted(state.brokers.items())]
        for broker in sorted(self._metadata_brokers & state.brokers.keys()):
            epochs = self._epochs(broker)
            yield Send(broker, UpdateMetadataRequest(*epochs, topics, images, number, is_full))
        for broker, wanted in sorted(self._lead.items()):
            kept: _ByTopic = defaultdict(list)
            made: list[tuple[Topic, PartitionInfo]] = []
            for partition, is_new in wanted.items():
                if partition.leadership is not None and is_new:
                    made.append((partition.topic, replace(infos[partition], is_new=True)))
                elif partition.leadership is not None:
                    kept[partition.topic].append(infos[partition])
                if turn.is_over():
                    yield Pause()
            if broker not in state.brokers:
                continue
            for led in [kept, *map(_by_topic, pieces(made, SLOW_REPLICAS_MAX))]:
                if led:
                    yield Send(broker, LeaderAndIsrRequest(*self._epochs(broker), _topics(led)))
        for broker, replicas in sorted(self._stop.items()):
            for some in pieces(replicas, SLOW_REPLICAS_MAX):
                if broker in state.brokers:
                    yield Send(broker, StopReplicaRequest(*self._epochs(broker), some))
        self._clear()

    def _epochs(self, broker: int) -> tuple[int, int, int]:
        """The head of each request: controller, controller epoch, broker epoch."""
        state = self._state
        return state.controller_id, state.epoch, state.brokers[broker].epoch

    def _without_partitions(self, named: Collection[str]) -> list[TopicPartitions]:
        """Existing topics that are not in ``named``."""
        return [
            TopicPartitions(topic.name, topic.id, [])
            for topic in self._state.topics.values()
            if topic.name not in named and topic.name not in self._state.to_delete
        ]


def _by_topic(infos: Iterable[tuple[Topic, PartitionInfo]]) -> _ByTopic:
    found: _ByTopic = defaultdict(list)
    for topic, info in infos:
        found[topic].append(info)
    return found


def _topics(found: _ByTopic) -> list[TopicPartitions]:
    return [TopicPartitions(topic.name, topic.id, infos) for topic, infos in found.items()]
