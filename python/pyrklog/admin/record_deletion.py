"""DeleteRecords: log start offsets move at the leader, and the answer waits for the live replicas.

As Kafka 3.9 (``DelayedDeleteRecords``): followers hear of the leader's log start with a fetch and
tell their own with the next one. A partition is done when no live replica's log starts below the
offset asked for; the least of those starts is its low watermark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import trio

from pyrklog.controller.requests import TopicPartition
from pyrklog.controller.service import DeletedRecords, DeleteRecordsTarget
from pyrklog.dataplane import Plane
from pyrklog.errors import ErrorCode
from pyrklog.image import INTERNAL_TOPICS
from pyrklog.metadata import Metadata

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1
AWAITED_MAX = 100_000
"""Partitions that may wait for their replicas, over all requests; beyond it nobody waits."""


class _Deletion:
    """One request that waits."""

    def __init__(self, required: dict[TopicPartition, int]) -> None:
        self.required = required
        """The offset below which no live replica may have records; done ones are left out."""
        self.results: dict[TopicPartition, tuple[ErrorCode, int]] = {}
        self.done = trio.Event()


class RecordDeletion:
    """The part of ``ClusterService`` that deletes records."""

    def __init__(self, plane: Plane, metadata: Metadata) -> None:
        self._plane = plane
        self._metadata = metadata
        self._waiting: dict[TopicPartition, set[_Deletion]] = {}
        self._awaited = 0

    async def delete(
        self, targets: Sequence[DeleteRecordsTarget], *, timeout_ms: int
    ) -> list[DeletedRecords]:
        """See ``ClusterService.delete_records``."""
        results = {target[:2]: (self._refusal(target), NO_LOW_WATERMARK) for target in targets}
        allowed = [target for target in targets if not results[target[:2]][0]]
        outcomes = await self._plane.delete_records(
            [(*target[:2], target.offset) for target in allowed]
        )
        required: dict[TopicPartition, int] = {}
        for target, (code, log_start) in zip(allowed, outcomes, strict=True):
            if code:
                results[target[:2]] = ErrorCode(code), NO_LOW_WATERMARK
            else:
                at_high_watermark = target.offset == HIGH_WATERMARK
                required[target[:2]] = log_start if at_high_watermark else target.offset
        if required:
            deletion = _Deletion(required)
            self._look(deletion, list(required))
            if required and timeout_ms > 0 and self._awaited + len(required) <= AWAITED_MAX:
                await self._wait(deletion, timeout_ms)
            results |= deletion.results
        return [DeletedRecords(*target[:2], *results[target[:2]]) for target in targets]

    def log_start_moved(self, topic: str, partition: int) -> None:
        """A follower has told where its log starts now."""
        for deletion in list(self._waiting.get((topic, partition), ())):
            self._look(deletion, [(topic, partition)])

    def _refusal(self, target: DeleteRecordsTarget) -> ErrorCode:
        refused = self._not_led(target[:2])
        if refused is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return refused
        if target.topic in INTERNAL_TOPICS:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if refused:
            return refused
        if target.offset < HIGH_WATERMARK:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        overrides = self._metadata.image.overrides(target.topic)
        if not self._metadata.defaults.resolve(overrides).log.cleanup_delete:
            return ErrorCode.POLICY_VIOLATION
        return ErrorCode.NONE

    def _not_led(self, key: TopicPartition) -> ErrorCode:
        partition = self._metadata.image.partition(*key)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.leader != self._metadata.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _look(self, deletion: _Deletion, keys: Sequence[TopicPartition]) -> None:
        """Settles those of the partitions that are done; of the others the plane tells again."""
        keys = [key for key in keys if key in deletion.required]
        live = {broker.id for broker in self._metadata.image.brokers}
        for key, (code, own, followers) in zip(keys, self._plane.log_starts(keys), strict=True):
            refused = self._not_led(key) or ErrorCode(code)
            if refused:
                deletion.results[key] = refused, NO_LOW_WATERMARK
                del deletion.required[key]
                continue
            low = min([own, *(start for broker, start in followers if broker in live)])
            if low >= deletion.required[key]:
                deletion.results[key] = ErrorCode.NONE, low
                del deletion.required[key]
            else:
                deletion.results[key] = ErrorCode.REQUEST_TIMED_OUT, low
        if not deletion.required:
            deletion.done.set()

    async def _wait(self, deletion: _Deletion, timeout_ms: int) -> None:
        awaited = list(deletion.required)
        self._awaited += len(awaited)
        for key in awaited:
            self._waiting.setdefault(key, set()).add(deletion)
        try:
            with trio.move_on_after(timeout_ms / 1000):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._follow_metadata, deletion)
                    await deletion.done.wait()
                    nursery.cancel_scope.cancel()
        finally:
            self._awaited -= len(awaited)
            self._forget(deletion, awaited)

    async def _follow_metadata(self, deletion: _Deletion) -> None:
        """Brokers die, and others lead: then there is nobody to wait for, or nothing to tell."""

        def is_done() -> bool:
            self._look(deletion, list(deletion.required))
            return not deletion.required

        await self._metadata.changes.wait_until(is_done)

    def _forget(self, deletion: _Deletion, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            waiting = self._waiting[key]
            waiting.discard(deletion)
            if not waiting:
                del self._waiting[key]
