"""Reads a running broker for its metrics and health. Waits for no disk.

Only reading happens on the broker's own thread, in short turns; counting and writing the answer
happen on another. Both are followed by a rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple, TypeVar

import trio

from pyrklog import __version__
from pyrklog.base.client_places import ClientPlaces
from pyrklog.cluster.image import TopicEntry
from pyrklog.config.topic import TopicDefaults
from pyrklog.lag.numbers import LagNumbers
from pyrklog.lag.pace import Pace
from pyrklog.observability import health, samples
from pyrklog.observability.client_samples import client_families, own_samples
from pyrklog.observability.exposition import Exposition, render, wants_openmetrics
from pyrklog.observability.health import Answer, BrokerHealth
from pyrklog.observability.health_rules import MIN_INSYNC, ClusterState, Reason
from pyrklog.observability.health_signs import signs
from pyrklog.observability.health_watch import HealthWatch
from pyrklog.observability.latency_samples import all_of_times, of_times
from pyrklog.observability.restart_rules import Restart
from pyrklog.observability.samples import (
    DETAIL_SERIES_MAX,
    Detail,
    GroupReadings,
    Readings,
    Sample,
)
from pyrklog.observability.shared_bodies import SharedBodies, SharedBody
from pyrklog.observability.sources import Sources
from pyrklog.observability.tally import Tally, TopicPartitions, count
from pyrklog.plane.values import PartitionImage
from pyrklog.protocol.lag import PartitionLag

REUSE_SECONDS = 0.1
"""Scrapes that come together get what one of them read."""
REST = 4
"""After an answer no further one of its kind begins for so many times the time that it worked: all
together take a fifth of a core at most, those to BrokerHealth another fifth."""
HEALTHS_WAITING_MAX = 32
"""BrokerHealth requests about the cluster; one address has a quarter of these places."""
TOPICS_A_TURN = 1000
SERIES_A_TOPIC = 3
SERIES_AN_OFFSET = 4
IMBALANCE_PERCENT = "leader.imbalance.per.broker.percentage"

Topics = Sequence[TopicPartitions]
Result = TypeVar("Result")


class Examined(NamedTuple):
    """A broker's view of the cluster, and of a restart if one was asked for."""

    reasons: Sequence[Reason]
    restart: Restart | None
    state: ClusterState


class DetailUnknownError(Exception):
    """The topic or the group is not known here; the message says which."""


class BrokerObserver:
    def __init__(self, sources: Sources, watch: HealthWatch) -> None:
        self.http_connections = 0
        """Set by the server."""
        memory_file()
        self._sources = sources
        self._watch = watch
        self._thread = trio.CapacityLimiter(1)
        self._turn = _Turn(self._thread)
        self._turn_of_clients = _Turn(self._thread)
        """Apart: Kafka's clients delay no probe, scrape or report."""
        self._bodies_of_clients = SharedBodies()
        self._places_of_clients = ClientPlaces(HEALTHS_WAITING_MAX)
        self._pace_of_groups = Pace()
        """Apart, as it may wait for other brokers."""
        self._statistics: tuple[float, Mapping[str, int]] | None = None
        self._tally: tuple[tuple[int, int], Tally] | None = None
        """With the version of the image that it counts, and that of what is being added."""
        self._read: tuple[float, list[Sample]] | None = None

    async def metrics(self, accept: str) -> Exposition:
        async with self._turn.taken():
            read = await self._reader()
            return await self._turn.apart(lambda: render(read(), accept, __version__))

    async def samples(self) -> Sequence[Sample]:
        """Those of ``/metrics``."""
        async with self._turn.taken():
            return await self._turn.apart(await self._reader())

    async def detail(self, topic: str | None, group: str | None, accept: str) -> Exposition:
        """Raises :class:`DetailUnknownError`."""
        share = samples.share((topic, group), DETAIL_SERIES_MAX)
        # Leaders are asked before the turn: others need not wait for them.
        asked = None if group is None else await self._ask(group, topic, share)
        async with self._turn.taken():
            parts = [await self._of_topic(topic, share)] if topic is not None else []
            if asked is not None:
                parts.append(await self._of_group(*asked, share))

            def answer() -> Exposition:
                return render(samples.detail([part() for part in parts], share), accept)

            return await self._turn.apart(answer)

    async def latencies(self, accept: str) -> Exposition:
        """All histograms of times."""
        async with self._turn.taken():
            with self._turn.here():
                times = dict(self._sources.plane.times())
                labels = samples.log_dir_labels(self._named_log_dirs())

            def answer() -> Exposition:
                found = samples.bounded(all_of_times(times, labels), DETAIL_SERIES_MAX)
                return render(found, accept)

            return await self._turn.apart(answer)

    async def clients(self, accept: str) -> SharedBody:
        """What clients have pushed to this broker. Keep the body until its reader has it all."""
        is_openmetrics = wants_openmetrics(accept)
        async with self._turn.taken():
            body = self._bodies_of_clients.reused(is_openmetrics=is_openmetrics)
            if body is not None:
                return body
            with self._turn.here():
                exposed = self._sources.client_metrics.exposed()

            def answer() -> Exposition:
                families = client_families(exposed.clients)
                return render(own_samples(exposed), accept, clients=families)

            body = SharedBody(await self._turn.apart(answer))
            return self._bodies_of_clients.add(body, is_openmetrics=is_openmetrics)

    def brokers_away(self) -> dict[int, float]:
        """See :meth:`.HealthWatch.brokers_away_seconds`."""
        return self._watch.brokers_away_seconds()

    def ready(self) -> Answer:
        return health.ready(self._health(self._read_statistics()))

    async def cluster(self) -> Answer:
        return await self._examine(self._turn, health.cluster, _is_behind)

    async def restart_safe(self, broker: int | None = None) -> Answer:
        """Of this broker, or of another one."""
        number = self._sources.metadata.node_id if broker is None else broker
        return await self._examine(
            self._turn,
            lambda own, state: health.restart_safe(own, state, number),
            lambda one: number in one.isr,
        )

    async def examined(self, restarted: int | None, address: str) -> Examined:
        """What the request BrokerHealth tells a client at this address, of the whole cluster and
        perhaps of the restart of a broker. Raises :class:`NoPlaceError`."""
        with self._places_of_clients.place(address):
            return await self._examine(
                self._turn_of_clients,
                lambda broker, state: Examined(
                    health.of_cluster(broker, state),
                    None if restarted is None else health.restart(broker, state, restarted),
                    state,
                ),
                lambda one: _is_behind(one) or restarted in one.isr,
            )

    def own(self) -> list[Reason]:
        """What this broker knows of itself."""
        return health.of_broker(self._health(self._read_statistics()))

    # --- reading ---------------------------------------------------------------------------------

    async def _reader(self) -> Callable[[], list[Sample]]:
        """Makes the samples, on the other thread, of what is read here. What comes together shares
        them."""
        now = trio.current_time()
        if self._read is not None and now - self._read[0] <= REUSE_SECONDS:
            found = self._read[1]
            return lambda: found
        with self._turn.here():
            statistics = self._read_statistics()
            reasons = health.of_broker(self._health(statistics))
            readings = self._readings(is_ready=health.is_ready(reasons))
            worst_groups = self._lag_numbers().worst
            log_dirs = self._named_log_dirs()
        tally = await self._count()
        with self._turn.here():
            times = dict(self._sources.plane.times())

        def read() -> list[Sample]:
            found = samples.of_broker(
                statistics,
                tally,
                readings,
                log_dirs,
                worst_groups,
                health.counted(reasons),
                of_times(times, samples.log_dir_labels(log_dirs)),
            )
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
        """Counts anew only after a change of the image, or of what reassignments add."""
        metadata = self._sources.metadata
        image = metadata.image
        version = image.version, self._sources.adding_changes()
        if self._tally is None or self._tally[0] != version:
            controller_id, brokers = image.controller_id, [one.id for one in image.brokers]
            topics = await self._topics(self._turn, image.topics.items())
            tally = await self._turn.apart(
                lambda: count(
                    metadata.node_id,
                    controller_id,
                    brokers,
                    topics,
                    self._min_insync,
                    self._sources.adding,
                    self._sources.is_reassigned,
                    partial=self._sources.partial,
                    imbalance_percent=metadata.config.integer(IMBALANCE_PERCENT),
                )
            )
            self._tally = version, tally
        return self._tally[1]

    def _lag_numbers(self) -> LagNumbers:
        lag = self._sources.lag()
        return LagNumbers() if lag is None else lag.numbers()

    def _readings(self, *, is_ready: bool) -> Readings:
        sources = self._sources
        groups, numbers = sources.groups(), self._lag_numbers()
        isr_expands, isr_shrinks = sources.isr_changes()
        return Readings(
            groups=len(groups.groups) if groups is not None else 0,
            lag_groups_left_out=numbers.groups_left_out,
            lag_histories=numbers.histories,
            lag_histories_left_out=numbers.histories_left_out,
            lag_history_points=numbers.history_points,
            lag_forgotten_points=numbers.forgotten_points,
            isr_expands=isr_expands,
            isr_shrinks=isr_shrinks,
            unclean_elections=sources.unclean_elections(),
            is_store_reachable=int(sources.store.is_reachable),
            is_ready=int(is_ready),
            http_connections=self.http_connections,
            cpu_seconds=time.process_time(),
            resident_bytes=resident_bytes(),
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
            self._watch.store_away_seconds(),
            signs(self._watch.snapshot(statistics, names)),
            self._watch.brokers_away_seconds(),
            sources.is_told(),
        )

    def _named_log_dirs(self) -> Sequence[str]:
        """Statistics number those that could be opened; with others their numbers are names."""
        log_dirs = self._sources.log_dirs
        opened = len(self._sources.plane.pasts())
        return log_dirs if opened == len(log_dirs) else [str(one) for one in range(opened)]

    async def _topics(self, turn: _Turn, topics: Iterable[tuple[str, TopicEntry]]) -> Topics:
        """Copies: the image changes meanwhile. In short turns."""
        found: list[TopicPartitions] = []
        with turn.here():
            entries = list(topics)
        for first in range(0, len(entries), TOPICS_A_TURN):
            with turn.here():
                found += (
                    (name, list(entry.partitions.values()))
                    for name, entry in entries[first : first + TOPICS_A_TURN]
                )
            await trio.lowlevel.checkpoint()
        return found

    def _min_insync(self, topic: str) -> int:
        metadata = self._sources.metadata
        return _min_insync(metadata.defaults, metadata.image.overrides(topic).get(MIN_INSYNC))

    async def _examine(
        self,
        turn: _Turn,
        rule: Callable[[BrokerHealth, ClusterState], Result],
        matters: Callable[[PartitionImage], bool],
    ) -> Result:
        """``matters``: the partitions in whose topics ``min.insync.replicas`` is looked up."""
        async with turn.taken():
            image = self._sources.metadata.image
            controller_id, brokers = image.controller_id, image.brokers
            topics = await self._topics(turn, image.topics.items())
            with turn.here():
                broker = self._health(self._read_statistics())

            def answer() -> Result:
                limits = {
                    name: self._min_insync(name)
                    for name, found in topics
                    if any(map(matters, found))
                }
                state = health.cluster_state(
                    self._sources.cluster_id,
                    controller_id,
                    brokers,
                    topics,
                    broker,
                    limits,
                    self._sources.adding,
                    self._sources.partial,
                )
                return rule(broker, state)

            return await turn.apart(answer)

    # --- detail ----------------------------------------------------------------------------------

    async def _of_topic(self, topic: str, share: int) -> Callable[[], Detail]:
        node_id, image = self._sources.metadata.node_id, self._sources.metadata.image
        entry = image.topics.get(topic)
        if entry is None:
            raise DetailUnknownError(f"there is no topic {topic}")
        brokers, controller_id = {one.id for one in image.brokers}, image.controller_id
        [(_, partitions)] = await self._topics(self._turn, [(topic, entry)])
        room = share - SERIES_A_TOPIC
        shown, unread = await self._turn.apart(
            lambda: samples.told_partitions(partitions, node_id, brokers, controller_id, room)
        )
        with self._turn.here():
            plane = self._sources.plane
            replicas = plane.replica_offsets([(topic, one.partition) for one, _ in shown])
            served = plane.served_bytes(topic)
        count_all = len(partitions) if controller_id == node_id else None

        def read() -> Detail:
            readings = (
                samples.PartitionReadings(one, one.leader == node_id, is_told, replica)
                for (one, is_told), replica in zip(shown, replicas, strict=True)
            )
            return Detail(samples.of_topic(topic, readings, count_all, served), unread)

        return read

    async def _ask(self, group_id: str, topic: str | None, share: int) -> tuple[GroupReadings, int]:
        """A group's committed offsets, and how many more there are."""
        manager = self._sources.groups()
        machine = manager.groups.get(group_id) if manager is not None else None
        if machine is None:
            raise DetailUnknownError(f"this broker coordinates no group {group_id}")
        members, lag = len(machine.group.members), self._sources.lag()
        rows: Sequence[PartitionLag]
        shown = (share - 1) // SERIES_AN_OFFSET
        if lag is not None:
            async with self._pace_of_groups.turn() as work:
                rows, left_out = await lag.rows(group_id, shown, topic)
                work.offsets = len(rows) + left_out
        else:
            rows, left_out = (), len(machine.group.offsets)
        return GroupReadings(group_id, members, rows), left_out

    async def _of_group(
        self, group: GroupReadings, left_out: int, share: int
    ) -> Callable[[], Detail]:
        """With the partitions in which it has committed nothing, of topics in which it has."""
        committed: dict[str, set[int]] = {}
        # Rows that are not all do not tell what has no commit.
        for row in () if left_out else group.partitions:
            committed.setdefault(row.topic, set()).add(row.partition_index)
        images = self._sources.metadata.image.topics
        known = [(topic, images[topic]) for topic in committed if topic in images]
        topics = await self._topics(self._turn, known)
        room = share - 1 - SERIES_AN_OFFSET * len(group.partitions)

        def read() -> Detail:
            shown, more = samples.uncommitted(committed, topics, room // samples.SERIES_UNCOMMITTED)
            unread = SERIES_AN_OFFSET * left_out + samples.SERIES_UNCOMMITTED * more
            return Detail(samples.of_group(replace(group, uncommitted=shown)), unread)

        return read


class _Turn:
    """One answer at a time, worked out on the other thread, and a rest after each, for what the
    broker's own thread has read, too."""

    def __init__(self, thread: trio.CapacityLimiter) -> None:
        self._lock = trio.Lock()
        self._thread = thread
        self._rested_at = 0.0
        self._worked_seconds = 0.0
        """CPU time of both threads in the last turn."""

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        async with self._lock:
            await trio.sleep_until(self._rested_at)
            self._worked_seconds = 0.0
            try:
                yield
            finally:
                self._rested_at = trio.current_time() + REST * self._worked_seconds

    @contextmanager
    def here(self) -> Iterator[None]:
        """Within a turn, for work on this thread, without a checkpoint."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._worked_seconds += time.thread_time() - began

    async def apart(self, work: Callable[[], Result]) -> Result:
        """Within a turn, on the other thread."""

        def timed() -> Result:
            with self.here():
                return work()

        return await trio.to_thread.run_sync(timed, limiter=self._thread)


def _is_behind(one: PartitionImage) -> bool:
    return len(one.isr) < len(one.replicas)


@lru_cache(maxsize=64)
def _min_insync(defaults: TopicDefaults, override: str | None) -> int:
    """Remembered, as a cluster's topics have few different ones."""
    found = {} if override is None else {MIN_INSYNC: override}
    return defaults.resolve(found).min_insync_replicas


def _number_of(name: str, prefix: str) -> int | None:
    rest = name.removeprefix(prefix)
    return int(rest) if rest != name and rest.isdecimal() else None


@cache
def memory_file() -> int:
    """Open from the start on: a broker that is out of descriptors is scraped, too."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def resident_bytes() -> int:
    pages = int(os.pread(memory_file(), 256, 0).split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
