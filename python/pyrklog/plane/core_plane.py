"""The Rust data plane as Trio sees it; apart from users of offsets and arenas the only importer of
``pyrklog._core``.

Slow commands return tickets, which complete as events; here they are awaitable, or a ``Pending``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import trio

from pyrklog.base.logs import get_logger
from pyrklog.base.pending import Pending, answered
from pyrklog.base.problems import Problem
from pyrklog.config.connection_quotas import ConnectionQuotas
from pyrklog.errors import ConfigError, ErrorCode, StartError, TemporaryError
from pyrklog.plane.internal_log import (
    ActiveProducer,
    AppendResult,
    InternalBatch,
    InternalLoad,
    InternalRead,
    InternalRecord,
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
)
from pyrklog.plane.start_errors import (
    listen_error,
    refuse_taken_port,
    refused_log_dir,
    with_holder,
)
from pyrklog.plane.values import FollowerSpec, ImageDelta, LeaderSpec, ReplicaOffsets

if TYPE_CHECKING:
    from pyrklog import _core
    from pyrklog._core import CommitBatch, Heartbeat, OffsetCommit

EVENTS_PER_TURN_MAX = 512
TURN_SECONDS = 0.02
"""Longer batches of events let other tasks run in between."""

log = get_logger("plane")
_OTHERS_FIX = "start the broker that it belongs to, or choose another directory"


def memory_bytes() -> int:
    """The smaller of RAM and this process's memory cgroup limit."""
    from pyrklog import _core

    return _core.memory_bytes()


class Plane:
    """The data plane's commands. Results have protocol codes for single partitions.

    A slow command after ``shutdown`` never completes; cancel its caller.
    ``testing.fake_plane.FakePlane`` stands in for it in tests.
    """

    def __init__(self, settings: PlaneSettings) -> None:
        """Creates and locks the log directories. Raises :class:`StartError` or a subclass."""
        from pyrklog import _core

        self._core = _core
        self.verifies_transactions = True
        """``transaction.partition.verification.enable``."""
        try:
            self._plane = _core.DataPlane(settings)
        except _core.LogDirLockedError as error:
            raise TemporaryError(
                Problem.DIRECTORY_IN_USE, with_holder(str(error), settings.log_dirs)
            ) from None
        except _core.ForeignLogDirError as error:
            raise ConfigError(Problem.FOREIGN_DATA, str(error)) from None
        except _core.OtherClusterLogDirError as error:
            raise ConfigError(Problem.OTHER_CLUSTERS_DATA, str(error), fix=_OTHERS_FIX) from None
        except _core.OtherBrokerLogDirError as error:
            raise ConfigError(Problem.OTHER_BROKERS_DATA, str(error), fix=_OTHERS_FIX) from None
        except _core.LogDirError as error:
            raise refused_log_dir(settings.log_dirs) or StartError(
                Problem.DISK_FAILED, str(error)
            ) from None
        except (ValueError, OverflowError) as error:
            raise ConfigError(
                Problem.OPTION_VALUE, f"The data plane refuses its configuration: {error}."
            ) from None
        self._waiting: dict[int, Callable[[Any], None]] = {}
        """By ticket, what takes its event."""

    def found_partitions(self) -> Sequence[FoundPartition]:
        """Partition folders at start."""
        return [FoundPartition(*item) for item in self._plane.found_partitions()]

    def pasts(self) -> Sequence[DirectoryPast]:
        """How the last registered life left each usable log directory."""
        return [DirectoryPast(*item) for item in self._plane.pasts()]

    def listen(self, listener: str, host: str, port: int, *, for_brokers: bool = False) -> int:
        """Binds and accepts; returns the port. ``for_brokers``: only for brokers, which may connect
        when clients have taken every connection (KIP-402). Raises :class:`TemporaryError`.
        """
        try:
            return self._plane.listen(listener, host, port, for_brokers)
        except OSError as error:
            raise listen_error(listener, host, port, error) from None

    def check_port(self, listener: str, host: str, port: int) -> None:
        """See :func:`refuse_taken_port`."""
        refuse_taken_port(listener, host, port)

    def apply_image(self, delta: ImageDelta) -> None:
        """Applies the next version of the image."""
        self._plane.apply_image(delta)

    async def become_leaders(self, specs: Sequence[LeaderSpec]) -> Sequence[int]:
        """Opens or creates logs and serves them; one error code for each spec, 0 = done."""
        done: _core.PartitionsDone = await self._ticket(lambda: self._plane.become_leaders(specs))
        return done.errors

    async def become_followers(self, specs: Sequence[FollowerSpec]) -> Sequence[int]:
        """Opens or creates logs and follows their leaders; one error code for each spec, 0
        = done.
        """
        done: _core.PartitionsDone = await self._ticket(lambda: self._plane.become_followers(specs))
        return done.errors

    def log_ends(self, partitions: Sequence[tuple[str, int]]) -> Sequence[tuple[int, int] | None]:
        """(leader epoch of the last record, -1 without any; log end offset) of each log; None where
        none is open.
        """
        return self._plane.log_ends(partitions)

    def replica_offsets(
        self, partitions: Sequence[tuple[str, int]]
    ) -> Sequence[ReplicaOffsets | None]:
        """Of each replica here; None where no log is open. Waits for nothing."""
        found = self._plane.replica_offsets(partitions)
        return [None if one is None else ReplicaOffsets(*one) for one in found]

    def served_bytes(self, topic: str) -> tuple[int, int]:
        """Record bytes of the topic's replicas here that fetches got: out of the block cache, and
        out of files."""
        return self._plane.served_bytes(topic)

    def data_ends(self, partitions: Sequence[tuple[str, int]]) -> Sequence[int | None]:
        """The offset behind the last batch of each log that is no transaction marker, as far as it
        is known, and never below it; None where none is open."""
        return self._plane.data_ends(partitions)

    def set_isr(
        self,
        topic: str,
        partition: int,
        leader_epoch: int,
        members: Sequence[int],
        isr: Sequence[int],
        is_held: bool,
    ) -> bool:
        """Sets a led partition's ISR: the written one, and ``members`` with joining replicas;
        ``is_held`` as in :class:`LeaderSpec`. False where it is not led in that epoch, or where a
        joining replica lacks records below the high watermark (it is reported again once it has
        them).
        """
        return self._plane.set_isr(topic, partition, leader_epoch, members, isr, is_held)

    def lagging_followers(self, max_lag_ms: int) -> Sequence[LaggingFollowers]:
        """Of all led partitions."""
        return [LaggingFollowers(*item) for item in self._plane.lagging_followers(max_lag_ms)]

    def set_broker_epoch(self, epoch: int) -> None:
        """The epoch of this broker's registration."""
        self._plane.set_broker_epoch(epoch)

    def set_replication_rates(
        self, *, leader_bytes: int | None, follower_bytes: int | None
    ) -> None:
        """Bytes a second to and from replicas that topics name as throttled (KIP-73); None =
        unlimited.
        """
        self._plane.set_replication_rates(leader_bytes=leader_bytes, follower_bytes=follower_bytes)

    def set_back_fill_rate(self, rate: int) -> None:
        """Bytes a second of all back-fills together; 0 = none."""
        self._plane.set_back_fill_rate(rate)

    def set_replication_window_ms(self, window_ms: int) -> None:
        """Time over which these rates are averaged."""
        self._plane.set_replication_window_ms(window_ms)

    def set_move_rate(self, rate: int | None) -> None:
        """Bytes a second at which replicas move between log directories; None = unlimited."""
        self._plane.set_move_rate(rate)

    def set_move_window_ms(self, window_ms: int) -> None:
        """Time over which that rate is averaged."""
        self._plane.set_move_window_ms(window_ms)

    def set_connection_quotas(self, quotas: ConnectionQuotas) -> None:
        """For all connections that come from now on; hosts are addresses."""
        self._plane.set_connection_quotas(quotas)

    def set_io_threads(self, threads: int) -> None:
        self._plane.set_io_threads(threads)

    def set_recovery_threads_per_dir(self, threads: int) -> None:
        self._plane.set_recovery_threads_per_dir(threads)

    def set_producer_id_expiration_ms(self, expiration_ms: int) -> None:
        self._plane.set_producer_id_expiration_ms(expiration_ms)

    def set_cleaner(self, settings: CleanerSettings) -> None:
        """Cleanings that have begun keep their memory."""
        self._plane.set_cleaner(settings)

    async def stop_partitions(self, specs: Sequence[tuple[str, int, bool]]) -> Sequence[int]:
        """Each (topic, partition, delete); one error code for each spec, 0 = done."""
        done: _core.PartitionsDone = await self._ticket(lambda: self._plane.stop_partitions(specs))
        return done.errors

    async def delete_records(
        self, targets: Sequence[tuple[str, int, int]]
    ) -> Sequence[tuple[int, int]]:
        """Each (topic, partition, offset); (error code, log start offset or -1) in order."""
        done: _core.RecordsDeleted = await self._ticket(lambda: self._plane.delete_records(targets))
        return done.results

    def log_starts(self, partitions: Sequence[tuple[str, int]]) -> Sequence[LogStarts]:
        """Of each partition; ``on_follower_log_start`` tells once when one has moved since."""
        return [LogStarts(*found) for found in self._plane.log_starts(partitions)]

    def alter_log_dirs(self, wanted: Sequence[tuple[str, int, str]]) -> Sequence[int]:
        """Each (topic, partition, path of the log directory that it is to move to); error codes in
        order, 0 = the move is under way, or the replica is there."""
        return self._plane.alter_log_dirs(wanted)

    async def describe_log_dirs(self) -> Sequence[LogDirUsage]:
        """All log directories."""
        done: _core.LogDirsDescribed = await self._ticket(self._plane.describe_log_dirs)
        return list(map(LogDirUsage._make, done.log_dirs))

    async def replica_digest(self, topic: str, partition: int, asked: DigestRange) -> ReplicaDigest:
        """Digests this broker's replica. Errors: see ``DataPlane::replica_digest`` in
        rust/dataplane/src/plane/digests.rs.
        """
        done: _core.ReplicaDigestDone = await self._ticket(
            lambda: self._plane.replica_digest(
                topic, partition, asked.start, asked.end, max_bytes=asked.max_bytes
            )
        )
        error, *found = done.digest
        return ReplicaDigest._make((ErrorCode(error), *found))

    def append_internal(
        self,
        topic: str,
        partition: int,
        records: Sequence[NewRecord],
        *,
        timestamp_ms: int,
        codec: int,
        expected_epoch: int,
        producer: Producer | None = None,
        guard: int | None = None,
    ) -> Pending[AppendResult]:
        """Appends one batch to an internal topic; the result comes when the high watermark has
        passed it.

        The batch enters the log in memory within the call: a partition's appends are in the order
        of the calls. Giving up the wait does not take it back. ``codec`` is the number in a
        batch's attributes. With a ``guard`` of ``begin_verification``, INVALID_TXN_STATE where
        it is void by now. Other errors: see ``DataPlane::append_internal`` in
        rust/dataplane/src/plane.rs; after a shutdown NOT_LEADER_OR_FOLLOWER.
        """
        waiter: Pending[AppendResult] = Pending()
        try:
            ticket = self._plane.append_internal(
                topic,
                partition,
                records,
                timestamp_ms=timestamp_ms,
                codec=codec,
                expected_epoch=expected_epoch,
                producer=producer,
                guard=guard,
            )
        except self._core.PlaneClosedError:
            return answered(AppendResult(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        # Stays until its event, awaited or not.
        self._waiting[ticket] = lambda event: waiter.answer(_append_result(event))
        return waiter

    def append_commits(
        self,
        topic: str,
        partition: int,
        commits: Sequence[OffsetCommit],
        *,
        timestamp_ms: int,
        codec: int,
        expected_epoch: int,
    ) -> CommitBatch | None:
        """Appends staged commits as one batch, in order; they are answered afterwards, also with
        errors. None: the plane is ending.
        """
        try:
            return self._plane.append_commits(
                topic,
                partition,
                commits,
                timestamp_ms=timestamp_ms,
                codec=codec,
                expected_epoch=expected_epoch,
            )
        except self._core.PlaneClosedError:
            return None

    def time_out_commits(self, commits: CommitBatch) -> None:
        """Answers the unanswered ones with REQUEST_TIMED_OUT."""
        self._plane.time_out_commits(commits)

    async def read_internal(
        self, topic: str, partition: int, offset: int, *, max_bytes: int
    ) -> InternalRead:
        """Reads whole batches of an internal topic, decompressed, up to the log end offset.

        At least one batch, however large. Errors: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR,
        OFFSET_OUT_OF_RANGE (beyond the log end), INVALID_TOPIC_EXCEPTION (not internal).
        """
        done: _core.InternalReadDone = await self._ticket(
            lambda: self._plane.read_internal(topic, partition, offset, max_bytes=max_bytes)
        )
        batches = [_internal_batch(batch) for batch in done.batches]
        return InternalRead(ErrorCode(done.error), batches, done.next_offset, done.end_offset)

    async def load_internal(self, topic: str, partition: int, *, max_bytes: int) -> InternalLoad:
        """Reads a partition of an internal topic from its log start to its end, on a reader's
        thread and about ``max_bytes`` at a time, and keeps what counts. Errors as of
        ``read_internal``.
        """
        done: _core.InternalLoaded = await self._ticket(
            lambda: self._plane.load_internal(topic, partition, max_bytes=max_bytes)
        )
        return InternalLoad(ErrorCode(done.error), done.records)

    def write_markers(
        self, markers: Sequence[Marker], *, timestamp_ms: int
    ) -> Pending[Sequence[MarkerResult]]:
        """Ends transactions in partitions that this broker leads; the results, in order, come when
        the high watermark has passed every marker.

        Each marker enters its partition's log within the call, in the order of the calls.
        Giving up the wait does not take them back. Errors: see ``DataPlane::write_markers`` in
        rust/dataplane/src/plane/transactions.rs; after a shutdown NOT_LEADER_OR_FOLLOWER.
        """
        waiter: Pending[Sequence[MarkerResult]] = Pending()
        try:
            ticket = self._plane.write_markers(markers, timestamp_ms=timestamp_ms)
        except self._core.PlaneClosedError:
            return answered([MarkerResult(ErrorCode.NOT_LEADER_OR_FOLLOWER) for _ in markers])
        self._waiting[ticket] = lambda event: waiter.answer(_marker_results(event))
        return waiter

    def begin_verification(self, topic: str, partition: int, producer: Producer) -> Verification:
        """Before the coordinator is asked about a transaction's first ``append_internal`` to a
        partition. A marker, a newer epoch or a new leader voids the guard; otherwise
        ``end_verification`` gives it back.

        Errors: NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH (the producer has a newer epoch),
        NOT_ENOUGH_REPLICAS (too many are asked about).
        """
        error, guard = self._plane.begin_verification(topic, partition, producer.id, producer.epoch)
        return Verification(ErrorCode(error), guard)

    def end_verification(self, topic: str, partition: int, producer: Producer, guard: int) -> None:
        """The coordinator refused, or the append is over. A guard that is void is ignored."""
        self._plane.end_verification(topic, partition, producer.id, producer.epoch, guard)

    def transaction_verified(self, verification_id: int, errors: Sequence[int]) -> None:
        """Answers ``on_verify_transaction``: the coordinator's error code for each partition, or
        why it could not be asked. The client is told what its version knows.
        """
        self._plane.transaction_verified(verification_id, errors)

    def set_transaction_verification(self, *, is_on: bool) -> None:
        """``transaction.partition.verification.enable``; at first on. Transactions of version 2 are
        verified nevertheless.
        """
        self.verifies_transactions = is_on
        self._plane.set_transaction_verification(is_on)

    def offer_client_metrics(self, *, is_on: bool) -> None:
        """Whether clients that connect from now on may push metrics; at first not."""
        self._plane.offer_client_metrics(is_on)

    def active_producers(
        self, topic: str, partition: int, *, max_count: int
    ) -> tuple[ErrorCode, Sequence[ActiveProducer]]:
        """Up to ``max_count`` producers that this broker's replica knows, leader or follower, those
        with an open transaction first. Errors: NOT_LEADER_OR_FOLLOWER: it has none;
        KAFKA_STORAGE_ERROR.
        """
        error, found = self._plane.active_producers(topic, partition, max=max_count)
        return ErrorCode(error), list(map(ActiveProducer._make, found))

    def reply(self, request_id: int, body: bytes) -> None:
        """Answers a request; ``body`` follows the response header."""
        self._plane.reply(request_id, body)

    def answer_heartbeat(self, heartbeat: Heartbeat, error: int) -> None:
        """Answers a heartbeat with a code."""
        self._plane.answer_heartbeat(heartbeat, error)

    def resume(self, request_id: int, errors: Mapping[str, int]) -> None:
        """Answers a Metadata request that waited."""
        self._plane.resume(request_id, errors)

    def close_request(self, request_id: int) -> None:
        """Closes the connection of a request without an answer."""
        self._plane.close_request(request_id)

    def park(self, request_id: int) -> bool:
        """The answer waits (for other clients, replication or the metadata store): the request no
        longer counts in ``queued.max.requests``. Returns False where there is no memory for more
        waiting ones: answer at once.
        """
        return self._plane.park(request_id)

    def statistics(self) -> Mapping[str, int]:
        """Counters."""
        return self._plane.statistics()

    def times(self) -> Sequence[tuple[str, Sequence[int]]]:
        """Histograms by name: counts of each bucket, then the sum in nanoseconds."""
        return self._plane.times()

    async def shutdown(self, grace_ms: int) -> bool:
        """Refuses new work, drains, writes, syncs; True when everything is marked clean."""
        done: _core.ShutdownDone = await self._ticket(lambda: self._plane.shutdown(grace_ms))
        return done.clean

    def abandon(self) -> None:
        self._plane.abandon()

    async def run(self, listener: PlaneListener) -> None:
        """Delivers events until cancelled."""
        descriptor = self._plane.event_fd()
        takers = self._takers(listener)
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            events = self._plane.drain_events(EVENTS_PER_TURN_MAX)
            began = monotonic()
            for event in events:
                try:
                    takers[type(event)](event)
                except Exception as error:
                    log.error("event_failed", kind=type(event).__name__, exc_info=error)
                if monotonic() - began > TURN_SECONDS:
                    await trio.lowlevel.checkpoint()
                    began = monotonic()

    def _takers(self, listener: PlaneListener) -> Mapping[type, Callable[[Any], None]]:
        """What takes each kind of event."""
        core = self._core
        finished = (
            core.PartitionsDone,
            core.RecordsDeleted,
            core.LogDirsDescribed,
            core.InternalAppended,
            core.InternalReadDone,
            core.InternalLoaded,
            core.MarkersWritten,
            core.ReplicaDigestDone,
            core.ShutdownDone,
        )
        return {
            **dict.fromkeys(finished, self._finish),
            core.Request: listener.on_request,
            core.Heartbeat: listener.on_heartbeat,
            core.OffsetCommit: listener.on_offset_commit,
            core.TopicsMissing: lambda one: listener.on_topics_missing(
                one.id, one.topics, one.session
            ),
            core.ClientGone: lambda one: listener.on_client_gone(one.id),
            core.VerifyTransaction: listener.on_verify_transaction,
            core.FollowerCaughtUp: lambda one: listener.on_follower_caught_up(
                one.topic, one.partition, one.leader_epoch, one.broker, one.broker_epoch
            ),
            core.FollowerLogStart: lambda one: listener.on_follower_log_start(
                one.topic, one.partition
            ),
            core.LogDirFailed: lambda one: listener.on_log_dir_failed(
                one.path, one.reason, one.partitions
            ),
            core.PartitionFailed: lambda one: listener.on_partition_failed(
                one.topic, one.topic_id, one.partition, one.reason
            ),
            core.Notice: lambda one: listener.on_notice(one.event, one.fields, one.level),
        }

    def _finish(self, event: Any) -> None:
        """A command is done."""
        take = self._waiting.pop(event.ticket, None)
        if take is not None:
            take(event)

    async def _ticket(self, command: Callable[[], int]) -> Any:
        """Issues the command and waits for its event, which no turn delivers before."""
        try:
            ticket = command()
        except self._core.PlaneClosedError:
            # The broker is ending and cancels the caller when the plane is done.
            await trio.sleep_forever()
        waiter: Pending[Any] = Pending()
        self._waiting[ticket] = waiter.answer
        try:
            return await waiter
        finally:
            self._waiting.pop(ticket, None)


def _append_result(done: _core.InternalAppended) -> AppendResult:
    return AppendResult(ErrorCode(done.error), done.base_offset)


def _marker_results(done: _core.MarkersWritten) -> Sequence[MarkerResult]:
    return [MarkerResult(ErrorCode(error), offset) for error, offset in done.results]


def _internal_batch(fields: Iterable[Any]) -> InternalBatch:
    batch = InternalBatch._make(fields)
    return batch._replace(records=list(map(InternalRecord._make, batch.records)))


def feature_table() -> Sequence[tuple[str, int, int, int]]:
    """Features of ApiVersions (KIP-584): name, lowest and highest supported version, finalized
    version.
    """
    from pyrklog import _core

    return _core.feature_table()


def api_table() -> Sequence[_core.ApiRow]:
    """The served APIs: key, name, versions, owner."""
    from pyrklog import _core

    return _core.api_table()
