"""The controller's state, and the transition tables.

Transitions are Kafka's (3.9; ``design.md``, "A single node is a cluster of one"); any other one is
a bug and raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.image import LEADER_NONE
from pyrklog.cluster.requests import EPOCH_NONE, LiveBroker, TopicPartition
from pyrklog.controller.effects import StateChange
from pyrklog.metastore.znodes import Leadership, TopicAssignment
from pyrklog.protocol.inter_broker import PartitionInfo


class PartitionState(Enum):
    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaState(Enum):
    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


_P = PartitionState
_R = ReplicaState

PARTITION_TRANSITIONS: Mapping[PartitionState, frozenset[PartitionState]] = {
    _P.NEW: frozenset({_P.NON_EXISTENT}),
    _P.ONLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.OFFLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.NON_EXISTENT: frozenset({_P.OFFLINE}),
}
"""New state -> the states it may come from."""

REPLICA_TRANSITIONS: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    _R.NEW: frozenset({_R.NON_EXISTENT}),
    _R.ONLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.OFFLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.DELETION_STARTED: frozenset({_R.OFFLINE}),
    _R.DELETION_SUCCESSFUL: frozenset({_R.DELETION_STARTED}),
    _R.DELETION_INELIGIBLE: frozenset({_R.OFFLINE, _R.DELETION_STARTED}),
    _R.NON_EXISTENT: frozenset({_R.DELETION_SUCCESSFUL}),
}
"""New state -> the states it may come from."""


class IllegalTransitionError(Exception):
    """A transition that is not in the table."""


class Partition:
    __slots__ = (
        "adding",
        "index",
        "leadership",
        "partial",
        "partition_epoch",
        "removing",
        "replica_states",
        "replicas",
        "state",
        "topic",
    )

    def __init__(self, topic: Topic, index: int, assignment: TopicAssignment) -> None:
        self.topic = topic
        self.index = index
        self.state = PartitionState.NON_EXISTENT
        self.replica_states: dict[int, ReplicaState] = {}
        self.leadership: Leadership | None = None
        self.partition_epoch = -1
        """Version of the state znode; -1 without one."""
        self.partial: tuple[int, ...] = ()
        """Added replicas that lack older records: they are no members and never lead."""
        self.assign(assignment)

    def assign(self, assignment: TopicAssignment) -> None:
        self.replicas = assignment.replicas[self.index]
        self.adding = assignment.adding.get(self.index, ())
        self.removing = assignment.removing.get(self.index, ())

    @property
    def assignment(self) -> PartitionAssignment:
        return PartitionAssignment(self.replicas, self.adding, self.removing)

    def reassign(self, assignment: PartitionAssignment) -> None:
        self.replicas, self.adding, self.removing = assignment

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def key(self) -> TopicPartition:
        return self.topic.name, self.index

    @property
    def leader(self) -> int:
        """-1 = nobody."""
        return self.leadership.leader if self.leadership is not None else LEADER_NONE

    def enter(self, state: PartitionState) -> PartitionState:
        """Returns the state before."""
        before = self.state
        if before not in PARTITION_TRANSITIONS[state]:
            raise IllegalTransitionError(f"{self.key}: {before.value} -> {state.value}")
        self.state = state
        return before

    def replica_state(self, broker: int) -> ReplicaState:
        return self.replica_states.get(broker, ReplicaState.NON_EXISTENT)

    def enter_replica(self, broker: int, state: ReplicaState) -> ReplicaState:
        """Returns the state before."""
        before = self.replica_state(broker)
        if before not in REPLICA_TRANSITIONS[state]:
            raise IllegalTransitionError(
                f"{self.key} on broker {broker}: {before.value} -> {state.value}"
            )
        if state is ReplicaState.NON_EXISTENT:
            self.replica_states.pop(broker, None)
        else:
            self.replica_states[broker] = state
        return before

    def lead(self, leadership: Leadership, partition_epoch: int) -> None:
        """Takes what the state znode holds."""
        self.leadership = leadership
        self.partition_epoch = partition_epoch


class Topic:
    __slots__ = ("id", "name", "partitions")

    def __init__(self, name: str, assignment: TopicAssignment) -> None:
        self.name = name
        self.id = assignment.topic_id
        self.partitions = {
            index: Partition(self, index, assignment) for index in sorted(assignment.replicas)
        }

    @property
    def is_moving(self) -> bool:
        return any(partition.is_moving for partition in self.partitions.values())


class ControllerState:
    def __init__(self, controller_id: int, epoch: int) -> None:
        self.controller_id = controller_id
        self.epoch = epoch
        self.brokers: dict[int, LiveBroker] = {}
        self.shutting_down: set[int] = set()
        self.suspects: set[int] = set()
        """Registered brokers that are not proven dead, but whose port refuses connections."""
        self.topics: dict[str, Topic] = {}
        self.unreadable: set[str] = set()
        """Existing topics without a readable assignment."""
        self.failed_replicas: dict[int, set[TopicPartition]] = {}
        """Replicas that answer KAFKA_STORAGE_ERROR, by broker."""
        self.to_delete: set[str] = set()
        self.deletion_blocked: set[str] = set()
        """Also marked for deletion, but served until their reassignment is over."""

    def partition(self, key: TopicPartition) -> Partition | None:
        topic = self.topics.get(key[0])
        return topic.partitions.get(key[1]) if topic else None

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def chosen(self, keys: Iterable[TopicPartition] | None) -> Iterator[Partition]:
        """The existing ones of these partitions; None = all."""
        if keys is None:
            return self.partitions()
        return (partition for key in keys if (partition := self.partition(key)) is not None)

    def moving(self) -> Iterator[Partition]:
        return (partition for partition in self.partitions() if partition.is_moving)

    def partitions_on(self, brokers: Iterable[int]) -> Iterator[tuple[Partition, int]]:
        wanted = frozenset(brokers)
        for partition in self.partitions():
            for broker in partition.replicas:
                if broker in wanted:
                    yield partition, broker

    def is_live(self, broker: int, key: TopicPartition) -> bool:
        return broker in self.brokers and key not in self.failed_replicas.get(broker, ())

    def knows_partial(self, broker: int) -> bool:
        live = self.brokers.get(broker)
        return live is not None and live.knows_partial

    def may_be_given(self, broker: int) -> bool:
        return broker in self.brokers and broker not in self.shutting_down

    def live_replicas(self, partition: Partition) -> tuple[int, ...]:
        # Called for every partition at a start: avoids needless objects.
        brokers, failed = self.brokers, self.failed_replicas
        live = [broker for broker in partition.replicas if broker in brokers]
        if any(map(failed.get, live)):
            key = partition.key
            live = [broker for broker in live if key not in failed.get(broker, ())]
        return tuple(live)

    def lasting_replicas(self, partition: Partition) -> tuple[int, ...]:
        """The live replicas without suspects and leaving brokers, unless none would remain."""
        live = self.live_replicas(partition)
        passing = self.shutting_down | self.suspects
        return tuple(broker for broker in live if broker not in passing) or live

    def electable_replicas(self, partition: Partition) -> tuple[int, ...]:
        """The live replicas without suspects, unless none with everything would remain.

        A suspect in sync goes before an eligible replica. A suspicion is not a proof: it must never
        cause an unclean election.
        """
        live = self.live_replicas(partition)
        if not self.suspects or partition.leadership is None:
            return live
        trusted = tuple(broker for broker in live if broker not in self.suspects)
        leadership = partition.leadership
        whole = [broker for broker in live if broker not in leadership.unclean]
        best = leadership.isr if any(b in whole for b in leadership.isr) else leadership.eligible
        return trusted if any(broker in best for broker in trusted) else live

    def change(self, event: str, **fields: object) -> StateChange:
        return StateChange(event, {**fields, "controller_epoch": self.epoch})

    def partition_change(
        self, event: str, partition: Partition, fields: Mapping[str, object]
    ) -> StateChange:
        named = {"topic": partition.topic.name, "partition": partition.index}
        return StateChange(event, {**named, **fields, "controller_epoch": self.epoch})

    def info(self, partition: Partition) -> PartitionInfo:
        """The partition as in requests; clients see its replicas before its first leader."""
        leadership = partition.leadership or Leadership(LEADER_NONE, EPOCH_NONE, (), self.epoch)
        live = self.live_replicas(partition)
        offline: tuple[int, ...] = ()
        if len(live) < len(partition.replicas):
            offline = tuple(broker for broker in partition.replicas if broker not in live)
        return PartitionInfo(
            partition=partition.index,
            controller_epoch=leadership.controller_epoch,
            leader=leadership.leader,
            leader_epoch=leadership.leader_epoch,
            isr=leadership.isr,
            partition_epoch=partition.partition_epoch,
            replicas=partition.replicas,
            adding=partition.adding,
            removing=partition.removing,
            offline=offline,
            is_new=False,
            recovery_state=leadership.recovery_state,
            eligible=leadership.eligible,
            unclean=leadership.unclean,
            partial=partition.partial,
        )
