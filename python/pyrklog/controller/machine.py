"""The controller's decisions: what follows from each event. Pure.

Each public method is one event and returns a procedure (``effects.Steps``), a generator of effects.
Procedures run one at a time, to their end. The order of steps is Kafka's (3.9, ZooKeeper mode).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pyrklog.base.pieces import Turn
from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    IsrChangeResult,
    LeaderAndIsrResponse,
    LiveBroker,
    StopReplicaResponse,
    TopicPartition,
)
from pyrklog.controller.broker_request_batch import BrokerRequestBatch
from pyrklog.controller.cached_states import remembered_states
from pyrklog.controller.controlled_shutdown import ControlledShutdown
from pyrklog.controller.effects import (
    DeleteNodes,
    DeleteTopicNodes,
    Pause,
    ReadUnclean,
    Snapshot,
    Steps,
    TakeProducerIds,
)
from pyrklog.controller.isr_changes import IsrChanges
from pyrklog.controller.leader_election import preferred_election, same_leader
from pyrklog.controller.partitions import PartitionChanges
from pyrklog.controller.reassignment import Reassignments
from pyrklog.controller.replicas import Replica, ReplicaChanges
from pyrklog.controller.requested_elections import RequestedElections
from pyrklog.controller.state import ControllerState, Partition, PartitionState, ReplicaState, Topic
from pyrklog.controller.suspects import Suspects
from pyrklog.controller.unclean import UncleanStarts
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import ProducerIdBlock, TopicAssignment, delete_topic_path
from pyrklog.protocol.inter_broker import TopicPartitions


class Controller:
    """One term of a controller."""

    def __init__(
        self,
        controller_id: int,
        epoch: int,
        *,
        delete_topic_enable: bool = True,
        numbers: Iterator[int] | None = None,
    ) -> None:
        """``numbers``: those of another machine that sends in the same term; None = from 1 on."""
        self.state = ControllerState(controller_id, epoch)
        self.numbers = numbers or itertools.count(1)
        """Of the UpdateMetadata requests."""
        self._batch = BrokerRequestBatch(self.state, self.numbers)
        self._partitions = PartitionChanges(self.state, self._batch)
        self._replicas = ReplicaChanges(self.state, self._batch, self._partitions)
        self._isr_changes = IsrChanges(self.state, self._batch, self._partitions)
        self.controlled_shutdown = ControlledShutdown(self.state, self._batch, self._partitions)
        self.suspects = Suspects(self.state, self._batch, self._partitions)
        self.unclean = UncleanStarts(self.state, self._batch, self._partitions)
        self.reassignments = Reassignments(
            self.state, self._batch, self._partitions, self._replicas, self._reassignments_ended
        )
        self.elections = RequestedElections(self.state, self._batch, self._partitions)
        self._delete_topic_enable = delete_topic_enable

    # --- start ---------------------------------------------------------------------------------

    def start(self, brokers: Mapping[int, LiveBroker], snapshot: Snapshot) -> Steps:
        """Takes over: tells all brokers everything, makes them lead or follow, elects."""
        state = self.state
        state.brokers.update(brokers)
        turn = Turn()
        for name, assignment in snapshot.topics.items():
            state.topics[name] = Topic(name, assignment)
            if turn.is_over(len(assignment.replicas)):
                yield Pause()
        state.unreadable.update(snapshot.unreadable)
        for key, (leadership, version) in snapshot.states.items():
            partition = state.partition(key)
            if partition is not None:
                partition.lead(leadership, version)
            if turn.is_over():
                yield Pause()
        known = state.topics.keys() | state.unreadable
        missing = [name for name in snapshot.to_delete if name not in known]
        self._mark_for_deletion(set(snapshot.to_delete) & state.topics.keys())
        yield state.change(
            "controller_started",
            brokers=sorted(state.brokers),
            topics=len(state.topics),
            partitions=sum(len(topic.partitions) for topic in state.topics.values()),
        )
        yield from self._partitions.partial.take(snapshot.partial)
        yield from self._initial_states()
        yield from self.unclean.expel(state.brokers)
        offline = self._leaderless()
        self._batch.tell_all(state.brokers)
        for partition in state.partitions():
            if partition.leadership is not None and partition.topic.name not in state.to_delete:
                self._batch.leader_and_isr(partition.replicas, partition)
            if turn.is_over():
                yield Pause()
        if offline:
            yield from self._partitions.to_online(offline)
        # Replicas of brokers that went while nobody led.
        yield from self._replicas.to_offline(
            [
                (partition, broker)
                for partition in state.partitions()
                for broker, found in partition.replica_states.items()
                if found is ReplicaState.OFFLINE
            ]
        )
        yield from self._release_high_watermarks()
        yield from self._batch.flush()
        yield from self.reassignments.resume(list(state.moving()))
        if missing:
            yield _unmark(missing)
        yield from self._resume_deletions()

    def _mark_for_deletion(self, names: Iterable[str]) -> None:
        """A topic with a running reassignment stays until it ends."""
        state = self.state
        for name in names:
            is_moving = state.topics[name].is_moving
            (state.deletion_blocked if is_moving else state.to_delete).add(name)

    def elect_by_memory(
        self,
        brokers: Mapping[int, LiveBroker],
        topics: Mapping[str, TopicAssignment],
        told: Sequence[TopicPartitions],
        suspects: Collection[int] = (),
    ) -> Steps:
        """Clean elections for ``told`` partitions, by what this broker remembers of them.

        The machine is dropped afterwards; :meth:`start` of the next one makes good what was
        refused.
        """
        state = self.state
        state.brokers.update(brokers)
        state.suspects.update(suspects)
        for name, assignment in topics.items():
            state.topics[name] = Topic(name, assignment)
        listed = {(topic.topic, i.partition): i.partial for topic in told for i in topic.partitions}
        remembered = []
        for key, (leadership, version) in remembered_states(told, topics).items():
            partition = state.partition(key)
            if partition is not None:
                partition.lead(leadership, version)
                partition.state = PartitionState.OFFLINE
                self._partitions.partial.remember(partition, listed.get(key, ()))
                remembered.append(partition)
        yield state.change("elects_by_memory", partitions=len(remembered))
        yield from self._partitions.to_online(remembered)
        yield from self._batch.flush()

    def _initial_states(self) -> Steps:
        state = self.state
        turn = Turn()
        for partition in state.partitions():
            deleting = partition.topic.name in state.to_delete
            dead = ReplicaState.DELETION_INELIGIBLE if deleting else ReplicaState.OFFLINE
            for broker in partition.replicas:
                live = broker in state.brokers
                partition.replica_states[broker] = ReplicaState.ONLINE if live else dead
            leadership = partition.leadership
            if leadership is None:
                partition.state = PartitionState.NEW
            elif leadership.leader in state.brokers:
                partition.state = PartitionState.ONLINE
            else:
                partition.state = PartitionState.OFFLINE
            if turn.is_over():
                yield Pause()

    def _leaderless(self) -> list[Partition]:
        state = self.state
        return [
            partition
            for partition in state.partitions()
            if partition.state in (PartitionState.NEW, PartitionState.OFFLINE)
            and partition.topic.name not in state.to_delete
        ]

    # --- brokers -------------------------------------------------------------------------------

    def brokers_changed(self, brokers: Mapping[int, LiveBroker]) -> Steps:
        """Takes the present registrations. A new epoch of a known id is a restart."""
        state = self.state
        known = state.brokers
        gone = [b for b in known if b not in brokers or brokers[b].epoch != known[b].epoch]
        came = [b for b in brokers if b not in known or brokers[b].epoch != known[b].epoch]
        changed = [b for b in brokers if b not in came and brokers[b] != known[b]]
        if gone:
            for broker in gone:
                del known[broker]
                state.failed_replicas.pop(broker, None)
                state.shutting_down.discard(broker)
                state.suspects.discard(broker)
            self.unclean.gone(gone)
            yield state.change("brokers_gone", brokers=sorted(gone))
            yield from self._replicas_gone(list(state.partitions_on(gone)))
        if came:
            known.update({broker: brokers[broker] for broker in came})
            yield state.change("brokers_came", brokers=sorted(came))
            yield from self._brokers_came(came)
        if changed:
            known.update({broker: brokers[broker] for broker in changed})
            self._batch.update_metadata(state.brokers, ())
            yield from self._batch.flush()

    def _replicas_gone(self, replicas: Sequence[Replica]) -> Steps:
        """Elects other leaders, then takes the replicas out of the ISRs."""
        state = self.state
        kept = [item for item in replicas if item[0].topic.name not in state.to_delete]
        dropped = [item for item in replicas if item[0].topic.name in state.to_delete]
        leaderless = list(dict.fromkeys(p for p, broker in kept if p.leader == broker))
        yield from self._partitions.to_offline(leaderless)
        yield from self._partitions.to_online(leaderless)
        # Clients wait for leaders: these go first.
        yield from self._batch.flush()
        yield from self._replicas.to_offline(kept)
        self._batch.update_metadata(state.brokers, ())
        yield from self._batch.flush()
        yield from self._deletion_failed(dropped)

    def _brokers_came(self, came: Sequence[int]) -> Steps:
        state = self.state
        # Old brokers learn of the new ones, new ones learn everything.
        self._batch.update_metadata(state.brokers.keys() - set(came), ())
        yield from self._batch.flush()
        self._batch.tell_all(came)
        yield from self.unclean.expel(came)
        back = [
            (partition, broker)
            for partition, broker in state.partitions_on(came)
            if partition.topic.name not in state.to_delete
        ]
        yield from self._replicas.to_online(back)
        yield from self._partitions.to_online(self._leaderless())
        yield from self._batch.flush()
        yield from self.reassignments.resume(
            [p for p in state.moving() if not set(came).isdisjoint(p.assignment.targets)]
        )
        yield from self._resume_deletions()

    def log_dirs_failed(self, brokers: Iterable[int]) -> Steps:
        """Asks the brokers again for their replicas; the answers say which have failed."""
        asked = [broker for broker in brokers if broker in self.state.brokers]
        for partition, broker in self.state.partitions_on(asked):
            if partition.replica_state(broker) is ReplicaState.ONLINE:
                self._batch.leader_and_isr([broker], partition)
        yield from self._batch.flush()

    def leader_and_isr_answered(self, broker: int, response: LeaderAndIsrResponse) -> Steps:
        """Replicas with KAFKA_STORAGE_ERROR go offline; those with NONE come back."""
        state = self.state
        if response.error is not ErrorCode.NONE or broker not in state.brokers:
            return
        failed = state.failed_replicas.setdefault(broker, set())
        newly: list[Replica] = []
        back: list[Partition] = []
        for key, error in response.errors.items():
            partition = state.partition(key)
            if partition is None or broker not in partition.replicas:
                continue  # dropped before the answer came
            if error is ErrorCode.KAFKA_STORAGE_ERROR and key not in failed:
                failed.add(key)
                newly.append((partition, broker))
            elif error is ErrorCode.NONE and key in failed:
                failed.discard(key)
                back.append(partition)
        if newly:
            yield from self._replicas_gone(newly)
            yield from self.unclean.look()
        if back:
            self._batch.update_metadata(state.brokers, back)
            yield from self._batch.flush()
        if response.ends:
            yield from self.unclean.ends_told(broker, response.ends)

    def knows(self, broker: int, broker_epoch: int) -> bool:
        live = self.state.brokers.get(broker)
        return live is not None and live.epoch == broker_epoch

    def alter_partitions(
        self, request: AlterPartitionRequest, results: list[IsrChangeResult]
    ) -> Steps:
        """``results`` gets one for each change."""
        yield from self._isr_changes.alter(request, results)
        topics = {topic.id: topic for topic in self.state.topics.values()}
        changed = [
            topics[result.topic_id].partitions[result.partition]
            for result in results
            if result.error is ErrorCode.NONE
        ]
        yield from self.reassignments.complete([p for p in changed if p.is_moving])

    def allocate_producer_ids(self, broker: int, blocks: list[ProducerIdBlock]) -> Steps:
        """``blocks`` gets the next one, unless none are left."""
        block: ProducerIdBlock | None = yield TakeProducerIds(broker)
        if block is not None:
            blocks.append(block)

    def options_changed(self) -> Steps:
        yield from self.unclean.look()
        yield from self._release_high_watermarks()
        yield from self._elect_where_allowed()
        yield from self._batch.flush()

    def _elect_where_allowed(self) -> Steps:
        leaderless = self._leaderless()
        if leaderless:
            topics = sorted({partition.topic.name for partition in leaderless})
            allowed: frozenset[str] = yield ReadUnclean(topics)
            chosen = [p for p in leaderless if p.topic.name in allowed]
            yield from self._partitions.to_online(chosen)

    def _release_high_watermarks(self) -> Steps:
        """Drops eligible replicas where the ISR is large enough for a lower
        ``min.insync.replicas``.

        Leaders apply the lower value only after this is written.
        """
        partitions = yield from self._partitions.eligible.superfluous()
        yield from self._partitions.write_changed(
            partitions, lambda p: p.leadership and same_leader(p.leadership, self.state.epoch)
        )

    # --- topics --------------------------------------------------------------------------------

    def topics_changed(self, found: Mapping[str, TopicAssignment], names: Iterable[str]) -> Steps:
        """``names`` are all topics now; ``found`` has the assignments of new ones."""
        state = self.state
        names = set(names)
        for name in state.topics.keys() - names:
            del state.topics[name]
            state.to_delete.discard(name)
            state.deletion_blocked.discard(name)
        fresh = {name: item for name, item in found.items() if name not in state.topics}
        for name, assignment in sorted(fresh.items()):
            state.topics[name] = Topic(name, assignment)
            yield state.change("topic_created", topic=name, partitions=len(assignment.replicas))
        state.unreadable = names - state.topics.keys()
        created = [p for name in sorted(fresh) for p in state.topics[name].partitions.values()]
        yield from self._create(created)

    def topic_changed(self, name: str, assignment: TopicAssignment) -> Steps:
        topic = self.state.topics.get(name)
        if topic is None or name in self.state.to_delete | self.state.deletion_blocked:
            return
        added = []
        for index in sorted(assignment.replicas):
            if index in topic.partitions:
                continue
            topic.partitions[index] = Partition(topic, index, assignment)
            added.append(topic.partitions[index])
        if added:
            yield self.state.change("partitions_added", topic=name, added=len(added))
        yield from self._create(added)

    def _create(self, partitions: Sequence[Partition]) -> Steps:
        if not partitions:
            return
        replicas = [
            (partition, broker) for partition in partitions for broker in partition.replicas
        ]
        yield from self._partitions.to_new(partitions)
        yield from self._replicas.to_new(replicas)
        yield from self._partitions.to_online(partitions)
        yield from self._replicas.to_online(replicas)
        yield from self._batch.flush()

    def deletion_asked(self, names: Sequence[str]) -> Steps:
        state = self.state
        missing = [name for name in names if name not in state.topics.keys() | state.unreadable]
        if not self._delete_topic_enable:
            missing = list(names)
        if missing:
            yield _unmark(missing)
        marked = state.to_delete | state.deletion_blocked
        fresh = [n for n in names if n in state.topics and n not in missing and n not in marked]
        if not fresh:
            return
        self._mark_for_deletion(fresh)
        blocked = [name for name in fresh if name in state.deletion_blocked]
        yield state.change("deletion_asked", topics=fresh, blocked=blocked)
        yield from self._resume_deletions()

    def _resume_deletions(self, names: Collection[str] | None = None) -> Steps:
        """Tells clients, then deletes the replicas of live brokers, then the nodes."""
        state = self.state
        ready = []
        done = []
        for name in sorted(state.to_delete if names is None else state.to_delete & set(names)):
            topic = state.topics[name]
            states = {p.replica_state(b) for p, b in _replicas_of(topic)}
            if states <= {ReplicaState.DELETION_SUCCESSFUL}:
                done.append(topic)
            elif self._to_be_deleted(topic) or not all(map(_is_ended, topic.partitions.values())):
                ready.append(topic)
        yield from self._forget(done)
        if ready:
            yield from self._delete(ready)

    def _to_be_deleted(self, topic: Topic) -> list[Replica]:
        """Replicas whose live brokers have not been told."""
        told = (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL)
        return [
            (partition, broker)
            for partition, broker in _replicas_of(topic)
            if self.state.is_live(broker, partition.key)
            and partition.replica_state(broker) not in told
        ]

    def _delete(self, topics: Sequence[Topic]) -> Steps:
        partitions = [p for topic in topics for p in topic.partitions.values()]
        standing = [p for p in partitions if not _is_ended(p)]
        yield from self._partitions.to_offline(standing)
        yield from self._partitions.to_non_existent(standing)
        self._batch.update_metadata(self.state.brokers, partitions)
        yield from self._batch.flush()
        away = [
            (partition, broker)
            for topic in topics
            for partition, broker in _replicas_of(topic)
            if not self.state.is_live(broker, partition.key)
        ]
        yield from self._deletion_failed(away)
        replicas = [item for topic in topics for item in self._to_be_deleted(topic)]
        yield from self._replicas.mark(replicas, ReplicaState.OFFLINE)
        yield from self._replicas.to_deletion_started(replicas)
        yield from self._batch.flush()

    def stop_replica_answered(self, broker: int, response: StopReplicaResponse) -> Steps:
        state = self.state
        succeeded: list[Replica] = []
        failed: list[Replica] = []
        for key, error in response.errors.items():
            partition = state.partition(key)
            if (
                partition is None
                or partition.replica_state(broker) is not ReplicaState.DELETION_STARTED
            ):
                continue
            done = response.error is ErrorCode.NONE and error is ErrorCode.NONE
            (succeeded if done else failed).append((partition, broker))
        yield from self._replicas.mark(succeeded, ReplicaState.DELETION_SUCCESSFUL)
        if failed:
            yield from self._deletion_failed(failed)
        if succeeded:
            # Failed ones are tried again.
            yield from self._resume_deletions({partition.topic.name for partition, _ in succeeded})

    def _deletion_failed(self, replicas: Sequence[Replica]) -> Steps:
        """Deletion resumes when the broker is back."""
        for partition, broker in replicas:
            current = partition.replica_state(broker)
            if current in (ReplicaState.NEW, ReplicaState.ONLINE):
                yield from self._replicas.mark([(partition, broker)], ReplicaState.OFFLINE)
            if current not in (ReplicaState.DELETION_INELIGIBLE, ReplicaState.DELETION_SUCCESSFUL):
                ineligible = ReplicaState.DELETION_INELIGIBLE
                yield from self._replicas.mark([(partition, broker)], ineligible)

    def _forget(self, topics: Sequence[Topic]) -> Steps:
        if not topics:
            return
        for topic in topics:
            yield from self._replicas.mark(_replicas_of(topic), ReplicaState.NON_EXISTENT)
        yield DeleteTopicNodes([topic.name for topic in topics])
        for topic in topics:
            self.state.to_delete.discard(topic.name)
            self.state.topics.pop(topic.name, None)
            for failed in self.state.failed_replicas.values():
                failed.difference_update({p.key for p in topic.partitions.values()})
            yield self.state.change("topic_deleted", topic=topic.name)

    def _reassignments_ended(self, topics: Sequence[str]) -> Steps:
        state = self.state
        free = {n for n in topics if n in state.deletion_blocked and not state.topics[n].is_moving}
        if free:
            state.deletion_blocked -= free
            self._mark_for_deletion(free)
            yield from self._resume_deletions()

    # --- leadership ----------------------------------------------------------------------------

    def elect_preferred(self, keys: Sequence[TopicPartition] | None = None) -> Steps:
        """Makes the preferred replicas lead again (None = of all partitions)."""
        wanted = [
            partition
            for partition in self.state.chosen(keys)
            if partition.leadership is not None
            and partition.leadership.leader != partition.replicas[0]
            and partition.topic.name not in self.state.to_delete
            and self.state.is_live(partition.replicas[0], partition.key)
            and partition.replicas[0] not in self.state.suspects
            and partition.replicas[0] in partition.leadership.isr
        ]
        yield from self._partitions.to_online(wanted, preferred_election)
        yield from self._batch.flush()

    def imbalance_percent(self, broker: int) -> float:
        """Share of the partitions that prefer ``broker`` and have another leader."""
        preferring = [p for p in self.state.partitions() if p.replicas[0] == broker]
        astray = [p for p in preferring if p.leadership and p.leadership.leader != broker]
        return 100 * len(astray) / len(preferring) if preferring else 0.0

    def rebalance_leaders(self, threshold_percent: int) -> Steps:
        """The periodic election, for brokers above the threshold."""
        for broker in sorted(self.state.brokers):
            if self.imbalance_percent(broker) > threshold_percent:
                # A reassignment elects its leader at its end.
                keys = [
                    partition.key
                    for partition in self.state.partitions()
                    if partition.replicas[0] == broker and not partition.is_moving
                ]
                yield from self.elect_preferred(keys)


def _unmark(topics: Iterable[str]) -> DeleteNodes:
    """Of topics that do not exist or may not be deleted."""
    return DeleteNodes([delete_topic_path(topic) for topic in topics])


def _is_ended(partition: Partition) -> bool:
    return partition.state is PartitionState.NON_EXISTENT


def _replicas_of(topic: Topic) -> list[Replica]:
    return [
        (partition, broker)
        for partition in topic.partitions.values()
        for broker in partition.replicas
    ]
