"""DeleteRecords: log start offsets move at the leader, and the answer waits for the live replicas.

As Kafka 3.9 (``DelayedDeleteRecords``): followers hear of the leader's log start with a fetch and
tell their own with the next one. A partition is done when no live replica's log starts below the
offset asked for; the least of those starts is its low watermark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import trio

from pyrklog.cluster.image import INTERNAL_TOPICS
from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.requests import TopicPartition
from pyrklog.errors import ErrorCode
from pyrklog.handlers.service import DeletedRecords, DeleteRecordsTarget
from pyrklog.plane.dataplane import Plane
from pyrklog.plane.values import ImageDelta

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1
AWAITED_MAX = 100_000
"""Partitions that may wait for their replicas, over all requests; a host's take no more than they
leave free. Beyond it nobody waits."""


_State = tuple[ErrorCode, int]
"""An error, or the low watermark."""


class _Deletion:
    """One request that waits."""

    def __init__(self, required: dict[TopicPartition, int]) -> None:
        self.required = required
        """The offset below which no live replica may have records; done ones are left out."""
        self.results: dict[TopicPartition, _State] = {}
        self.done = trio.Event()

    def take(self, key: TopicPartition, refused: ErrorCode, low: int) -> bool:
        """How it stands with a partition; whether it is waited for no more."""
        if refused:
            self.results[key] = refused, NO_LOW_WATERMARK
        elif low < self.required[key]:
            self.results[key] = ErrorCode.REQUEST_TIMED_OUT, low
            return False
        else:
            self.results[key] = ErrorCode.NONE, low
        del self.required[key]
        if not self.required:
            self.done.set()
        return True


class RecordDeletion:
    """The part of ``ClusterService`` that deletes records."""

    def __init__(self, plane: Plane, metadata: Metadata) -> None:
        self._plane = plane
        self._metadata = metadata
        self._waiting: dict[str, dict[int, set[_Deletion]]] = {}
        """By topic and partition."""
        self._awaited: Counter[str] = Counter()
        """Partitions by the host that asked; together they are bounded, too."""
        self._live: frozenset[int] = frozenset()
        """Brokers of the image that was looked at last."""

    async def delete(
        self, targets: Sequence[DeleteRecordsTarget], *, timeout_ms: int, host: str
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
            for key, state in self._states(list(required)).items():
                deletion.take(key, *state)
            if required and timeout_ms > 0 and self._has_room(host, len(required)):
                await self._wait(deletion, timeout_ms, host)
            results |= deletion.results
        return [DeletedRecords(*target[:2], *results[target[:2]]) for target in targets]

    def log_start_moved(self, topic: str, partition: int) -> None:
        """A follower has told where its log starts now."""
        if partition in self._waiting.get(topic, ()):
            self._look([(topic, partition)])

    def image_changed(self, delta: ImageDelta) -> None:
        """Brokers die, and others lead: then there is nobody to wait for, or nothing to tell."""
        live = frozenset(broker.id for broker in self._metadata.image.brokers)
        dead, self._live = self._live - live, live
        changed = {topic.name for topic in delta.topics}.union(delta.removed_topics)
        topics = self._waiting if dead else changed & self._waiting.keys()
        keys = [(topic, index) for topic in topics for index in self._waiting[topic]]
        if keys:
            self._look(keys)

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

    def _states(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, _State]:
        """Why there is nothing to wait for, or below what no live replica has records."""
        live = {broker.id for broker in self._metadata.image.brokers}
        states = {}
        for key, (code, own, followers) in zip(keys, self._plane.log_starts(keys), strict=True):
            low = min([own, *(start for broker, start in followers if broker in live)])
            states[key] = self._not_led(key) or ErrorCode(code), low
        return states

    def _look(self, keys: Sequence[TopicPartition]) -> None:
        """Settles those of the partitions that are done; of the others the plane tells again."""
        for key, state in self._states(keys).items():
            for deletion in list(self._waiting[key[0]][key[1]]):
                if deletion.take(key, *state):
                    self._forget(deletion, key)

    def _has_room(self, host: str, wanted: int) -> bool:
        free = AWAITED_MAX - self._awaited.total() - wanted
        return self._awaited[host] + wanted <= free

    async def _wait(self, deletion: _Deletion, timeout_ms: int, host: str) -> None:
        awaited = len(deletion.required)
        self._awaited[host] += awaited
        for topic, index in deletion.required:
            self._waiting.setdefault(topic, {}).setdefault(index, set()).add(deletion)
        try:
            with trio.move_on_after(timeout_ms / 1000):
                await deletion.done.wait()
        finally:
            self._awaited[host] -= awaited
            if not self._awaited[host]:
                del self._awaited[host]
            for key in deletion.required:
                self._forget(deletion, key)

    def _forget(self, deletion: _Deletion, key: TopicPartition) -> None:
        topic, index = key
        waiting = self._waiting[topic]
        waiting[index].discard(deletion)
        if not waiting[index]:
            del waiting[index]
        if not waiting:
            del self._waiting[topic]
