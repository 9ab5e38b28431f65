from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from pyrklog.base.logs import get_logger
from pyrklog.base.pending import Pending
from pyrklog.base.told import Told
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.groups.core_types import Heartbeat, OffsetCommit
from pyrklog.handlers.client_table import SEEN, ClientTable
from pyrklog.handlers.context import LIMIT_SECONDS, WhenDone
from pyrklog.handlers.requests_waiting import WaitingRequests
from pyrklog.handlers.service import ClusterService
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Metastore, MetastoreError
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.seam import Request, Session, VerifyTransaction
from pyrklog.replication.driver import ReplicationDriver

if TYPE_CHECKING:
    from pyrklog.handlers.context import Later
    from pyrklog.handlers.dispatch import Handlers

Event = TypeVar("Event")

LATE_REPLY_MAX_BYTES = 16 << 10
"""Without memory for more waiting requests, a larger request is not decoded for an error answer:
its connection is closed."""

ANNOUNCE_AGAIN_SECONDS = 1.0
"""The first pause before a failure is announced again; each further one doubles."""

ANNOUNCE_AGAIN_MAX_SECONDS = 30.0

FAILURE_AGAIN_SECONDS = 10.0
FAILURES_MAX = 50
"""In that time."""

log = get_logger("broker")
plane_log = get_logger("plane")
_NUMBERS = frozenset(
    {
        "partition",
        "leader",
        "from",
        "to",
        "offset",
        "segments",
        "keys",
        "bytes",
        "bytes_before",
        "bytes_after",
        "clean_below",
        "ms",
        "swap_ms",
        "held_ms",
        "recovered_segments",
        "scanned_bytes",
        "truncated_bytes",
        "converted_segments",
        "rebuilt_indexes",
    }
)
"""Fields of the plane's notices, which come as texts. A name, as a topic's, may look like one."""


class EventHandler:
    """Implements ``PlaneListener``.

    Requests are handled in the order of arrival; a waiting one gets a task
    (:mod:`.requests_waiting`). An exception ends its own event only: it is logged, and the request
    gets an error.
    """

    def __init__(
        self,
        *,
        node_id: int,
        plane: Plane,
        store: Metastore,
        service: ClusterService,
        replication: ReplicationDriver,
        load_handlers: Callable[[], Handlers],
        log_dir_count: int,
        on_all_log_dirs_failed: Callable[[], None],
        nursery: trio.Nursery,
        clients: ClientTable | None = None,
    ) -> None:
        """``clients`` notes who asks."""
        self._node_id = node_id
        self._clients = clients
        self._plane = plane
        self._store = store
        self._service = service
        self._replication = replication
        self._load_handlers = load_handlers
        self._handlers: Handlers | None = None
        self.failed_log_dirs: list[str] = []
        """Paths, as they failed."""
        self._log_dirs_left = log_dir_count
        self._on_all_log_dirs_failed = on_all_log_dirs_failed
        self._nursery = nursery
        self._waiting = WaitingRequests(plane, nursery)
        self._early: deque[Callable[[], None]] = deque()
        self._is_unannounced = False
        """Partitions have failed since the last announcement began, or it did not succeed."""
        self._announces = False
        """A task announces failures."""
        self._failures_told = Told(FAILURE_AGAIN_SECONDS, FAILURES_MAX, trio.current_time)
        """By API and kind of exception: a client may send what fails in a loop."""

    def on_request(self, request: Request) -> None:
        if self._clients is not None:
            key, version = request.api_key, request.api_version
            self._act(partial(self._clients.note_request, request.session, key, version))
        self._when_loaded(self._begin, request)

    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        # A direct path: a broker gets tens of thousands of heartbeats and commits a second.
        handlers = self._handlers
        if handlers is None or self._early:
            self._when_loaded(self._heartbeat, heartbeat)
            return
        try:
            code = handlers.heartbeat(heartbeat)
        except Exception as error:
            self._act(partial(self._heartbeat_failed, heartbeat, error))
        else:
            self._plane.answer_heartbeat(heartbeat, code)

    def on_offset_commit(self, commit: OffsetCommit) -> None:
        self._when_loaded(self._commit, commit)

    def on_verify_transaction(self, asked: VerifyTransaction) -> None:
        self._when_loaded(self._verify, asked)

    def on_topics_missing(self, request_id: int, topics: Sequence[str], session: Session) -> None:
        def no_room() -> None:
            self._resume(request_id, dict.fromkeys(topics, ErrorCode.LEADER_NOT_AVAILABLE))

        create = partial(self._create_missing, request_id, list(topics), session)
        self._act(partial(self._waiting.start, request_id, create, no_room))

    def on_client_gone(self, request_id: int) -> None:
        self._when_loaded(self._waiting.client_gone, request_id)

    def on_follower_caught_up(
        self, topic: str, partition: int, leader_epoch: int, broker: int, broker_epoch: int
    ) -> None:
        def tell() -> None:
            if self._replication.isrs is not None:
                key = (topic, partition)
                self._replication.isrs.caught_up(key, leader_epoch, broker, broker_epoch)

        self._act(tell)

    def on_follower_log_start(self, topic: str, partition: int) -> None:
        self._act(lambda: self._service.log_start_moved(topic, partition))

    def on_log_dir_failed(
        self, path: str, reason: str, partitions: Sequence[tuple[str, int]]
    ) -> None:
        log.error("log_dir_failed", path=path, reason=reason, partitions=len(partitions))
        self._fail(lambda: self._replication.partitions_failed(partitions))
        self.failed_log_dirs.append(path)
        self._log_dirs_left -= 1
        if self._log_dirs_left <= 0:
            self._on_all_log_dirs_failed()

    def on_partition_failed(self, topic: str, topic_id: bytes, partition: int, reason: str) -> None:
        log.error("partition_offline", topic=topic, partition=partition, reason=reason)
        self._fail(lambda: self._replication.partition_failed((topic, partition), topic_id))

    def _fail(self, act: Callable[[], None]) -> None:
        self._act(act)
        self._is_unannounced = True
        if not self._announces:
            self._announces = True
            self._nursery.start_soon(self._announce_failures)

    def on_notice(self, event: str, fields: Mapping[str, str], level: str) -> None:
        if self._clients is not None:
            self._act(partial(self._clients.note_notice, event, fields))
        if event == SEEN:
            return
        self._act(partial(plane_log.log, level, event, _with_numbers(fields)))

    def preload(self) -> Handlers:
        if self._handlers is None:
            self._handlers = self._load_handlers()
        return self._handlers

    def _when_loaded(self, act: Callable[[Event], None], event: Event) -> None:
        """Keeps the order of events, also before the handlers are loaded."""
        if self._handlers is not None and not self._early:
            try:
                act(event)
            except Exception as error:
                log.error("event_failed", exc_info=error)
            return
        self._early.append(partial(act, event))
        if len(self._early) == 1:
            self._nursery.start_soon(self._load_and_begin)

    async def _load_and_begin(self) -> None:
        # Loading takes a while; the sender of events must not wait for it.
        await trio.lowlevel.checkpoint()
        self.preload()
        while self._early:
            self._act(self._early[0])
            self._early.popleft()

    def _act(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            log.error("event_failed", exc_info=error)

    def _begin(self, request: Request) -> None:
        try:
            begun = self.preload().begin(request)
        except Exception as error:
            self._reply(request.id, self._answer_failure(request, error))
            return
        if begun is None or isinstance(begun, bytes):
            self._reply(request.id, begun)
            return
        if isinstance(begun, WhenDone):
            self._waiting.start_pending(
                request.id,
                begun.pending,
                partial(self._answer_done, request, begun),
                partial(self._answer_late, request),
                (LIMIT_SECONDS, partial(self._answer_limit, request)) if begun.is_limited else None,
            )
            return
        self._waiting.start(
            request.id,
            partial(self._answer_later, request, begun),
            partial(self._answer_late, request),
            parks=begun.waits,
        )

    def _heartbeat(self, heartbeat: Heartbeat) -> None:
        try:
            code = self.preload().heartbeat(heartbeat)
        except Exception as error:
            self._heartbeat_failed(heartbeat, error)
        else:
            self._plane.answer_heartbeat(heartbeat, code)

    def _heartbeat_failed(self, heartbeat: Heartbeat, error: Exception) -> None:
        self._reply(heartbeat.id, self._answer_failure(heartbeat, error))

    def _commit(self, commit: OffsetCommit) -> None:
        try:
            is_taken = self.preload().commit_as_member(commit)
        except Exception as error:
            # No retry on the other path: half of the commit may have happened.
            self._reply(commit.id, self._answer_failure(commit, error))
            return
        if not is_taken:
            self._begin(commit)

    def _verify(self, asked: VerifyTransaction) -> None:
        try:
            answer = self.preload().verify_transaction_now(asked)
        except Exception as error:
            self._verified(asked, error)
            return
        if answer is None:
            # The plane limits the number of requests that wait for it.
            self._nursery.start_soon(self._verify_later, asked)
        elif isinstance(answer, Pending):
            answer.when_done(partial(self._verify_done, asked, answer))
        else:
            self._verified(asked, answer)

    async def _verify_later(self, asked: VerifyTransaction) -> None:
        try:
            errors = await self.preload().verify_transaction(asked)
        except Exception as error:
            self._verified(asked, error)
        else:
            self._verified(asked, errors)

    def _verify_done(self, asked: VerifyTransaction, done: Pending[list[ErrorCode]]) -> None:
        try:
            self._verified(asked, done.take())
        except Exception as error:
            self._verified(asked, error)

    def _verified(self, asked: VerifyTransaction, outcome: Sequence[ErrorCode] | Exception) -> None:
        if isinstance(outcome, Exception):
            log.error("transaction_not_verified", id=asked.transactional_id[:200], exc_info=outcome)
            outcome = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(asked.partitions)
        self._plane.transaction_verified(asked.id, outcome)

    async def _answer_later(self, request: Request, later: Later[bytes | None]) -> None:
        try:
            body = await later.wait()
        except Exception as error:
            self._reply(request.id, self._answer_failure(request, error))
        else:
            self._reply(request.id, body)

    def _answer_done(self, request: Request, done: WhenDone[bytes]) -> None:
        try:
            body: bytes | None = done.answer()
        except Exception as error:
            body = self._answer_failure(request, error)
        self._reply(request.id, body)

    def _answer_limit(self, request: Request) -> None:
        self._reply(request.id, self.preload().late_reply(request))

    def _answer_late(self, request: Request) -> None:
        log.warning("request_not_waited_for", api_key=request.api_key, waiting=len(self._waiting))
        is_large = len(request.body) > LATE_REPLY_MAX_BYTES
        self._reply(request.id, None if is_large else self.preload().late_reply(request))

    def _reply(self, request_id: int, body: bytes | None) -> None:
        if body is None:
            self._plane.close_request(request_id)
        else:
            self._plane.reply(request_id, body)

    def _answer_failure(self, request: Request, error: Exception) -> bytes | None:
        facts = {
            "api_key": request.api_key,
            "api_version": request.api_version,
            "client_id": request.session.client_id,
            "host": request.session.host,
        }
        if type(error).__name__ == "DecodeError":
            log.warning("malformed_request", reason=str(error), **facts)
            return None
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(error, ApiError):
            code = error.code
        elif self._failures_told.is_due((request.api_key, type(error))):
            log.error("request_failed", exc_info=error, **facts)
        try:
            return self.preload().error_reply(request, code)
        except Exception as second:
            log.error("error_reply_failed", exc_info=second, **facts)
            return None

    async def _create_missing(
        self, request_id: int, topics: Sequence[str], session: Session
    ) -> None:
        try:
            if not self._service.knows_brokers:
                # The request that ends this wait needs a free place, too.
                self._waiting.park(request_id)
            await self._service.wait_for_brokers()
            errors = await self._service.auto_create_topics(topics)
        except Exception as error:
            log.error("auto_create_failed", exc_info=error, topics=list(topics)[:10])
            errors = dict.fromkeys(topics, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            created = [name for name in topics if name not in errors]
            if created:
                log.info("topics_auto_created", topics=created[:10], client_id=session.client_id)
        self._resume(request_id, errors)

    def _resume(self, request_id: int, errors: Mapping[str, ErrorCode]) -> None:
        self._plane.resume(request_id, {name: int(code) for name, code in errors.items()})

    async def _announce_failures(self) -> None:
        """Until the controller can know of all failures: without it nobody else would lead."""
        pause_seconds = ANNOUNCE_AGAIN_SECONDS
        while self._is_unannounced:
            self._is_unannounced = False  # later failures need another node
            if not await self._announce_failure():
                self._is_unannounced = True
                await trio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, ANNOUNCE_AGAIN_MAX_SECONDS)
        self._announces = False

    async def _announce_failure(self) -> bool:
        """The controller checks this broker's replicas when it sees the node; true if it exists."""
        data = znodes.encode_log_dir_event(self._node_id)
        try:
            await self._store.create(znodes.LOG_DIR_EVENT_PREFIX, data, sequence=True)
        except MetastoreError as error:
            log.error("log_dir_failure_not_announced", reason=str(error))
        except Exception as error:
            log.error("log_dir_failure_not_announced", exc_info=error)
        else:
            return True
        return False


def _with_numbers(fields: Mapping[str, str]) -> dict[str, str | int]:
    return {
        name: int(text) if name in _NUMBERS and text.isascii() and text.isdecimal() else text
        for name, text in fields.items()
    }
