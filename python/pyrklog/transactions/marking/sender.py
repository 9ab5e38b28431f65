"""Writes the markers that end transactions, here and at other brokers, until all are written.

What is led here goes to the data plane directly; for other leaders WriteTxnMarkers. A failed
partition is tried again, at its leader of then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

import trio

from pyrklog.base.logs import get_logger
from pyrklog.base.pending import Pending
from pyrklog.coordinators.calls import BrokerCalls, PeerUnreachableError
from pyrklog.errors import ErrorCode
from pyrklog.groups.partitioner import OFFSETS_TOPIC
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.internal_log import Marker, MarkerResult
from pyrklog.protocol.transactions import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pyrklog.transactions.effects import WriteMarkers
from pyrklog.transactions.messages import VERSION_2, TopicPartition
from pyrklog.transactions.persistence import by_topic

RETRY_SECONDS = 0.1
"""The first pause; each further one doubles."""
RETRY_MAX_SECONDS = 2.0
MISSING_SECONDS = 10.0
"""A partition that this broker's metadata has not had for so long was deleted, though this broker
has not heard of it."""
DELETED_KEPT_MAX = 100_000
TOLD_BETWEEN_CHECKPOINTS = 500
AT_ONCE_MAX = 100
"""Transactions with more partitions take a task, which lets others run in between."""
TOLD_AFTER_SECONDS = 30.0
"""Markers still unwritten after so long are a line in the log."""

log = get_logger("transactions")

NO_LEADER = -1


class Leaders(Protocol):
    def leader_of(self, partition: TopicPartition) -> int | None:
        """-1 without a leader; None: this broker knows no such partition."""


OffsetsEnded = Callable[[int, int, int, bool], None]
"""A marker is in a partition of ``__consumer_offsets``: producer id, partition, the marker's
offset, and whether it commits."""


class MarkerWriter:
    """Writes markers into partitions that this broker leads."""

    def __init__(self, plane: Plane, wall_ms: Callable[[], int]) -> None:
        self._plane = plane
        self._wall_ms = wall_ms
        self.on_offsets_ended: OffsetsEnded = lambda *_: None

    def begin(self, markers: Sequence[Marker]) -> Pending[Sequence[MarkerResult]]:
        """The results in order; the caller tells the groups (:meth:`tell_groups`)."""
        return self._plane.write_markers(markers, timestamp_ms=self._wall_ms())

    async def write(self, markers: Sequence[Marker]) -> Sequence[MarkerResult]:
        """The results in order; the group coordinator has been told by then."""
        results = await self.begin(markers)
        # The markers are in the log: the groups are told even if nobody waits any more.
        with trio.CancelScope(shield=True):
            for at in range(0, len(markers), TOLD_BETWEEN_CHECKPOINTS):
                end = at + TOLD_BETWEEN_CHECKPOINTS
                self.tell_groups(markers[at:end], results[at:end])
                if end < len(markers):
                    await trio.lowlevel.checkpoint()
        return results

    def tell_groups(self, markers: Sequence[Marker], results: Sequence[MarkerResult]) -> None:
        """The group coordinator hears of the ends in its topic."""
        for marker, result in zip(markers, results, strict=True):
            if marker.topic == OFFSETS_TOPIC and result.error is ErrorCode.NONE:
                self.on_offsets_ended(
                    marker.producer_id, marker.partition, result.offset, marker.is_commit
                )


class CoordinatorFencedError(Exception):
    """Another broker coordinates the transaction by now."""


class Round(NamedTuple):
    """What one broker answered. ``is_fenced``: another broker coordinates the transaction."""

    done: Collection[TopicPartition]
    is_fenced: bool = False


class MarkerSender:
    def __init__(
        self, node_id: int, writer: MarkerWriter, leaders: Leaders, calls: BrokerCalls | None
    ) -> None:
        """``calls`` None: the broker is alone."""
        self._node_id = node_id
        self._writer = writer
        self._leaders = leaders
        self._calls = calls
        self._deleted: dict[TopicPartition, None] = {}
        """The latest ones, oldest first."""

    def note_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """They were deleted: transactions that have them need no markers there."""
        self._deleted.update(dict.fromkeys(partitions))
        while len(self._deleted) > DELETED_KEPT_MAX:
            del self._deleted[next(iter(self._deleted))]

    def note_added(self, partitions: Iterable[TopicPartition]) -> None:
        """They were added to a transaction, so they exist."""
        for partition in partitions:
            self._deleted.pop(partition, None)

    def write_here(self, work: WriteMarkers, coordinator_epoch: int) -> Pending[Round] | None:
        """Writes the markers if this broker leads all partitions. None: it does not. :meth:`send`
        does the rest."""
        partitions = sorted(work.partitions)
        is_here = all(self._leaders.leader_of(one) == self._node_id for one in partitions)
        if not is_here or len(partitions) > AT_ONCE_MAX:
            return None
        markers = _markers(partitions, work, coordinator_epoch)
        written = self._writer.begin(markers)
        outcome: Pending[Round] = Pending()

        def done() -> None:
            try:
                results = written.take()
                self._writer.tell_groups(markers, results)
            except Exception as error:
                outcome.fail(error)
            else:
                codes = {one: got.error for one, got in zip(partitions, results, strict=True)}
                outcome.answer(_judge(codes, work))

        written.when_done(done)
        return outcome

    async def send(
        self,
        work: WriteMarkers,
        coordinator_epoch: int,
        on_left: Callable[[Collection[TopicPartition]], None] = lambda _: None,
    ) -> None:
        """Returns once each partition has its marker, or was deleted. ``on_left`` is told which are
        left after a round. Raises :class:`CoordinatorFencedError`."""
        left = set(work.partitions)
        began = trio.current_time()
        missing_since: dict[TopicPartition, float] = {}
        pause, is_told = RETRY_SECONDS, False
        while True:
            by_leader = self._by_leader(left, missing_since)
            left = {one for some in by_leader.values() for one in some}
            rounds = await self._send_round(by_leader, work, coordinator_epoch)
            if any(one.is_fenced for one in rounds):
                raise CoordinatorFencedError
            left -= {partition for one in rounds for partition in one.done}
            if not left:
                return
            on_left(left)
            if not is_told and trio.current_time() - began >= TOLD_AFTER_SECONDS:
                is_told = True
                log.warning(
                    "markers_not_written",
                    producer_id=work.producer_id,
                    partitions=sorted(left)[:10],
                    consequence="readers of committed records wait there",
                )
            await trio.sleep(pause)
            pause = min(2 * pause, RETRY_MAX_SECONDS)

    def _by_leader(
        self, left: Iterable[TopicPartition], missing_since: dict[TopicPartition, float]
    ) -> dict[int, list[TopicPartition]]:
        now = trio.current_time()
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in sorted(left):
            leader = self._leaders.leader_of(partition)
            if leader is None:
                missing_seconds = now - missing_since.setdefault(partition, now)
                if partition in self._deleted or missing_seconds >= MISSING_SECONDS:
                    continue
                leader = NO_LEADER
            else:
                missing_since.pop(partition, None)
            by_leader.setdefault(leader, []).append(partition)
        return by_leader

    async def _send_round(
        self,
        by_leader: dict[int, list[TopicPartition]],
        work: WriteMarkers,
        coordinator_epoch: int,
    ) -> list[Round]:
        rounds: list[Round] = []

        async def ask(leader: int, partitions: list[TopicPartition]) -> None:
            rounds.append(await self._ask(leader, partitions, work, coordinator_epoch))

        async with trio.open_nursery() as nursery:
            for leader, partitions in by_leader.items():
                if leader != NO_LEADER:
                    nursery.start_soon(ask, leader, partitions)
        return rounds

    async def _ask(
        self,
        leader: int,
        partitions: list[TopicPartition],
        work: WriteMarkers,
        coordinator_epoch: int,
    ) -> Round:
        # A coordinator that has moved since writes no more.
        await trio.lowlevel.checkpoint_if_cancelled()
        if leader == self._node_id:
            results = await self._writer.write(_markers(partitions, work, coordinator_epoch))
            codes = {one: got.error for one, got in zip(partitions, results, strict=True)}
            return _judge(codes, work)
        if self._calls is None:
            return Round(())
        message = _request(partitions, work, coordinator_epoch)
        version = 2 if work.client_version >= VERSION_2 else 1
        try:
            answer = await self._calls.call(leader, WRITE_TXN_MARKERS, version, message)
        except PeerUnreachableError as error:
            log.debug("markers_not_sent", broker=leader, reason=str(error))
            return Round(())
        return _judge(_codes(answer), work)


def _markers(
    partitions: Iterable[TopicPartition], work: WriteMarkers, coordinator_epoch: int
) -> list[Marker]:
    return [
        Marker(
            topic,
            index,
            work.producer_id,
            work.epoch,
            coordinator_epoch,
            work.is_commit,
            work.client_version,
        )
        for topic, index in partitions
    ]


def _request(
    partitions: list[TopicPartition], work: WriteMarkers, coordinator_epoch: int
) -> WriteTxnMarkersRequest:
    topics = [WritableTxnMarkerTopic(name, some) for name, some in by_topic(partitions).items()]
    marker = WritableTxnMarker(
        work.producer_id,
        work.epoch,
        work.is_commit,
        topics,
        coordinator_epoch,
        work.client_version,
    )
    return WriteTxnMarkersRequest([marker])


def _codes(answer: WriteTxnMarkersResponse) -> dict[TopicPartition, ErrorCode]:
    return {
        (topic.name, one.partition_index): ErrorCode(one.error_code)
        for marker in answer.markers
        for topic in marker.topics
        for one in topic.partitions
    }


def _judge(codes: dict[TopicPartition, ErrorCode], work: WriteMarkers) -> Round:
    done: list[TopicPartition] = []
    for partition, code in codes.items():
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            return Round(done, is_fenced=True)
        if code is ErrorCode.INVALID_PRODUCER_EPOCH:
            # A later epoch is there: this transaction has ended in the partition.
            log.warning(
                "marker_not_needed",
                topic=partition[0],
                partition=partition[1],
                producer_id=work.producer_id,
                epoch=work.epoch,
            )
        if code in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH):
            done.append(partition)
    return Round(done)
