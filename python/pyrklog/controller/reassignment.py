"""Reassignments, step by step (``cluster.md``, section 6). Pure.

Steps and order are Kafka's (3.9, KIP-455), except that replicas added in vain go first. The topic's
znode is written first, with the targets and the old replicas, and last, with the targets alone. A
controller that fails in between leaves all that its successor needs, which goes on from there:
every step may run twice.

Where Kafka would go on without a leader (no target may lead, a state cannot be written), the
reassignment waits for the next event. A replica on a dead broker is forgotten, as in Kafka: its log
stays on that broker's disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Any

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.requests import Refusal, TopicPartition
from pyrklog.controller.broker_request_batch import BrokerRequestBatch
from pyrklog.controller.effects import (
    Effect,
    StateChange,
    Steps,
    UnmarkReassignments,
    WriteAssignments,
)
from pyrklog.controller.invariants import check_assignment
from pyrklog.controller.leader_election import reassignment_election, same_leader
from pyrklog.controller.partitions import PartitionChanges, Procedures
from pyrklog.controller.replicas import Replica, ReplicaChanges
from pyrklog.controller.state import ControllerState, Partition, PartitionState, ReplicaState
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import Leadership

Targets = Sequence[int] | None
"""The wanted replicas; None cancels."""


ACCEPTED = Refusal(ErrorCode.NONE)

_Moves = dict[Partition, PartitionAssignment]
_Refused = Generator[Effect, Any, dict[Partition, ErrorCode]]


class Reassignments(Procedures):
    def __init__(
        self,
        state: ControllerState,
        batch: BrokerRequestBatch,
        partitions: PartitionChanges,
        replicas: ReplicaChanges,
        ended: Callable[[Sequence[str]], Steps],
    ) -> None:
        """``ended`` is called with the topics whose reassignments are over."""
        super().__init__(state, batch, partitions)
        self._replicas = replicas
        self._ended = ended

    # --- what is asked for -----------------------------------------------------------------------

    def alter(
        self,
        wanted: Mapping[TopicPartition, Targets],
        results: dict[TopicPartition, Refusal],
        at_end: Collection[TopicPartition] = (),
    ) -> Steps:
        """AlterPartitionReassignments; ``results`` gets one for each partition. New replicas of
        ``at_end`` start at their leaders' ends, where leader and replica can.

        Drops what the legacy znode wants of these partitions: the latest request counts.
        """
        moves: _Moves = {}
        for key, targets in wanted.items():
            refusal = self._refusal(key, targets)
            results[key] = refusal
            partition = self._state.partition(key)
            if refusal is ACCEPTED and partition is not None:
                current = partition.assignment
                moves[partition] = current.towards(current.origin if targets is None else targets)
        if not moves:
            return
        yield UnmarkReassignments({partition.key: None for partition in moves})
        yield from self._begin(moves, results, at_end)

    def asked_by_znode(self, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> Steps:
        """Takes the content of /admin/reassign_partitions; done and refused entries go."""
        if not wanted:
            yield UnmarkReassignments({})
        moves: _Moves = {}
        settled: dict[TopicPartition, tuple[int, ...] | None] = {}
        for key, targets in wanted.items():
            partition = self._state.partition(key)
            if partition is not None and partition.assignment.targets == targets:
                if not partition.is_moving:
                    settled[key] = targets
                continue
            refusal = self._refusal(key, targets)
            if partition is None or refusal is not ACCEPTED:
                settled[key] = targets
                yield self._failed(key, refusal.message)
            else:
                moves[partition] = partition.assignment.towards(targets)
        if settled:
            yield UnmarkReassignments(settled)
        if moves:
            yield from self._begin(moves, {})

    def list(
        self, keys: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionAssignment]:
        """The moving ones of these partitions (None = all)."""
        return {p.key: p.assignment for p in self._state.chosen(keys) if p.is_moving}

    def _refusal(self, key: TopicPartition, targets: Targets) -> Refusal:
        partition = self._state.partition(key)
        if targets is None:
            if partition is None or not partition.is_moving:
                return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            return self._cannot_lead(partition, partition.assignment.origin)
        wrong = self._wrong_with(partition, targets)
        if wrong is not None:
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong)
        marked = self._state.to_delete | self._state.deletion_blocked
        if partition is None or key[0] in marked:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        return self._cannot_lead(partition, partition.assignment.towards(targets).replicas)

    def _wrong_with(self, partition: Partition | None, targets: Sequence[int]) -> str | None:
        if not targets:
            return "The list of replicas is empty."
        if len(set(targets)) != len(targets):
            return f"The list of replicas names a broker twice: {list(targets)}."
        if min(targets) < 0:
            return f"The list of replicas has a negative broker id: {list(targets)}."
        current = partition.assignment if partition is not None else PartitionAssignment(())
        adding = current.towards(targets).adding
        dead = [broker for broker in adding if not self._state.may_be_given(broker)]
        if dead:
            return f"Brokers {dead} of the new replicas {list(adding)} are not alive."
        return None

    def _cannot_lead(self, partition: Partition, kept: Sequence[int]) -> Refusal:
        """Refuses where the only replicas with the acknowledged records would leave at once."""
        leadership = partition.leadership
        leaves = [broker for broker in partition.replicas if broker not in kept]
        if leadership is None or set(leadership.members).isdisjoint(leaves):
            return ACCEPTED
        # An eligible replica may have lost power unnoticed. A marked one may lack records.
        whole = set(leadership.isr).intersection(kept).difference(leadership.unclean)
        if any(self._state.is_live(broker, partition.key) for broker in whole):
            return ACCEPTED
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Of brokers {leaves}, which are to go, some are in sync or eligible, and no other "
            "that lives is in sync: records could be lost.",
        )

    # --- the steps -------------------------------------------------------------------------------

    def _begin(
        self,
        moves: _Moves,
        results: dict[TopicPartition, Refusal],
        at_end: Collection[TopicPartition] = (),
    ) -> Steps:
        """Step 1: drops what a running reassignment added in vain, then writes the znode.

        Partial replicas are written before they are added.
        """
        before = {partition: partition.assignment for partition in moves}
        yield from self._drop_unneeded(moves, results)
        concerned = list(moves)
        added = {p: set(a.adding).difference(before[p].adding) for p, a in moves.items()}
        yield from self._partitions.partial.add({p: b for p, b in added.items() if p.key in at_end})
        refused = yield from self._write(
            {p: assignment for p, assignment in moves.items() if assignment != before[p]}
        )
        for partition, error in refused.items():
            del moves[partition]
            results[partition.key] = Refusal(error)
        for partition, assignment in moves.items():
            partition.reassign(assignment)
            yield self._line("reassignment_started", partition, before[partition])
        yield from self._partitions.partial.settle(concerned)
        reordered = {p for p, a in moves.items() if _is_reordered(before[p], a)}
        yield from self._invite([p for p in moves if not self._has_arrived(p)])
        yield from self.complete(list(moves), reordered)

    def _drop_unneeded(self, moves: _Moves, results: dict[TopicPartition, Refusal]) -> Steps:
        """Drops replicas added in vain; takes partitions where that fails out of ``moves``.

        While the znode has them, a successor knows of them. Kafka writes the znode first: a failure
        after that leaves a broker in the ISR, or as leader, that is not a replica any more.
        """
        before = {partition: partition.assignment for partition in moves}
        unneeded = {
            p: tuple(b for b in before[p].replicas if b not in assignment.replicas)
            for p, assignment in moves.items()
        }
        unneeded = {p: brokers for p, brokers in unneeded.items() if brokers}
        for partition, brokers in unneeded.items():
            partition.reassign(before[partition].without(brokers))
        yield from self._partitions.to_online(
            [partition for partition, brokers in unneeded.items() if partition.leader in brokers]
        )
        yield from self._drop(unneeded)
        for partition, brokers in unneeded.items():
            if self._has_members(partition, brokers):
                partition.reassign(before[partition])
                del moves[partition]
                refusal = Refusal(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Brokers {brokers} stay in sync, or eligible.",
                )
                results[partition.key] = refusal
                yield self._failed(partition.key, refusal.message)

    def resume(self, partitions: Sequence[Partition]) -> Steps:
        waiting = [p for p in partitions if not self._has_arrived(p)]
        yield from self._invite(waiting)
        # A partition without a leader has all live replicas in sync from its first leader on.
        yield from self.complete(partitions)

    def complete(
        self, partitions: Sequence[Partition], reordered: Collection[Partition] = ()
    ) -> Steps:
        """Steps 4 to 7 for partitions with all targets in sync. The replicas of ``reordered`` know
        all that concerns them: an order concerns elections alone.

        Where only the order changes, it waits for nothing, not even a leader: no event would resume
        it, and the legacy znode would stay.
        """
        arrived = [p for p in partitions if self._has_arrived(p)]
        if not arrived:
            return
        before = {partition: partition.assignment for partition in arrived}
        for partition in arrived:
            yield from self._replicas.mark(
                [
                    (partition, broker)
                    for broker in partition.adding
                    if partition.replica_state(broker) is ReplicaState.NEW
                ],
                ReplicaState.ONLINE,
            )
            # A replica that leaves must not rejoin the ISR.
            partition.reassign(PartitionAssignment(before[partition].targets))
        yield from self._lead_by_targets(arrived, reordered)
        led = [p for p in arrived if self._is_led_by_target(p)]
        yield from self._drop({p: before[p].removing for p in led if before[p].removing})
        done = [
            p
            for p in arrived
            if not before[p].is_moving
            or (p in led and not self._has_members(p, before[p].removing))
        ]
        for partition in arrived:
            if partition not in done:
                partition.reassign(before[partition])
                yield self._failed(partition.key, "no target leads")
        yield from self._finish({partition: before[partition] for partition in done})

    def _has_arrived(self, partition: Partition) -> bool:
        """Step 3: every target in sync, and one of them able to lead."""
        if not partition.is_moving:
            return True
        leadership = partition.leadership
        if leadership is None:
            return False
        targets = partition.assignment.targets
        is_live = any(self._state.is_live(broker, partition.key) for broker in targets)
        return is_live and set(targets) <= set(leadership.isr)

    def _invite(self, partitions: Sequence[Partition]) -> Steps:
        """Step 2: tells all replicas the assignment; added ones start as new."""
        fresh = [p for p in partitions if p.leadership is None]
        led = [p for p in partitions if p.leadership is not None]
        yield from self._bump(led)
        for partition in partitions:
            unborn = [
                (partition, broker)
                for broker in partition.adding
                if partition.replica_state(broker) is ReplicaState.NON_EXISTENT
            ]
            yield from self._replicas.to_new(unborn)
            if partition.leadership is not None:
                self._batch.leader_and_isr(partition.adding, partition, is_new=True)
        yield from self._partitions.to_online(
            [p for p in fresh if p.state is PartitionState.NEW and self._state.live_replicas(p)]
        )
        yield from self._batch.flush()

    def _bump(self, partitions: Sequence[Partition]) -> Steps:
        yield from self._partitions.write_changed(
            partitions,
            lambda p: p.leadership and same_leader(p.leadership, self._state.epoch),
        )

    def _lead_by_targets(
        self, partitions: Sequence[Partition], reordered: Collection[Partition]
    ) -> Steps:
        """Step 4: replaces a leader that leaves; a leader that stays learns of its new replicas.

        Replicas that leave do not follow the new epoch, so they leave the ISR with it. Kafka takes
        them out in a further write, and producers wait for that.
        """
        astray = [p for p in partitions if not self._is_led_by_target(p)]
        left = set(astray).union(reordered)
        yield from self._partitions.to_online(astray, reassignment_election)
        yield from self._partitions.write_changed(
            [p for p in partitions if p not in left], self._among_targets
        )
        yield from self._batch.flush()

    def _among_targets(self, partition: Partition) -> Leadership | None:
        """A new epoch of the same leader, with the targets alone in sync."""
        current = partition.leadership
        if current is None:
            return None
        isr = tuple(broker for broker in current.isr if broker in partition.replicas)
        return same_leader(current._replace(isr=isr or current.isr), self._state.epoch)

    def _is_led_by_target(self, partition: Partition) -> bool:
        return partition.leader in self._state.live_replicas(partition)

    def _drop(self, dropped: Mapping[Partition, Sequence[int]]) -> Steps:
        """Steps 5 and 6: takes replicas out of the ISR and the eligible ones, stops, deletes and
        forgets them, without waiting for answers.
        """
        leaving: list[Replica] = [
            (partition, broker)
            for partition, brokers in dropped.items()
            for broker in brokers
            if partition.replica_state(broker) is not ReplicaState.NON_EXISTENT
        ]
        yield from self._replicas.to_offline(leaving)
        # An eligible broker that is not a replica any more goes with the next state written. A
        # successor that found it eligible would elect it with an empty log.
        counted = [p for p, brokers in dropped.items() if self._has_members(p, brokers)]
        yield from self._bump(counted)
        yield from self._batch.flush()
        gone = [item for item in leaving if not self._has_members(item[0], dropped[item[0]])]
        yield from self._replicas.to_deletion_started(gone)
        yield from self._batch.flush()
        yield from self._replicas.mark(gone, ReplicaState.DELETION_SUCCESSFUL)
        yield from self._replicas.mark(gone, ReplicaState.NON_EXISTENT)
        for partition, broker in gone:
            self._state.failed_replicas.get(broker, set()).discard(partition.key)

    def _has_members(self, partition: Partition, brokers: Sequence[int]) -> bool:
        leadership = partition.leadership
        return leadership is not None and bool(set(brokers) & set(leadership.members))

    def _finish(self, before: Mapping[Partition, PartitionAssignment]) -> Steps:
        """Step 7: writes the topic's znode and tells everybody."""
        if not before:
            return
        yield from self._write({p: p.assignment for p in before if before[p] != p.assignment})
        yield from self._partitions.partial.settle(before)
        yield UnmarkReassignments({p.key: p.replicas for p in before})
        for partition in before:
            yield self._line("reassignment_completed", partition, before[partition])
        self._batch.update_metadata(self._state.brokers, before)
        yield from self._batch.flush()
        yield from self._ended(sorted({partition.topic.name for partition in before}))

    def _write(self, assignments: _Moves) -> _Refused:
        """Writes once per topic; returns the partitions of topics that are gone or too large.

        Raises :class:`InvariantError`.
        """
        by_topic: dict[str, dict[int, PartitionAssignment]] = {}
        for partition, assignment in assignments.items():
            check_assignment(partition.key, partition.assignment, assignment)
            by_topic.setdefault(partition.topic.name, {})[partition.index] = assignment
        errors: dict[str, ErrorCode] = {}
        for topic, found in by_topic.items():
            errors[topic] = yield WriteAssignments(topic, found)
        return {
            partition: errors[partition.topic.name]
            for partition in assignments
            if errors[partition.topic.name] is not ErrorCode.NONE
        }

    # --- the log ---------------------------------------------------------------------------------

    def _line(self, event: str, partition: Partition, before: PartitionAssignment) -> StateChange:
        fields = {
            "from": before.replicas,
            "to": partition.replicas,
            "adding": partition.adding,
            "removing": partition.removing,
        }
        return self._state.partition_change(event, partition, fields)

    def _failed(self, key: TopicPartition, why: str | None) -> StateChange:
        topic, partition = key
        return self._state.change(
            "reassignment_failed", topic=topic, partition=partition, reason=why
        )


def _is_reordered(before: PartitionAssignment, after: PartitionAssignment) -> bool:
    """Whether only the order of replicas changes."""
    is_moving = before.is_moving or after.is_moving
    return not is_moving and set(before.replicas) == set(after.replicas)
