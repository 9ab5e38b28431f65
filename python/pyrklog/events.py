"""What this broker does with the plane's events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import trio

from pyrklog.controller.service import ClusterService
from pyrklog.dataplane import Plane, Request, Session
from pyrklog.errors import ErrorCode
from pyrklog.groups.table import Heartbeat, OffsetCommit
from pyrklog.logs import get_logger
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Metastore, MetastoreError
from pyrklog.replication.driver import ReplicationDriver

Answer = TypeVar("Answer")

log = get_logger("broker")
plane_log = get_logger("plane")


class Handlers(Protocol):
    """The handlers of the APIs that Python serves."""

    async def handle(self, request: Request) -> bytes | None:
        """The body of the answer; None where there is none."""

    def handle_now(self, request: Request) -> bytes | None:
        """The body of an answer that waits for nothing; None: ask :meth:`handle`."""

    def heartbeat(self, heartbeat: Heartbeat) -> ErrorCode:
        """The code to answer with."""

    def commit_as_member(self, commit: OffsetCommit) -> bool:
        """Whether the commit is taken and will be answered; False: ask :meth:`handle`."""

    def error_reply(self, request: Request, code: ErrorCode) -> bytes | None:
        """An answer in which everything failed; None where there is none."""


class EventHandler:
    """Implements ``PlaneListener``: each event becomes a task. The plane bounds how many."""

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
    ) -> None:
        self._node_id = node_id
        self._plane = plane
        self._store = store
        self._service = service
        self._replication = replication
        self._load_handlers = load_handlers
        self._handlers: Handlers | None = None
        self._log_dirs_left = log_dir_count
        self._on_all_log_dirs_failed = on_all_log_dirs_failed
        self._nursery = nursery

    def on_request(self, request: Request) -> None:
        body = self._now(lambda handlers: handlers.handle_now(request))
        if body is None:
            self._nursery.start_soon(self._answer, request)
        else:
            self._plane.reply(request.id, body)

    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        code = self._now(lambda handlers: handlers.heartbeat(heartbeat))
        if code is None:
            self._nursery.start_soon(self._answer, heartbeat)
        else:
            self._plane.answer_heartbeat(heartbeat, code)

    def on_offset_commit(self, commit: OffsetCommit) -> None:
        if not self._now(lambda handlers: handlers.commit_as_member(commit)):
            self._nursery.start_soon(self._answer, commit)

    def on_topics_missing(self, request_id: int, topics: Sequence[str], session: Session) -> None:
        self._nursery.start_soon(self._create_missing, request_id, list(topics), session)

    def on_follower_caught_up(
        self, topic: str, partition: int, leader_epoch: int, broker: int, broker_epoch: int
    ) -> None:
        if self._replication.isrs is not None:
            key = (topic, partition)
            self._replication.isrs.caught_up(key, leader_epoch, broker, broker_epoch)

    def on_log_dir_failed(
        self, path: str, reason: str, partitions: Sequence[tuple[str, int]]
    ) -> None:
        log.error("log_dir_failed", path=path, reason=reason, partitions=len(partitions))
        self._replication.log_dir_failed(partitions)
        self._log_dirs_left -= 1
        if self._log_dirs_left <= 0:
            self._on_all_log_dirs_failed()
        self._nursery.start_soon(self._announce_failure)

    def on_notice(self, event: str, fields: Mapping[str, str], level: str) -> None:
        plane_log.log(level, event, fields)

    def preload(self) -> Handlers:
        """Imports the handlers, so that the first request need not wait for that."""
        if self._handlers is None:
            self._handlers = self._load_handlers()
        return self._handlers

    def _now(self, ask: Callable[[Handlers], Answer | None]) -> Answer | None:
        """What the handlers say at once; None: a task has to ask them."""
        if self._handlers is None:
            return None  # loading them takes a while, and this must not block
        try:
            return ask(self._handlers)
        except Exception:
            return None  # the other way ends in the same error, and reports it

    async def _answer(self, request: Request) -> None:
        try:
            body = await self.preload().handle(request)
        except Exception as error:
            body = self._answer_failure(request, error)
        if body is None:
            self._plane.close_request(request.id)
        else:
            self._plane.reply(request.id, body)

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
        log.error("request_failed", exc_info=error, **facts)
        try:
            return self.preload().error_reply(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        except Exception as second:
            log.error("error_reply_failed", exc_info=second, **facts)
            return None

    async def _create_missing(
        self, request_id: int, topics: Sequence[str], session: Session
    ) -> None:
        try:
            if not self._service.knows_brokers:
                # What ends this wait is a request, too, and must find a place.
                self._plane.park(request_id)
            await self._service.wait_for_brokers()
            errors = await self._service.auto_create_topics(topics)
        except Exception as error:
            log.error("auto_create_failed", exc_info=error, topics=list(topics)[:10])
            errors = dict.fromkeys(topics, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            created = [name for name in topics if name not in errors]
            if created:
                log.info("topics_auto_created", topics=created[:10], client_id=session.client_id)
        self._plane.resume(request_id, {name: int(code) for name, code in errors.items()})

    async def _announce_failure(self) -> None:
        """The controller looks at this broker's replicas when it sees this node."""
        data = znodes.encode_log_dir_event(self._node_id)
        try:
            await self._store.create(znodes.LOG_DIR_EVENT_PREFIX, data, sequence=True)
        except MetastoreError as error:
            log.error("log_dir_failure_not_announced", reason=str(error))
