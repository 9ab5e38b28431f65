"""Maintains the ISRs of partitions that this broker leads.

The plane reports followers that have caught up or lag; :mod:`.isr` decides; the controller writes
(AlterPartition). Proposals of many partitions share one request, one request at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from pyrklog.base.logs import get_logger
from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrChange,
    TopicPartition,
)
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import RECOVERED
from pyrklog.plane.core_plane import Plane
from pyrklog.protocol.inter_broker import PartitionInfo
from pyrklog.replication.isr import Committed, InSyncReplicas, Proposal

UNKNOWN_EPOCH = -1

log = get_logger("replication")


class Led(NamedTuple):
    topic_id: bytes
    replicas: InSyncReplicas
    broker_epochs: dict[int, int]
    """Of followers, from their fetches."""
    partial: frozenset[int] = frozenset()
    """Followers that the plane reports only once they lack no older records."""


class IsrManager:
    def __init__(
        self,
        node_id: int,
        plane: Plane,
        *,
        live_brokers: Callable[[], Collection[int]],
        broker_epoch: Callable[[], int],
        on_proposed: Callable[[], None],
    ) -> None:
        """``on_proposed`` is called when there is a new proposal."""
        self._node_id = node_id
        self._plane = plane
        self._live_brokers = live_brokers
        self._broker_epoch = broker_epoch
        self._on_proposed = on_proposed
        self._led: dict[TopicPartition, Led] = {}
        self._proposals: dict[TopicPartition, Proposal] = {}
        """To be sent; one for each partition."""
        self._too_early: dict[TopicPartition, set[int]] = {}
        """Followers that have caught up but are not known to live."""
        self.expands = self.shrinks = 0
        """Changes that the controller has written as this broker proposed them."""

    # --- what the controller says ----------------------------------------------------------------

    def leads(self, topic: str, topic_id: bytes, info: PartitionInfo) -> None:
        key = (topic, info.partition)
        committed = Committed(
            info.isr, info.leader_epoch, info.partition_epoch, info.eligible, info.recovery_state
        )
        known = self._led.get(key)
        partial = frozenset(info.partial)
        if known is None or known.topic_id != topic_id:
            replicas = InSyncReplicas(self._node_id, committed)
            self._led[key] = Led(topic_id, replicas, {}, partial)
        else:
            known.replicas.told(committed)
            self._led[key] = known._replace(partial=partial)
        self._proposals.pop(key, None)

    def brokers_changed(self) -> None:
        """Tells the plane anew about followers that were too early."""
        early, self._too_early = self._too_early, {}
        for key in early:
            if key in self._led:
                self._tell_plane(key, self._led[key])

    def leads_no_more(self, key: TopicPartition) -> None:
        self._led.pop(key, None)
        self._proposals.pop(key, None)
        self._too_early.pop(key, None)

    # --- what the plane says ---------------------------------------------------------------------

    def caught_up(
        self, key: TopicPartition, leader_epoch: int, broker: int, broker_epoch: int
    ) -> None:
        """A follower's log reaches the high watermark and the epoch's start."""
        led = self._led.get(key)
        if led is None or led.replicas.committed.leader_epoch != leader_epoch:
            return
        led.broker_epochs[broker] = broker_epoch
        if broker not in self._live_brokers():
            # The controller would refuse; the plane reports it again when more brokers live.
            self._too_early.setdefault(key, set()).add(broker)
            return
        self._consider(key, led, lambda: led.replicas.caught_up([broker]))

    def look_for_laggards(self, max_lag_ms: int) -> None:
        """Proposes to remove followers that have lagged so long.

        Followers that were too early for as long are proposed all the same: the controller knows
        the live brokers, and its messages may have come out of order.
        """
        early, self._too_early = self._too_early, {}
        for key, brokers in early.items():
            waited_for = self._led.get(key)
            if waited_for is not None:
                replicas = waited_for.replicas
                self._consider(key, waited_for, partial(replicas.caught_up, brokers))
        for found in self._plane.lagging_followers(max_lag_ms):
            key = (found.topic, found.partition)
            led = self._led.get(key)
            if led is not None and led.replicas.committed.leader_epoch == found.leader_epoch:
                self._consider(key, led, partial(led.replicas.behind, found.brokers))

    def _consider(self, key: TopicPartition, led: Led, ask: Callable[[], Proposal | None]) -> None:
        """A failing partition must not hold up others or the caller."""
        try:
            self._propose(key, led, ask())
        except Exception as error:
            log.error("isr_set_aside", topic=key[0], partition=key[1], exc_info=error)

    def _propose(self, key: TopicPartition, led: Led, proposal: Proposal | None) -> None:
        if proposal is None:
            return
        # A joining replica counts from now on. If it lacks records by now, the plane refuses, and
        # reports it again when it has them.
        if not self._tell_plane(key, led):
            led.replicas.withdraw(proposal)
            return
        self._proposals[key] = proposal
        self._on_proposed()

    def _tell_plane(self, key: TopicPartition, led: Led) -> bool:
        committed = led.replicas.committed
        return self._plane.set_isr(
            *key,
            committed.leader_epoch,
            led.replicas.maximal,
            committed.isr,
            bool(committed.eligible),
        )

    # --- asking ----------------------------------------------------------------------------------

    @property
    def proposals(self) -> Mapping[TopicPartition, Proposal]:
        return dict(self._proposals)

    def set_aside(self, key: TopicPartition) -> None:
        """Drops a proposal that cannot be sent or whose answer cannot be taken."""
        proposal = self._proposals.pop(key, None)
        led = self._led.get(key)
        if proposal is not None and led is not None:
            led.replicas.withdraw(proposal)

    def request(self, asked: Mapping[TopicPartition, Proposal]) -> AlterPartitionRequest:
        changes = []
        for key, proposal in asked.items():
            led = self._led[key]
            members = [(b, self._epoch_of(led, b)) for b in proposal.isr]
            # A leader counts as recovered once another replica has joined its ISR.
            recovery_state = led.replicas.committed.recovery_state
            changes.append(
                IsrChange(
                    led.topic_id,
                    key[1],
                    proposal.leader_epoch,
                    proposal.partition_epoch,
                    members,
                    recovery_state if len(members) == 1 else RECOVERED,
                    tuple(broker for broker in proposal.isr if broker in led.partial),
                )
            )
        return AlterPartitionRequest(self._node_id, self._broker_epoch(), changes)

    def _epoch_of(self, led: Led, broker: int) -> int:
        if broker == self._node_id:
            return self._broker_epoch()
        if broker in led.replicas.committed.isr:
            # Members may have registered anew since they joined; KIP-903 fences joining ones.
            return UNKNOWN_EPOCH
        return led.broker_epochs.get(broker, UNKNOWN_EPOCH)

    def take(
        self, asked: Mapping[TopicPartition, Proposal], response: AlterPartitionResponse
    ) -> bool:
        """Takes the answer; False where the next request must wait a little."""
        if response.error is not ErrorCode.NONE:
            log.warning("isr_refused", error=response.error.name, partitions=len(asked))
            return False
        answers = {(item.topic_id, item.partition): item for item in response.results}
        is_done = True
        for key, proposal in asked.items():
            led = self._led.get(key)
            if led is None or self._proposals.get(key) != proposal:
                continue  # overtaken by a newer decision
            answer = answers.get((led.topic_id, key[1]))
            if answer is None:
                is_done = False
                continue
            if answer.error is ErrorCode.NONE:
                written = Committed(
                    tuple(answer.isr),
                    answer.leader_epoch,
                    answer.partition_epoch,
                    tuple(answer.eligible),
                    answer.recovery_state,
                )
                before = led.replicas.committed.isr
                if led.replicas.done(proposal, written):
                    self._count(before, written.isr)
                    self._report(key, proposal, written)
                again = False
            else:
                again = led.replicas.failed(proposal, answer.error)
                # Not at once: the plane may report the same follower at its next fetch.
                is_done = False
                log.info(
                    "isr_change_refused",
                    topic=key[0],
                    partition=key[1],
                    isr=list(proposal.isr),
                    error=answer.error.name,
                )
            if again:
                continue
            del self._proposals[key]
            self._tell_plane(key, led)
        return is_done

    def _count(self, before: Collection[int], after: Collection[int]) -> None:
        self.expands += not set(after) <= set(before)
        self.shrinks += not set(before) <= set(after)

    def _report(self, key: TopicPartition, proposal: Proposal, written: Committed) -> None:
        log.info(
            "isr_changed",
            topic=key[0],
            partition=key[1],
            isr=list(written.isr),
            leader_epoch=proposal.leader_epoch,
            partition_epoch=written.partition_epoch,
        )
