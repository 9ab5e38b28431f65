"""Looks at the log ends of the partitions here each second, in short turns: the ends of their data,
since a group that has read all of it may have committed an offset before transaction markers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import trio

from pyrklog.base.logs import get_logger
from pyrklog.cluster.image import INTERNAL_TOPICS
from pyrklog.cluster.metadata import Metadata
from pyrklog.lag.histories import PARTITIONS_MAX, Histories, PartitionKey
from pyrklog.lag.history import SAMPLE_MS
from pyrklog.lag.steady_clock import SteadyClock
from pyrklog.lag.turns import in_turns
from pyrklog.plane.core_plane import Plane

BATCH_MAX = 100
"""Partitions looked at between two checkpoints: some milliseconds if all have moved."""
CHOOSE_REST = 50
"""While topics come and go, partitions are chosen for a fiftieth of the time at most."""
FAILED_SECONDS = 10.0

log = get_logger("lag")

Found = Sequence[int | None]


class _Batch:
    def __init__(self, keys: Sequence[PartitionKey], looked_ms: int) -> None:
        self.keys = keys
        self.names = [(one.topic, one.partition) for one in keys]
        self.found: Found = [None] * len(keys)
        self.looked_ms = looked_ms
        """When they were looked at last; 0: never."""


class Sampler:
    def __init__(
        self,
        metadata: Metadata,
        plane: Plane,
        histories: Histories,
        clock: SteadyClock,
        *,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self._metadata = metadata
        self._plane = plane
        self._histories = histories
        self._clock = clock
        self._partitions_max = min(partitions_max, histories.partitions_max)
        self._batches: list[_Batch] = []
        self._image_version: int | None = None
        self._choose_at = 0.0
        self.looked_ms = 0
        """When the last round began; before the first one, the time until which histories go that
        were loaded."""
        self.left_out = 0
        """Partitions here beyond the bound."""
        self._led_since: dict[PartitionKey, int] = {}

    def led_since(self, key: PartitionKey) -> int | None:
        """When the partition was first seen to be led here; None: it is not. What its log grew by
        before, it may have copied."""
        return self._led_since.get(key)

    async def run(self) -> None:
        """Until cancelled."""
        due = trio.current_time()
        while True:
            try:
                await self.look()
            except Exception as error:
                log.error("log_ends_not_sampled", exc_info=error)
                await trio.sleep(FAILED_SECONDS)
            due = max(due + SAMPLE_MS / 1000, trio.current_time())
            await trio.sleep_until(due)

    async def look(self) -> None:
        """One round."""
        version = self._metadata.image.version
        began = trio.current_time()
        if version != self._image_version and began >= self._choose_at:
            await self._choose()
            self._image_version = version
            self._choose_at = began + CHOOSE_REST * (trio.current_time() - began)
        began_ms = self._clock.now_ms()
        for batch in self._batches:
            self._look_at(batch)
            await trio.lowlevel.checkpoint()
        self.looked_ms = began_ms

    def _look_at(self, batch: _Batch) -> None:
        found = self._plane.data_ends(batch.names)
        now_ms, before = self._clock.now_ms(), batch.found
        if found != before:
            observe, unmoved_ms = self._histories.observe, batch.looked_ms
            for key, new, old in zip(batch.keys, found, before, strict=True):
                if new != old and new is not None:
                    observe(key, now_ms, new, unmoved_ms=unmoved_ms)
            batch.found = found
        batch.looked_ms = now_ms

    async def _choose(self) -> None:
        """The partitions with a replica here, those that are led here first."""
        led: list[PartitionKey] = []
        followed: list[PartitionKey] = []
        now_ms, before = self._clock.now_ms(), self._led_since
        since: dict[PartitionKey, int] = {}
        for count, (key, is_led) in enumerate(self._hosted()):
            (led if is_led else followed).append(key)
            if is_led and len(since) < self._partitions_max:
                since[key] = before.get(key, now_ms)
            if count % BATCH_MAX == 0:
                await trio.lowlevel.checkpoint()
        keys = [*led, *followed][: self._partitions_max]
        left_out = len(led) + len(followed) - len(keys)
        if left_out and not self.left_out:
            log.warning(
                "lag_histories_left_out",
                partitions=left_out,
                bound=self._partitions_max,
                consequence="groups have no lag in seconds there",
            )
        self.left_out, self._led_since = left_out, since
        self._batches = [
            _Batch(keys[at : at + BATCH_MAX], self.looked_ms)
            for at in range(0, len(keys), BATCH_MAX)
        ]
        await in_turns(self._histories.keep_only(set(keys)))

    def _hosted(self) -> Iterator[tuple[PartitionKey, bool]]:
        node_id = self._metadata.node_id
        for name, entry in list(self._metadata.image.topics.items()):
            if name not in INTERNAL_TOPICS:
                for one in list(entry.partitions.values()):
                    if node_id in one.replicas:
                        key = PartitionKey(name, entry.id, one.partition)
                        yield key, one.leader == node_id
