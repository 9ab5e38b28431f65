"""Which of the controller's requests this broker follows. Pure.

Fencing (Kafka 3.9): a request of an older controller epoch or broker epoch is refused as a whole. A
partition changes only with a higher leader epoch than its present one, or the one at its stop. An
equal one is answered STALE_CONTROLLER_EPOCH, which is harmless: the request came twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyrklog.cluster.requests import (
    EPOCH_DURING_DELETE,
    EPOCH_NONE,
    NO_TOPIC_ID,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from pyrklog.errors import ErrorCode
from pyrklog.plane.values import FollowerSpec, LeaderSpec
from pyrklog.protocol.inter_broker import PartitionInfo

UNKNOWN_BROKER_EPOCH = -1
STOPPED_MAX = 10_000


@dataclass(slots=True)
class Hosted:
    """A partition that this broker leads or follows."""

    topic_id: bytes
    leader_epoch: int
    leads: bool
    serving_since: int | None = None
    """The first epoch of this unbroken leadership in which the plane served the log."""
    adding: tuple[int, ...] = ()
    """Replicas that a running reassignment adds."""
    is_reassigned: bool = False
    """Whether a reassignment adds or removes replicas."""
    partial: tuple[int, ...] = ()
    """Those of them that lack older records (``expansion.md``)."""


class LeadershipDecision(NamedTuple):
    error: ErrorCode
    """Of the whole request; then nothing else is set."""
    errors: dict[TopicPartition, ErrorCode]
    """Partitions that are answered at once."""
    lead: list[LeaderSpec]
    """For the plane, which answers later."""
    follow: list[FollowerSpec]
    """The same for partitions with another leader, or none."""


class StopDecision(NamedTuple):
    error: ErrorCode
    errors: dict[TopicPartition, ErrorCode]
    stop: list[tuple[str, int, bool]]


class Replicas:
    """This broker's partitions and the epochs it has seen."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.controller_epoch = 0
        self.hosted: dict[TopicPartition, Hosted] = {}
        self.adding_changes = 0
        """How often :meth:`adding`, :meth:`partial` or :meth:`is_reassigned` of some partition has
        changed; metadata tells nothing of it."""
        self.is_told = False
        """Whether an UpdateMetadata was taken since the last registration: the first one for a
        registration tells everything, also where an unreadable topic keeps it from being full."""
        self.failed: set[TopicPartition] = set()
        """Offline here until the next start: on failed log directories, or broken themselves."""
        self._stopped: dict[tuple[bytes, int], int] = {}
        """(topic id, partition) -> leader epoch, of replicas stopped in this controller's term.

        An earlier LeaderAndIsr, late over a broken connection, would bring one back.
        """
        self._last_metadata = (0, 0)
        """Controller epoch and number of the latest UpdateMetadata."""

    def registered(self, broker_epoch: int) -> None:
        """Requests for earlier broker epochs are refused from now on."""
        self.broker_epoch = broker_epoch
        self.is_told = False
        self._stopped.clear()
        # A store restored from a copy repeats the epochs, with other numbers.
        self._last_metadata = (0, 0)

    def _fence(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if UNKNOWN_BROKER_EPOCH != broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch > self.controller_epoch:
            self.controller_epoch = controller_epoch
            self._stopped.clear()
        return ErrorCode.NONE

    def metadata_told(self, request: UpdateMetadataRequest) -> ErrorCode:
        return self._fence(request.controller_epoch, request.broker_epoch)

    def is_late(self, request: UpdateMetadataRequest) -> bool:
        """Whether a later UpdateMetadata of its term was taken before.

        A controller sends the next one after an answer, so a late one is a repetition over a broken
        connection.
        """
        if not request.number:
            return False
        place = request.controller_epoch, request.number
        if place < self._last_metadata:
            return True
        self._last_metadata = place
        return False

    def metadata_taken(self, request: UpdateMetadataRequest) -> None:
        """One for an earlier registration may tell an old state."""
        self.is_told = self.is_told or request.broker_epoch == self.broker_epoch

    def strays(self, request: UpdateMetadataRequest) -> list[tuple[str, int, bool]]:
        """Hosted partitions that are elsewhere in a later epoch: to be stopped, not deleted.

        A broker that was away during a reassignment learns of it only this way, and would lead on.
        """
        found = []
        for topic in request.topics:
            for info in topic.partitions:
                key = (topic.topic, info.partition)
                known = self.hosted.get(key)
                if (
                    known is not None
                    and self.node_id not in info.replicas
                    and info.leader_epoch > known.leader_epoch
                    and known.topic_id == topic.topic_id
                    and key not in self.failed
                ):
                    del self.hosted[key]
                    self._remember_stop(info.partition, known, info.leader_epoch)
                    found.append((*key, False))
        return found

    def leadership_told(self, request: LeaderAndIsrRequest) -> LeadershipDecision:
        decision = LeadershipDecision(
            self._fence(request.controller_epoch, request.broker_epoch), {}, [], []
        )
        if decision.error is not ErrorCode.NONE:
            return decision
        for topic in request.topics:
            for info in topic.partitions:
                self._told(topic.topic, topic.topic_id, info, decision)
        return decision

    def _told(
        self, topic: str, topic_id: bytes, info: PartitionInfo, decision: LeadershipDecision
    ) -> None:
        key = (topic, info.partition)
        error = self._refusal(key, topic_id, info)
        if error is not ErrorCode.NONE:
            decision.errors[key] = error
            return
        leads = info.leader == self.node_id
        self._stopped.pop((topic_id, info.partition), None)
        known = self.hosted.get(key)
        # A leader that stays one serves on: a smaller ISR must not make its coordinators drop
        # groups.
        since = known.serving_since if leads and known is not None else None
        is_reassigned = bool(info.adding or info.removing)
        self.adding_changes += (info.adding, info.partial, is_reassigned) != (
            self.adding(key),
            self.partial(key),
            self.is_reassigned(key),
        )
        self.hosted[key] = Hosted(
            topic_id,
            info.leader_epoch,
            leads,
            since,
            info.adding,
            is_reassigned=is_reassigned,
            partial=info.partial,
        )
        if not leads:
            decision.follow.append(
                FollowerSpec(
                    topic,
                    info.partition,
                    info.leader,
                    info.leader_epoch,
                    info.replicas,
                    info.isr,
                    info.is_new,
                    self.node_id in info.partial,
                )
            )
            return
        decision.lead.append(
            LeaderSpec(
                topic,
                info.partition,
                info.leader_epoch,
                info.replicas,
                info.isr,
                info.is_new,
                bool(info.eligible),
                info.partial,
            )
        )

    def _refusal(self, key: TopicPartition, topic_id: bytes, info: PartitionInfo) -> ErrorCode:
        if key in self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.node_id not in info.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        known = self.hosted.get(key)
        if known is None:
            is_late = info.leader_epoch <= self._stopped.get((topic_id, info.partition), EPOCH_NONE)
            return ErrorCode.STALE_CONTROLLER_EPOCH if is_late else ErrorCode.NONE
        if known.topic_id != topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if info.leader_epoch <= known.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    def done(
        self, specs: Sequence[LeaderSpec | FollowerSpec], errors: Sequence[int]
    ) -> set[TopicPartition]:
        """Takes the plane's answers.

        Returns partitions that a later request has overtaken; their answers mean nothing.
        """
        overtaken = set()
        for spec, error in zip(specs, errors, strict=True):
            key = (spec.topic, spec.partition)
            known = self.hosted.get(key)
            if error == ErrorCode.KAFKA_STORAGE_ERROR:
                self.failed.add(key)
            if known is None or known.leader_epoch != spec.leader_epoch:
                overtaken.add(key)
                continue
            if not known.leads or error != ErrorCode.NONE:
                known.serving_since = None
            elif known.serving_since is None:
                known.serving_since = known.leader_epoch
            if error not in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR):
                del self.hosted[key]  # so that the same request may come again
        return overtaken

    def not_begun(self, specs: Iterable[LeaderSpec | FollowerSpec]) -> None:
        """The plane never got these specs: the same request may come again."""
        for spec in specs:
            known = self.hosted.get((spec.topic, spec.partition))
            if known is not None and known.leader_epoch == spec.leader_epoch:
                del self.hosted[spec.topic, spec.partition]

    def stop_told(self, request: StopReplicaRequest) -> StopDecision:
        """Decides on every replica of a StopReplica.

        A late one may be for a deleted topic of the same name; a deletion's epoch is not a fence.
        """
        decision = StopDecision(self._fence(request.controller_epoch, request.broker_epoch), {}, [])
        if decision.error is not ErrorCode.NONE:
            return decision
        for item in request.replicas:
            key = (item.topic, item.partition)
            known = self.hosted.get(key)
            current = known.leader_epoch if known else EPOCH_NONE
            unfenced = item.leader_epoch in (EPOCH_DURING_DELETE, EPOCH_NONE)
            if known is not None and item.topic_id not in (NO_TOPIC_ID, known.topic_id):
                decision.errors[key] = ErrorCode.NONE  # nothing of that topic is here
            elif key in self.failed:
                decision.errors[key] = ErrorCode.KAFKA_STORAGE_ERROR
            elif not unfenced and item.leader_epoch < current:
                decision.errors[key] = ErrorCode.FENCED_LEADER_EPOCH
            else:
                self.hosted.pop(key, None)
                if known is not None:
                    self._remember_stop(item.partition, known, item.leader_epoch)
                decision.stop.append((item.topic, item.partition, item.delete))
        return decision

    def _remember_stop(self, partition: int, known: Hosted, epoch: int) -> None:
        self._stopped[known.topic_id, partition] = max(known.leader_epoch, epoch)
        if len(self._stopped) > STOPPED_MAX:
            del self._stopped[next(iter(self._stopped))]

    def hosts(self, key: TopicPartition, topic_id: bytes) -> bool:
        known = self.hosted.get(key)
        return known is not None and known.topic_id == topic_id

    def partitions_failed(self, partitions: Iterable[TopicPartition]) -> None:
        for key in partitions:
            self.failed.add(key)
            known = self.hosted.get(key)
            if known is not None:
                known.serving_since = None

    def is_settled(self, key: TopicPartition) -> bool:
        """Whether it serves or follows, or has failed."""
        known = self.hosted.get(key)
        return key in self.failed or (
            known is not None and (not known.leads or known.serving_since is not None)
        )

    def adding(self, key: TopicPartition) -> tuple[int, ...]:
        """Replicas that a running reassignment adds, of a partition that is here."""
        known = self.hosted.get(key)
        return () if known is None else known.adding

    def is_reassigned(self, key: TopicPartition) -> bool:
        """Whether a reassignment adds or removes replicas of a partition that is here."""
        known = self.hosted.get(key)
        return known is not None and known.is_reassigned

    def partial(self, key: TopicPartition) -> tuple[int, ...]:
        """Replicas that count for none in ``min.insync.replicas``, of a partition that is here."""
        known = self.hosted.get(key)
        return () if known is None else known.partial

    def is_serving(self, key: TopicPartition) -> bool:
        return self.serving_since(key) is not None

    def serving_since(self, key: TopicPartition) -> int | None:
        """The first epoch of this leadership; None where it does not serve."""
        known = self.hosted.get(key)
        return None if known is None else known.serving_since
