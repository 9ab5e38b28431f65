"""Reads a running broker for its metrics and health. Waits for no disk.

Only reading happens on the broker's own thread; counting and writing the answer happen on another.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import trio

from pyrklog import __version__
from pyrklog.config.topic import TopicDefaults
from pyrklog.observability import health, samples
from pyrklog.observability.exposition import Exposition, render
from pyrklog.observability.health import Answer, BrokerHealth
from pyrklog.observability.health_rules import MIN_INSYNC, ClusterState
from pyrklog.observability.samples import (
    DETAIL_SERIES_MAX,
    Detail,
    GroupReadings,
    Readings,
    Sample,
)
from pyrklog.observability.sources import Sources
from pyrklog.observability.tally import Tally, TopicPartitions, count
from pyrklog.plane.values import PartitionImage

REUSE_SECONDS = 0.1
"""Scrapes that come together get what one of them read."""
REST = 4
"""After an answer no further one begins for so many times the time that it worked: all together
take a fifth of a core at most."""
OFFSETS_PAGE = 1000
TOPICS_A_TURN = 1000
SERIES_A_PARTITION = 6

Topics = Sequence[TopicPartitions]
Result = TypeVar("Result")


class DetailUnknownError(Exception):
    """The topic or the group is not known here; the message says which."""


class BrokerObserver:
    def __init__(self, sources: Sources) -> None:
        self.http_connections = 0
        """Set by the server."""
        self._sources = sources
        self._turn = trio.Lock()
        self._thread = trio.CapacityLimiter(1)
        self._worked_seconds = 0.0
        """CPU time of the other thread."""
        self._rested_at = 0.0
        self._statistics: tuple[float, Mapping[str, int]] | None = None
        self._tally: tuple[int, Tally] | None = None
        """With the version of the image that it counts."""
        self._read: tuple[float, list[Sample]] | None = None

    async def metrics(self, accept: str) -> Exposition:
        async with self._turn_of_an_answer():
            read = await self._reader()
            return await self._apart(lambda: render(read(), accept, __version__))

    async def samples(self) -> Sequence[Sample]:
        """Those of ``/metrics``."""
        async with self._turn_of_an_answer():
            return await self._apart(await self._reader())

    async def detail(self, topic: str | None, group: str | None, accept: str) -> Exposition:
        """Raises :class:`DetailUnknownError`."""
        async with self._turn_of_an_answer():
            share = samples.share((topic, group), DETAIL_SERIES_MAX)
            parts = [self._of_topic(topic, share)] if topic is not None else []
            if group is not None:
                parts.append(await self._of_group(group, topic, share))

            def answer() -> Exposition:
                return render(samples.detail([part() for part in parts], share), accept)

            return await self._apart(answer)

    def ready(self) -> Answer:
        return health.ready(self._health(self._read_statistics()))

    async def cluster(self) -> Answer:
        return await self._examine(health.cluster, lambda one: len(one.isr) < len(one.replicas))

    async def restart_safe(self) -> Answer:
        node_id = self._sources.metadata.node_id
        return await self._examine(health.restart_safe, lambda one: node_id in one.isr)

    # --- reading ---------------------------------------------------------------------------------

    async def _reader(self) -> Callable[[], list[Sample]]:
        """Makes the samples, on the other thread, of what is read here. What comes together shares
        them."""
        now = trio.current_time()
        if self._read is not None and now - self._read[0] <= REUSE_SECONDS:
            found = self._read[1]
            return lambda: found
        statistics = self._read_statistics()
        readings = self._readings(statistics)
        log_dirs = self._named_log_dirs()
        tally = await self._count()

        def read() -> list[Sample]:
            found = samples.of_broker(statistics, tally, readings, log_dirs)
            self._read = now, found
            return found

        return read

    def _read_statistics(self) -> Mapping[str, int]:
        """Of all hosted partitions: what comes together shares them."""
        now = trio.current_time()
        if self._statistics is None or now - self._statistics[0] > REUSE_SECONDS:
            self._statistics = now, self._sources.plane.statistics()
        return self._statistics[1]

    async def _count(self) -> Tally:
        """Counts anew only after a change of the image."""
        metadata = self._sources.metadata
        image = metadata.image
        version = image.version
        if self._tally is None or self._tally[0] != version:
            controller_id, brokers = image.controller_id, image.brokers
            topics = await self._topics()
            tally = await self._apart(
                lambda: count(
                    metadata.node_id, controller_id, len(brokers), topics, self._min_insync
                )
            )
            self._tally = version, tally
        return self._tally[1]

    def _readings(self, statistics: Mapping[str, int]) -> Readings:
        sources = self._sources
        groups = sources.groups()
        return Readings(
            groups=len(groups.groups) if groups is not None else 0,
            is_store_reachable=int(sources.store.is_reachable),
            is_ready=int(health.ready(self._health(statistics)).status == health.OK),
            http_connections=self.http_connections,
            cpu_seconds=time.process_time(),
            resident_bytes=_resident_bytes(),
            start_time_seconds=sources.started_at,
        )

    def _health(self, statistics: Mapping[str, int]) -> BrokerHealth:
        sources = self._sources
        names = self._named_log_dirs()
        full = [
            names[number] if number < len(names) else str(number)
            for name, value in statistics.items()
            if value and (number := _number_of(name, "log_dir_read_only.")) is not None
        ]
        return BrokerHealth(
            sources.metadata.node_id,
            sources.stage(),
            sources.store.is_reachable,
            full,
            sources.failed_log_dirs(),
        )

    def _named_log_dirs(self) -> Sequence[str]:
        """Statistics number those that could be opened; with others their numbers are names."""
        log_dirs = self._sources.log_dirs
        opened = len(self._sources.plane.pasts())
        return log_dirs if opened == len(log_dirs) else [str(one) for one in range(opened)]

    async def _topics(self) -> Topics:
        """Copies: the image changes meanwhile. In short turns."""
        found: list[TopicPartitions] = []
        entries = list(self._sources.metadata.image.topics.items())
        for name, entry in entries:
            found.append((name, list(entry.partitions.values())))
            if len(found) % TOPICS_A_TURN == 0:
                await trio.lowlevel.checkpoint()
        return found

    def _min_insync(self, topic: str) -> int:
        metadata = self._sources.metadata
        return _min_insync(metadata.defaults, metadata.image.overrides(topic).get(MIN_INSYNC))

    async def _examine(
        self,
        rule: Callable[[BrokerHealth, ClusterState], Answer],
        matters: Callable[[PartitionImage], bool],
    ) -> Answer:
        """``matters``: the partitions in whose topics ``min.insync.replicas`` is looked up."""
        async with self._turn_of_an_answer():
            image = self._sources.metadata.image
            controller_id, brokers = image.controller_id, image.brokers
            topics = await self._topics()
            broker = self._health(self._read_statistics())

            def answer() -> Answer:
                limits = {
                    name: self._min_insync(name)
                    for name, found in topics
                    if any(map(matters, found))
                }
                state = health.cluster_state(
                    self._sources.cluster_id, controller_id, brokers, topics, broker, limits
                )
                return rule(broker, state)

            return await self._apart(answer)

    # --- detail ----------------------------------------------------------------------------------

    def _of_topic(self, topic: str, share: int) -> Callable[[], Detail]:
        entry = self._sources.metadata.image.topics.get(topic)
        if entry is None:
            raise DetailUnknownError(f"there is no topic {topic}")
        partitions = [entry.partitions[one] for one in sorted(entry.partitions)]
        shown = partitions[: (share - 1) // SERIES_A_PARTITION]
        rest = partitions[len(shown) :]
        ends = self._sources.plane.log_ends([(topic, one.partition) for one in shown])
        node_id = self._sources.metadata.node_id

        def read() -> Detail:
            unread = SERIES_A_PARTITION * len(rest)
            unread -= sum(node_id not in one.replicas for one in rest)  # without a log end
            return Detail(samples.of_topic(topic, shown, len(partitions), ends), unread)

        return read

    async def _of_group(self, group_id: str, topic: str | None, share: int) -> Callable[[], Detail]:
        manager = self._sources.groups()
        machine = manager.groups.get(group_id) if manager is not None else None
        if machine is None:
            raise DetailUnknownError(f"this broker coordinates no group {group_id}")
        members, table = len(machine.group.members), machine.group.offsets
        offsets: list[tuple[tuple[str, int], int]] = []
        unread = 0
        after = (topic, -1) if topic is not None else None
        while page := table.page(after, OFFSETS_PAGE):
            found = [(key, one.offset) for key, one in page if topic in (None, key[0])]
            room = share - len(offsets)
            offsets += found[:room]
            unread += len(found[room:])
            after = page[-1][0]
            if topic is None and len(offsets) == share:
                unread = max(0, len(table) - len(offsets))
                break
            if topic not in (None, after[0]):
                break
            await trio.lowlevel.checkpoint()
        group = GroupReadings(group_id, members, offsets)
        return lambda: Detail(samples.of_group(group), unread)

    # --- the other thread ------------------------------------------------------------------------

    @asynccontextmanager
    async def _turn_of_an_answer(self) -> AsyncIterator[None]:
        async with self._turn:
            await trio.sleep_until(self._rested_at)
            before = self._worked_seconds
            try:
                yield
            finally:
                worked = self._worked_seconds - before
                self._rested_at = trio.current_time() + REST * worked

    async def _apart(self, work: Callable[[], Result]) -> Result:
        def timed() -> Result:
            began = time.thread_time()
            try:
                return work()
            finally:
                self._worked_seconds += time.thread_time() - began

        return await trio.to_thread.run_sync(timed, limiter=self._thread)


@lru_cache(maxsize=64)
def _min_insync(defaults: TopicDefaults, override: str | None) -> int:
    """Remembered, as a cluster's topics have few different ones."""
    found = {} if override is None else {MIN_INSYNC: override}
    return defaults.resolve(found).min_insync_replicas


def _number_of(name: str, prefix: str) -> int | None:
    rest = name.removeprefix(prefix)
    return int(rest) if rest != name and rest.isdecimal() else None


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
