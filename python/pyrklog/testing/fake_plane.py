"""A data plane in memory, for tests of its drivers. It moves no bytes and opens no sockets.

It keeps what it is given (image, led partitions, folders) and asserts the contract of
``core_plane.Plane``. Tests can inject events, hold back tickets, and fail partitions and
directories.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import trio

from pyrklog.base.pending import Pending
from pyrklog.base.problems import Problem
from pyrklog.config.connection_quotas import ConnectionQuotas
from pyrklog.errors import ErrorCode, TemporaryError
from pyrklog.groups.core_types import Heartbeat, OffsetCommit
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.internal_log import (
    ActiveProducer,
    AppendResult,
    InternalLoad,
    InternalRead,
    Marker,
    MarkerResult,
    NewRecord,
    Producer,
    Verification,
)
from pyrklog.plane.seam import (
    CleanerSettings,
    DigestRange,
    DirectoryPast,
    FoundPartition,
    LaggingFollowers,
    LogDirUsage,
    LogStarts,
    PlaneListener,
    PlaneSettings,
    ReplicaDigest,
    Request,
    Session,
    VerifyTransaction,
)
from pyrklog.plane.values import (
    FollowerSpec,
    ImageDelta,
    LeaderSpec,
    PartitionImage,
    ReplicaOffsets,
    TopicImage,
)
from pyrklog.testing.fake_offsets import FakeLog
from pyrklog.testing.fake_transactions import FakeTransactions

FIRST_FREE_PORT = 40000
HEARTBEAT = 12


class FakeSession(NamedTuple):
    connection: int = 1
    principal: str = "User:ANONYMOUS"
    host: str = "127.0.0.1"
    client_id: str | None = "test"
    listener: str = "PLAINTEXT"
    port: int = 50_000
    software_name: str | None = None
    software_version: str | None = None


class FakeRequest(NamedTuple):
    id: int
    api_key: int
    api_version: int
    body: bytes = b""
    session: FakeSession = FakeSession()


class FakePlane(Plane):
    """Replaces every command."""

    def __init__(
        self, settings: PlaneSettings | None = None, found: Sequence[FoundPartition] = ()
    ) -> None:
        self.settings = settings
        self.deltas: list[ImageDelta] = []
        self.topics: dict[str, TopicImage] = {}
        self.led: dict[tuple[str, int], LeaderSpec] = {}
        self.followed: dict[tuple[str, int], FollowerSpec] = {}
        self.isrs: dict[tuple[str, int], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        """Last members and in-sync replicas set."""
        self.held: dict[tuple[str, int], bool] = {}
        """Whether the high watermark was to stand still then."""
        self.lagging: list[LaggingFollowers] = []
        self.ends: dict[tuple[str, int], tuple[int, int]] = {}
        self.refuses_isrs = False
        """Whether set_isr refuses, since joining replicas lack something by now."""
        self.broker_epoch = -1
        self.replication_rates: tuple[int | None, int | None] = (None, None)
        self.back_fill_rate = 0
        self.replication_window_ms: int | None = None
        self.move_rate: int | None = None
        self.move_window_ms: int | None = None
        self.moves: list[tuple[str, int, str]] = []
        self.connection_quotas: ConnectionQuotas | None = None
        self.verifies_transactions = True
        self.offers_client_metrics = False
        self.producer_id_expiration_ms: int | None = None
        self.recovery_threads_per_dir: int | None = None
        self.io_threads: int | None = None
        self.cleaner = settings.cleaner if settings is not None else None
        self.stopped: list[tuple[str, int, bool]] = []
        self.deleted_records: list[tuple[str, int, int]] = []
        self.follower_starts: dict[tuple[str, int], dict[int, int]] = {}
        """Log starts of followers that have not followed."""
        self.ports: dict[str, int] = {}
        self.ports_taken: set[int] = set()
        self.replies: dict[int, bytes] = {}
        self.resumed: dict[int, dict[str, int]] = {}
        self.closed: list[int] = []
        self.failing: dict[tuple[str, int], ErrorCode] = {}
        self.refused_topics: set[str] = set()
        """Topics that images may not contain."""
        self.raising: set[tuple[str, int]] = set()
        self.parked: list[int] = []
        self.waiting_room: float = float("inf")
        """Memory for parked requests, in requests."""
        self.places: float = float("inf")
        """``queued.max.requests``; beyond it only heartbeats arrive."""
        self._in_flight: set[int] = set()
        self._held_back: deque[Request] = deque()
        self.is_shut_down = False
        self.transactions = FakeTransactions()
        self._internal: dict[str, FakeLog] = {}
        self._found = list(found)
        self._answering = trio.Event()
        self._answering.set()
        self._held_markers: list[Callable[[], None]] = []
        self._changed = trio.Event()
        self._inject: trio.MemorySendChannel[Callable[[PlaneListener], None]]
        self._inject, self._events = trio.open_memory_channel(10_000)

    def hold_tickets(self) -> None:
        """Slow commands do not complete until :meth:`release_tickets`."""
        self._answering = trio.Event()

    def release_tickets(self) -> None:
        self._answering.set()
        held, self._held_markers = self._held_markers, []
        for answer in held:
            answer()

    def request(self, request: Request) -> None:
        """A request arrives."""
        if request.api_key != HEARTBEAT:
            if len(self._in_flight) >= self.places:
                self._held_back.append(request)
                return
            self._in_flight.add(request.id)
        self._inject.send_nowait(lambda listener: listener.on_request(request))

    def client_gone(self, request_id: int) -> None:
        """The client of an unanswered request disconnects."""
        held = [one for one in self._held_back if one.id == request_id]
        if held:
            self._held_back.remove(held[0])
            return
        self._inject.send_nowait(lambda listener: listener.on_client_gone(request_id))

    def unanswered(self) -> int:
        """Requests with a place, parked, or held back."""
        return len(self._in_flight) + len(self.parked) + len(self._held_back)

    def _leave_place(self, request_id: int) -> None:
        self._in_flight.discard(request_id)
        if self._held_back and len(self._in_flight) < self.places:
            self.request(self._held_back.popleft())

    def _finish(self, request_id: int) -> None:
        if request_id in self.parked:
            self.parked.remove(request_id)
        self._leave_place(request_id)

    def topics_missing(self, request_id: int, topics: Sequence[str]) -> None:
        """A Metadata request names missing topics."""
        session: Session = FakeSession()  # type: ignore[assignment]
        self._inject.send_nowait(
            lambda listener: listener.on_topics_missing(request_id, topics, session)
        )

    def verify_transaction(self, asked: VerifyTransaction) -> None:
        """A Produce request waits for a transaction's coordinator."""
        self._inject.send_nowait(lambda listener: listener.on_verify_transaction(asked))

    def fail_log_dir(self, path: str, partitions: Sequence[tuple[str, int]]) -> None:
        for key in partitions:
            self.failing[key] = ErrorCode.KAFKA_STORAGE_ERROR
            self.led.pop(key, None)
        self._inject.send_nowait(
            lambda listener: listener.on_log_dir_failed(path, "Input/output error", partitions)
        )

    def fail_partition(self, topic: str, index: int, reason: str) -> None:
        self.failing[topic, index] = ErrorCode.KAFKA_STORAGE_ERROR
        self.led.pop((topic, index), None)
        topic_id = self.topics[topic].id
        self._inject.send_nowait(
            lambda listener: listener.on_partition_failed(topic, topic_id, index, reason)
        )

    def notice(self, event: str, fields: Mapping[str, str], level: str = "info") -> None:
        self._inject.send_nowait(lambda listener: listener.on_notice(event, fields, level))

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    def partition(self, topic: str, index: int) -> PartitionImage:
        return self.topics[topic].partitions[index]

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def found_partitions(self) -> Sequence[FoundPartition]:
        return list(self._found)

    def pasts(self) -> Sequence[DirectoryPast]:
        paths = self.settings.log_dirs if self.settings else ["/fake"]
        return [DirectoryPast(-1, is_reattached=True) for _ in paths]

    def listen(self, listener: str, host: str, port: int, *, for_brokers: bool = False) -> int:
        assert host
        assert for_brokers in (False, True)
        if port in self.ports_taken:
            raise TemporaryError(Problem.PORT_TAKEN, f"{host}:{port} is taken by another program.")
        self.ports[listener] = port or FIRST_FREE_PORT + len(self.ports)
        self._notify()
        return self.ports[listener]

    def check_port(self, listener: str, host: str, port: int) -> None:
        if port in self.ports_taken:
            raise TemporaryError(Problem.PORT_TAKEN, f"{host}:{port} is taken by another program.")

    def apply_image(self, delta: ImageDelta) -> None:
        assert delta.version > (self.deltas[-1].version if self.deltas else 0)
        self._refuse(delta)
        self.deltas.append(delta)
        for topic in delta.topics:
            assert [item.partition for item in topic.partitions] == list(
                range(len(topic.partitions))
            )
            self.topics[topic.name] = topic
        for name in delta.removed_topics:
            self.topics.pop(name, None)
        self._notify()

    def _refuse(self, delta: ImageDelta) -> None:
        """Raises like the real plane, before anything has changed."""
        for broker in delta.brokers:
            for _, _, port in broker.endpoints:
                if not 0 <= port < 1 << 16:
                    raise OverflowError(f"port {port}")
        ids = {t.id: name for name, t in self.topics.items() if name not in delta.removed_topics}
        for topic in delta.topics:
            if any(topic.id) and ids.get(topic.id, topic.name) != topic.name:
                raise ValueError(f"topics {topic.name} and {ids[topic.id]} have the same id")
            if topic.name in self.refused_topics:
                raise ValueError(f"{topic.name} is refused")

    async def become_leaders(self, specs: Sequence[LeaderSpec]) -> Sequence[int]:
        assert specs
        self._raise_for(specs)
        for spec in specs:
            # The contract: a topic is in the image before its partitions are led.
            assert spec.partition < len(self.topics[spec.topic].partitions)
        await self._answering.wait()
        codes = [self._lead(spec) for spec in specs]
        self._notify()
        return codes

    def _lead(self, spec: LeaderSpec) -> int:
        key = (spec.topic, spec.partition)
        known = self.led.get(key)
        if key in self.failing:
            return self.failing[key]
        if known is not None and spec.leader_epoch < known.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        self.led[key] = spec
        self.followed.pop(key, None)
        return ErrorCode.NONE

    def _raise_for(
        self, specs: Sequence[LeaderSpec | FollowerSpec | tuple[str, int, bool]]
    ) -> None:
        for spec in specs:
            if (spec[0], spec[1]) in self.raising:
                raise OverflowError(f"{spec[0]}-{spec[1]}")

    async def become_followers(self, specs: Sequence[FollowerSpec]) -> Sequence[int]:
        assert specs
        self._raise_for(specs)
        for spec in specs:
            assert spec.partition < len(self.topics[spec.topic].partitions)
        await self._answering.wait()
        codes = [self._follow(spec) for spec in specs]
        self._notify()
        return codes

    def _follow(self, spec: FollowerSpec) -> int:
        key = (spec.topic, spec.partition)
        if key in self.failing:
            return self.failing[key]
        self.led.pop(key, None)
        self.followed[key] = spec
        return ErrorCode.NONE

    def set_isr(
        self,
        topic: str,
        partition: int,
        leader_epoch: int,
        members: Sequence[int],
        isr: Sequence[int],
        is_held: bool,
    ) -> bool:
        spec = self.led.get((topic, partition))
        if spec is None or spec.leader_epoch != leader_epoch or self.refuses_isrs:
            return False
        self.isrs[(topic, partition)] = (tuple(members), tuple(isr))
        self.held[(topic, partition)] = is_held
        return True

    def log_ends(self, partitions: Sequence[tuple[str, int]]) -> Sequence[tuple[int, int] | None]:
        return [self.ends.get(key) for key in partitions]

    def replica_offsets(
        self, partitions: Sequence[tuple[str, int]]
    ) -> Sequence[ReplicaOffsets | None]:
        ends = map(self.ends.get, partitions)
        return [end and ReplicaOffsets(end[1], end[1], 0, 0) for end in ends]

    def served_bytes(self, topic: str) -> tuple[int, int]:
        return 0, 0

    def data_ends(self, partitions: Sequence[tuple[str, int]]) -> Sequence[int | None]:
        return [end and end[1] for end in self.log_ends(partitions)]

    def lagging_followers(self, max_lag_ms: int) -> Sequence[LaggingFollowers]:
        return self.lagging

    def set_broker_epoch(self, epoch: int) -> None:
        self.broker_epoch = epoch

    def set_replication_rates(
        self, *, leader_bytes: int | None, follower_bytes: int | None
    ) -> None:
        self.replication_rates = (leader_bytes, follower_bytes)

    def set_back_fill_rate(self, rate: int) -> None:
        self.back_fill_rate = rate

    def set_replication_window_ms(self, window_ms: int) -> None:
        self.replication_window_ms = window_ms

    def set_move_rate(self, rate: int | None) -> None:
        self.move_rate = rate

    def set_move_window_ms(self, window_ms: int) -> None:
        self.move_window_ms = window_ms

    def set_connection_quotas(self, quotas: ConnectionQuotas) -> None:
        self.connection_quotas = quotas

    def set_io_threads(self, threads: int) -> None:
        self.io_threads = threads

    def set_recovery_threads_per_dir(self, threads: int) -> None:
        self.recovery_threads_per_dir = threads

    def set_producer_id_expiration_ms(self, expiration_ms: int) -> None:
        self.producer_id_expiration_ms = expiration_ms

    def set_cleaner(self, settings: CleanerSettings) -> None:
        self.cleaner = settings

    async def stop_partitions(self, specs: Sequence[tuple[str, int, bool]]) -> Sequence[int]:
        assert specs
        self._raise_for(specs)
        await self._answering.wait()
        codes = []
        for topic, partition, delete in specs:
            codes.append(int(self.failing.get((topic, partition), ErrorCode.NONE)))
            self.led.pop((topic, partition), None)
            self.followed.pop((topic, partition), None)
            self.stopped.append((topic, partition, delete))
        self._notify()
        return codes

    async def delete_records(
        self, targets: Sequence[tuple[str, int, int]]
    ) -> Sequence[tuple[int, int]]:
        await self._answering.wait()
        self.deleted_records += targets
        return [(ErrorCode.NONE, max(0, offset)) for _, _, offset in targets]

    def log_starts(self, partitions: Sequence[tuple[str, int]]) -> Sequence[LogStarts]:
        """Of preferred leaders; followers have followed except ``follower_starts``."""
        found = []
        for key in partitions:
            spec = self.led.get(key)
            if spec is None:
                found.append(LogStarts(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, []))
                continue
            deleted = [at for topic, index, at in self.deleted_records if (topic, index) == key]
            own = max([0, *deleted])
            told = self.follower_starts.get(key, {})
            followers = spec.replicas[1:]
            found.append(LogStarts(0, own, [(one, told.get(one, own)) for one in followers]))
        return found

    def alter_log_dirs(self, wanted: Sequence[tuple[str, int, str]]) -> Sequence[int]:
        """Knows no other directory than the first, so that nothing moves."""
        self.moves += wanted
        here = self.settings.log_dirs[0] if self.settings else "/fake"
        return [0 if path == here else ErrorCode.LOG_DIR_NOT_FOUND for _, _, path in wanted]

    async def describe_log_dirs(self) -> Sequence[LogDirUsage]:
        await self._answering.wait()
        partitions = [(topic, index, 0, 0, False) for topic, index in sorted(self.led)]
        paths = self.settings.log_dirs if self.settings else ["/fake"]
        return [LogDirUsage(path, 0, 1000, 500, partitions) for path in paths[:1]]

    async def replica_digest(self, topic: str, partition: int, asked: DigestRange) -> ReplicaDigest:
        """Of empty logs."""
        await self._answering.wait()
        key = (topic, partition)
        if key not in self.led and key not in self.followed:
            return ReplicaDigest(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return ReplicaDigest(ErrorCode.NONE, 0, 0, 0, 0, asked.end)

    def reply(self, request_id: int, body: bytes) -> None:
        assert request_id not in self.replies
        self.replies[request_id] = body
        self._finish(request_id)
        self._notify()

    def answer_heartbeat(self, heartbeat: Heartbeat, error: int) -> None:
        raise AssertionError("only a real plane decodes heartbeats")

    def resume(self, request_id: int, errors: Mapping[str, int]) -> None:
        self.resumed[request_id] = dict(errors)
        self._finish(request_id)
        self._notify()

    def close_request(self, request_id: int) -> None:
        self.closed.append(request_id)
        self._finish(request_id)
        self._notify()

    def park(self, request_id: int) -> bool:
        assert request_id not in self.replies
        if len(self.parked) >= self.waiting_room:
            return False
        self.parked.append(request_id)
        self._leave_place(request_id)
        self._notify()
        return True

    def internal_log(self, topic: str) -> FakeLog:

        def epoch_of(partition: int) -> int | None:
            spec = self.led.get((topic, partition))
            return None if spec is None else spec.leader_epoch

        return self._internal.setdefault(topic, FakeLog(epoch_of))

    def append_internal(
        self, topic: str, partition: int, records: Sequence[NewRecord], **options: Any
    ) -> Pending[AppendResult]:
        log = self.internal_log(topic)
        producer: Producer | None = options.get("producer")
        if producer is not None and not self.transactions.admits(
            topic, partition, producer, options.get("guard")
        ):
            log.failing.insert(0, ErrorCode.INVALID_TXN_STATE)
        return log.append_internal(topic, partition, records, **options)

    def append_commits(
        self, topic: str, partition: int, commits: Sequence[OffsetCommit], **options: Any
    ) -> None:
        return self.internal_log(topic).append_commits(topic, partition, commits, **options)

    def time_out_commits(self, commits: object) -> None:
        raise AssertionError("only a real plane has such commits")

    async def read_internal(
        self, topic: str, partition: int, offset: int, *, max_bytes: int
    ) -> InternalRead:
        log = self.internal_log(topic)
        return await log.read_internal(topic, partition, offset, max_bytes=max_bytes)

    async def load_internal(self, topic: str, partition: int, *, max_bytes: int) -> InternalLoad:
        if (topic, partition) not in self.led:
            return InternalLoad(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.internal_log(topic)
        return await log.load_internal(topic, partition, max_bytes=max_bytes)

    def write_markers(
        self, markers: Sequence[Marker], *, timestamp_ms: int
    ) -> Pending[Sequence[MarkerResult]]:
        """The results come while tickets are not held."""
        assert timestamp_ms >= 0
        results = [self._write(marker) for marker in markers]
        pending: Pending[Sequence[MarkerResult]] = Pending()
        if self._answering.is_set():
            pending.answer(results)
        else:
            self._held_markers.append(lambda: pending.answer(results))
        return pending

    def _write(self, marker: Marker) -> MarkerResult:
        key = (marker.topic, marker.partition)
        if key not in self.led:
            return MarkerResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        result = self.transactions.write(marker)
        if result.error is not ErrorCode.NONE or marker.topic not in self._internal:
            return result
        log = self.internal_log(marker.topic)
        log.end_transaction(marker.partition, marker.producer_id, commit=marker.is_commit)
        return MarkerResult(ErrorCode.NONE, log.end_offset(marker.partition) - 1)

    def begin_verification(self, topic: str, partition: int, producer: Producer) -> Verification:
        if (topic, partition) not in self.led:
            return Verification(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.transactions.begin_verification(topic, partition, producer)

    def end_verification(self, topic: str, partition: int, producer: Producer, guard: int) -> None:
        self.transactions.end_verification(topic, partition, producer, guard)

    def transaction_verified(self, verification_id: int, errors: Sequence[int]) -> None:
        self.transactions.verified[verification_id] = list(errors)
        self._notify()

    def set_transaction_verification(self, *, is_on: bool) -> None:
        self.verifies_transactions = is_on

    def offer_client_metrics(self, *, is_on: bool) -> None:
        self.offers_client_metrics = is_on

    def active_producers(
        self, topic: str, partition: int, *, max_count: int
    ) -> tuple[ErrorCode, Sequence[ActiveProducer]]:
        key = (topic, partition)
        if key not in self.led:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, []
        return ErrorCode.NONE, self.transactions.producers.get(key, [])[:max_count]

    def statistics(self) -> Mapping[str, int]:
        return {"led_partitions": len(self.led)}

    def times(self) -> Sequence[tuple[str, Sequence[int]]]:
        return []

    async def shutdown(self, grace_ms: int) -> bool:
        with trio.move_on_after(grace_ms / 1000) as scope:
            await self._answering.wait()
        self.is_shut_down = True
        self._notify()
        return not scope.cancelled_caught

    async def run(self, listener: PlaneListener) -> None:
        async for event in self._events:
            event(listener)
