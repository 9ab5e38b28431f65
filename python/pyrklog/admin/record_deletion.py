"""DeleteRecords: the leader moves log start offsets, and the answer waits for the live replicas.

As Kafka 3.9 (``DelayedDeleteRecords``): a follower learns the leader's log start with a fetch and
reports its own with the next. A partition is done when no live replica's log starts below the
requested offset; the least of those starts is its low watermark.
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
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.values import ImageDelta

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1
AWAITED_MAX = 100_000
"""Most partitions waiting for replicas, over all requests; a host's take at most as many as they
leave free. Beyond it, requests do not wait."""


_State = tuple[ErrorCode, int]
"""An error, or the low watermark."""


class _Deletion:
    """One waiting request."""

    def __init__(self, required: dict[TopicPartition, int]) -> None:
        self.required = required
        """The least log start offset that live replicas must reach; without done partitions."""
        self.results: dict[TopicPartition, _State] = {}
        self.done = trio.Event()

    def take(self, key: TopicPartition, refused: ErrorCode, low: int) -> bool:
        """Notes a partition's state. Returns whether its wait is over."""
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
    def __init__(self, plane: Plane, metadata: Metadata) -> None:
        self._plane = plane
        self._metadata = metadata
        self._waiting: dict[str, dict[int, set[_Deletion]]] = {}
        self._awaited: Counter[str] = Counter()
        """Partitions by the asking host; their total is bounded, too."""
        self._live: frozenset[int] = frozenset()
        """Brokers of the last image."""

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
        if partition in self._waiting.get(topic, ()):
            self._look([(topic, partition)])

    def image_changed(self, delta: ImageDelta) -> None:
        """Dead brokers are not waited for; a new leader ends the wait."""
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
        overrides = self._metadata.image.overrides(target.topic)
        if not self._metadata.defaults.resolve(overrides).log.cleanup_delete:
            return ErrorCode.POLICY_VIOLATION
        if target.offset < HIGH_WATERMARK:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

    def _not_led(self, key: TopicPartition) -> ErrorCode:
        partition = self._metadata.image.partition(*key)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.leader != self._metadata.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _states(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, _State]:
        """An error that ends the wait, or the offset below which no live replica has records."""
        live = {broker.id for broker in self._metadata.image.brokers}
        states = {}
        for key, (code, own, followers) in zip(keys, self._plane.log_starts(keys), strict=True):
            low = min([own, *(start for broker, start in followers if broker in live)])
            states[key] = self._not_led(key) or ErrorCode(code), low
        return states

    def _look(self, keys: Sequence[TopicPartition]) -> None:
        """Settles done partitions; the plane reports the others again."""
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
