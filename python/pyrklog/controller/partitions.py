"""Transitions of partitions: first leaders, elections, going offline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any

from pyrklog.base.pieces import pieces
from pyrklog.cluster.requests import TopicPartition
from pyrklog.controller.broker_request_batch import BrokerRequestBatch
from pyrklog.controller.effects import (
    UNCLEAN_ELECTION,
    Effect,
    Pause,
    ReadStates,
    ReadUnclean,
    StateChange,
    StateWrite,
    Steps,
    WriteStates,
)
from pyrklog.controller.eligible_leader_replicas import EligibleReplicas
from pyrklog.controller.invariants import check_leadership
from pyrklog.controller.leader_election import (
    Candidates,
    Election,
    is_unclean,
    offline_election,
)
from pyrklog.controller.partial_replicas import PartialReplicas
from pyrklog.controller.state import ControllerState, Partition, PartitionState
from pyrklog.metastore.znodes import Leadership

_Names = Generator[Effect, Any, frozenset[str]]
_Left = Generator[Effect, Any, list[Partition]]

ELECTION_ROUNDS_MAX = 3
"""How often a state that another broker wrote is read again and changed anew."""


class PartitionChanges:
    def __init__(self, state: ControllerState, batch: BrokerRequestBatch) -> None:
        self._state = state
        self._batch = batch
        self.eligible = EligibleReplicas(state)
        self.partial = PartialReplicas(state)

    def to_new(self, partitions: Sequence[Partition]) -> Steps:
        for partition in partitions:
            yield self._enter(partition, PartitionState.NEW)

    def to_offline(self, partitions: Sequence[Partition]) -> Steps:
        for partition in partitions:
            yield self._enter(partition, PartitionState.OFFLINE)

    def to_non_existent(self, partitions: Sequence[Partition]) -> Steps:
        for partition in partitions:
            yield self._enter(partition, PartitionState.NON_EXISTENT)

    def to_online(
        self, partitions: Sequence[Partition], election: Election = offline_election
    ) -> Steps:
        """Elects leaders; new partitions get their first one."""
        fresh = [item for item in partitions if item.leadership is None]
        led = [item for item in partitions if item.leadership is not None]
        for some in pieces(fresh):
            yield from self._first_leaders(some)
            yield Pause()
        for some in pieces(led):
            yield from self._elect(some, election)
            yield Pause()

    def _first_leaders(self, partitions: Sequence[Partition]) -> Steps:
        """The first live replica leads and all live ones are in sync: there are no records yet.

        Brokers that shut down or are suspected count only where there are no others.
        """
        wanted: dict[TopicPartition, Leadership] = {}
        for partition in partitions:
            live = self._state.lasting_replicas(partition)
            if live:
                wanted[partition.key] = Leadership(live[0], 0, live, self._state.epoch)
            else:
                self._batch.update_metadata(self._state.brokers, [partition])
                yield self._failed(partition, "no replica lives")
        writes = [state_write(item, wanted[item.key]) for item in partitions if item.key in wanted]
        written: dict[TopicPartition, int | None] = yield WriteStates(writes)
        for partition in partitions:
            leadership = wanted.get(partition.key)
            if leadership is None:
                continue
            version = written[partition.key]
            if version is None:
                yield self._failed(partition, "its state is there already")
                continue
            partition.lead(leadership, version)
            live = self._state.live_replicas(partition)
            self._batch.leader_and_isr(live, partition, is_new=True)
            yield self._enter(partition, PartitionState.ONLINE)

    def _elect(self, partitions: Sequence[Partition], election: Election) -> Steps:
        unclean = yield from self._unclean_topics(partitions, election)
        yield from self._write_some(
            partitions,
            lambda partition: election(self._candidates(partition, unclean)),
            failure="no replica may lead",
        )

    def _unclean_topics(self, partitions: Sequence[Partition], election: Election) -> _Names:
        if election is not offline_election:
            return frozenset()
        topics = {p.topic.name for p in partitions if not self._has_candidate(p)}
        if not topics:
            return frozenset()
        unclean: frozenset[str] = yield ReadUnclean(sorted(topics))
        return unclean

    def _has_candidate(self, partition: Partition) -> bool:
        leadership = partition.leadership
        assert leadership is not None
        live = set(self._state.live_replicas(partition)) - set(leadership.unclean)
        return any(broker in live for broker in leadership.members)

    def _candidates(self, partition: Partition, unclean: frozenset[str]) -> Candidates:
        assert partition.leadership is not None
        live = self._state.electable_replicas(partition)
        return Candidates(
            assignment=partition.replicas,
            live=[b for b in live if b not in partition.partial] if partition.partial else live,
            current=partition.leadership,
            controller_epoch=self._state.epoch,
            unclean=partition.topic.name in unclean,
            shutting_down=self._state.shutting_down,
            targets=[b for b in partition.replicas if b not in partition.removing],
        )

    def write_changed(
        self,
        partitions: Sequence[Partition],
        change: Callable[[Partition], Leadership | None],
    ) -> Steps:
        """Writes what ``change`` returns for each partition (None = no change), tells its replicas.

        A state that another broker wrote is read again and changed anew.
        """
        for some in pieces(partitions):
            yield from self._write_some(some, change)
            yield Pause()

    def _write_some(
        self,
        partitions: Sequence[Partition],
        change: Callable[[Partition], Leadership | None],
        failure: str | None = None,
    ) -> Steps:
        """Logs ``failure`` where ``change`` returns None."""
        left = list(partitions)
        for _ in range(ELECTION_ROUNDS_MAX):
            wanted = {}
            for partition in left:
                changed = change(partition)
                if changed is not None:
                    wanted[partition.key] = changed
                elif failure is not None:
                    yield self._failed(partition, failure)
            left = yield from self._write([p for p in left if p.key in wanted], wanted)
            if not left:
                return
            yield from self._read_again(left)
        for partition in left:
            yield self._failed(partition, "its state keeps changing")

    def _write(
        self, partitions: Sequence[Partition], wanted: dict[TopicPartition, Leadership]
    ) -> _Left:
        """Writes and enters Online where the leader lives; returns the refused ones.

        When several brokers go at once, a partition may lose a replica while its leader is gone
        too.
        """
        if not partitions:
            return []
        decided = yield from self.eligible.decide({p: wanted[p.key] for p in partitions})
        writes = [state_write(partition, after) for partition, after in decided.items()]
        written: dict[TopicPartition, int | None] = yield WriteStates(writes)
        refused = []
        for partition in partitions:
            version = written[partition.key]
            if version is None:
                refused.append(partition)
                continue
            before, leadership = partition.leadership, decided[partition]
            unclean = before is not None and is_unclean(before, leadership)
            if before is not None and unclean:
                yield self._unclean(partition, before, leadership)
            partition.lead(leadership, version)
            self._batch.leader_and_isr(self._state.live_replicas(partition), partition)
            if self._state.is_live(leadership.leader, partition.key):
                yield self._enter(partition, PartitionState.ONLINE, unclean=unclean)
        yield from self.partial.leaders_elected(partitions)
        return refused

    def _read_again(self, partitions: Sequence[Partition]) -> Steps:
        found: dict[TopicPartition, tuple[Leadership, int]] = yield ReadStates(
            [partition.key for partition in partitions]
        )
        for partition in partitions:
            if partition.key in found:
                partition.lead(*found[partition.key])

    def _enter(
        self, partition: Partition, state: PartitionState, *, unclean: bool = False
    ) -> StateChange:
        before = partition.enter(state)
        leadership = partition.leadership
        fields: dict[str, object] = {
            "from": before.value,
            "to": state.value,
            "leader": leadership.leader if leadership else None,
            "leader_epoch": leadership.leader_epoch if leadership else None,
            "isr": leadership.isr if leadership else None,
            "eligible": leadership.eligible if leadership else None,
        }
        if unclean:
            fields["unclean"] = True
        return self._state.partition_change("partition_state", partition, fields)

    def _unclean(self, partition: Partition, before: Leadership, after: Leadership) -> StateChange:
        fields = {
            "leader": after.leader,
            "leader_epoch": after.leader_epoch,
            "isr_before": before.isr,
            "consequence": "acknowledged records may be lost",
        }
        return self._state.partition_change(UNCLEAN_ELECTION, partition, fields)

    def _failed(self, partition: Partition, why: str) -> StateChange:
        fields = {
            "state": partition.state.value,
            "replicas": partition.replicas,
            "isr": partition.leadership.isr if partition.leadership else None,
            "reason": why,
        }
        return self._state.partition_change("partition_state_failed", partition, fields)


class Procedures:
    def __init__(
        self, state: ControllerState, batch: BrokerRequestBatch, partitions: PartitionChanges
    ) -> None:
        self._state = state
        self._batch = batch
        self._partitions = partitions


def state_write(partition: Partition, after: Leadership, whole: Collection[int] = ()) -> StateWrite:
    """``whole`` are partial replicas that lack nothing any more. Raises :class:`InvariantError`."""
    before = partition.leadership
    partial = [broker for broker in partition.partial if broker not in whole]
    check_leadership(partition.key, partition.replicas, before, after, partial)
    had_eligible = before is not None and bool(before.eligible or before.unclean)
    return StateWrite(partition.key, after, partition.partition_epoch, had_eligible)
