"""Membership: sessions that end and begin again, and this broker's registration.

What depends on a session (watches, the controller's term, the registration) restarts with the next
one; clients are served meanwhile (``cluster.md``, section 2).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from pyrklog.base.clock_reading import ClockReading, now_ms
from pyrklog.base.logs import get_logger
from pyrklog.base.problems import Problem
from pyrklog.errors import StartError, TemporaryError
from pyrklog.membership.current_store import CurrentStore
from pyrklog.membership.life import LastLife, decode_log_dirs, encode_log_dirs
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import (
    BadVersionError,
    Create,
    Metastore,
    NodeExistsError,
    NoNodeError,
    Operation,
    SessionExpiredError,
    Set,
    Stat,
    StoreFailedError,
)

CONNECT_RETRY_SECONDS = 1.0

log = get_logger("membership")

Connect = Callable[[], Awaitable[Metastore]]
"""Begins a session. Raises :class:`TemporaryError` when the store cannot be reached, other
``StartError`` or ``MetastoreError`` where it cannot be used.
"""
Registered = Callable[[int], None]
"""Called with the broker epoch."""
Part = Callable[..., Awaitable[None]]
"""Runs until cancelled; takes ``task_status``."""


class Member:
    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        store: CurrentStore,
        connect: Connect,
        registration: Callable[[], znodes.BrokerRegistration],
        *,
        registration_wait_seconds: float,
        is_whole: Callable[[LastLife], bool] | None = None,
        log_dirs: Sequence[str] = (),
    ) -> None:
        """``store`` has the first session; ``connect`` makes later ones.

        ``is_whole`` gets the broker's last life and says whether its logs are complete; None = not
        asked. ``log_dirs`` is stored for the next life.

        ``registration_wait_seconds`` bounds the wait for an earlier registration of this broker: a
        killed process's session outlives it.
        """
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.store = store
        self.broker_epoch = -1
        self.registered = trio.Event()
        """Set by the first registration."""
        self.store_clock: ClockReading | None = None
        """As the last registration showed it."""
        self._connect = connect
        self._registration = registration
        self._registration_wait_seconds = registration_wait_seconds
        self._is_whole = is_whole
        self._log_dirs = log_dirs
        self._registered_session: int | None = None
        self._belonging = trio.Lock()
        """Held while tasks of a session run."""

    @property
    def is_registered(self) -> bool:
        """Whether it is registered in the latest session, not only in an earlier one."""
        return self._registered_session == self.store.session_id

    async def keep_session(self) -> None:
        """Begins a new session after each end, until cancelled."""
        while True:
            await self.store.wait_expired()
            log.warning("session_ended", broker=self.node_id)
            ended = self.store.lose()
            assert ended is not None
            with trio.CancelScope(shield=True):
                await _close(ended)
            # No task of the old session may act in the new one.
            async with self._belonging:
                session = await self._connect_again()
            self.store.take(session)

    async def _connect_again(self) -> Metastore:
        """Retries until it has a usable session.

        A broker that has served does not end because of certificates being replaced or a failing
        store, unlike at its start.
        """
        told = ""
        while True:
            session: Metastore | None = None
            try:
                session = await self._connect()
                (node,) = await session.get_many([znodes.CLUSTER_ID])
            except Exception as error:
                if session is not None:
                    with trio.CancelScope(shield=True):
                        await _close(session)
                # Logged once, not at each try.
                if str(error) != told:
                    told = str(error)
                    event = "store_unreachable" if session is None else "session_failed"
                    log.warning(event, reason=told)
                await trio.sleep(CONNECT_RETRY_SECONDS)
                continue
            if node is None or not self._is_ours(node.data):
                with trio.CancelScope(shield=True):
                    await session.close()
                raise StartError(
                    Problem.METADATA_LOST,
                    "The metadata store is another cluster's now, or has lost its data.",
                    fix="restore it; the broker's own data is untouched",
                )
            log.info("session_began", broker=self.node_id)
            return session

    def _is_ours(self, data: bytes) -> bool:
        try:
            return znodes.decode_cluster_id(data) == self.cluster_id
        except znodes.ZnodeError:
            return False

    async def belong(
        self,
        registered: Registered,
        parts: tuple[Part, ...],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Registers the broker and runs ``parts``, anew in each session, until cancelled.

        Started when all parts have started once. Raises :class:`TemporaryError` when another broker
        is registered under the same number.
        """
        has_begun = False
        while True:
            session = await self.store.session()
            async with self._belonging, trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when_expired, session, nursery.cancel_scope)
                try:
                    self.broker_epoch = await self._register()
                    self._registered_session = session.session_id
                    self.registered.set()
                    registered(self.broker_epoch)
                    for part in parts:
                        await nursery.start(_keep_up, part, has_begun)
                except SessionExpiredError:
                    nursery.cancel_scope.cancel()
                    continue
                except StoreFailedError as error:
                    if not has_begun:
                        raise
                    # It goes on with what needs no store.
                    log.error("not_registered", reason=error.reason)
                    await trio.sleep(CONNECT_RETRY_SECONDS)
                    nursery.cancel_scope.cancel()
                    continue
                if not has_begun:
                    has_begun = True
                    task_status.started()

    async def _register(self) -> int:
        """Creates /brokers/ids/N; returns the broker epoch."""
        path = znodes.broker_path(self.node_id)
        deadline = trio.current_time() + self._registration_wait_seconds
        while True:
            stat = await self._try_to_register(path)
            if stat is not None:
                break
            if trio.current_time() >= deadline:
                raise TemporaryError(
                    Problem.BROKER_NUMBER_TAKEN,
                    f"Another broker is registered as number {self.node_id}.",
                    fix="give this one another broker.id, or wait until the other's session ends",
                )
            with trio.move_on_at(deadline):
                await self._wait_gone(path)
        log.info("registered", broker=self.node_id, broker_epoch=stat.czxid)
        # From now on its logs are complete.
        self._is_whole = None if self._is_whole is None else _always
        return stat.czxid

    async def _try_to_register(self, path: str) -> Stat | None:
        """None while another session holds the number."""
        data = znodes.encode_broker(self._registration())
        while True:
            operations: list[Operation] = [Create(path, b"", ephemeral=True), Set(path, data, 0)]
            operations += await self._life()
            before_ms = now_ms()
            try:
                results = await self.store.multi(operations)
            except (BadVersionError, NoNodeError):
                continue  # the controller has just handled an unclean start
            except NodeExistsError as error:
                if error.path != path:
                    continue
                found = await self.store.exists(path)
                # Our own where the first try's answer was lost.
                is_ours = found is not None and found.ephemeral_owner == self.store.session_id
                return found if is_ours else None
            stat = results[1]
            assert isinstance(stat, Stat)
            self.store_clock = ClockReading(before_ms, stat.mtime_ms, now_ms())
            return stat

    async def _life(self) -> list[Operation]:
        """The operations that go with a registration: the life, and an unclean start."""
        if self._is_whole is None:
            return []
        path, unclean_path = znodes.life_path(self.node_id), znodes.unclean_path(self.node_id)
        life, unclean = await self.store.get_many([path, unclean_path])
        data = encode_log_dirs(self._log_dirs)
        if life is None:
            return [Create(path, data)]  # never registered: in no ISR
        operations: list[Operation] = [Set(path, data, life.stat.version)]
        if not self._is_whole(LastLife(life.stat.mzxid, decode_log_dirs(life.data))):
            log.warning(
                "unclean_start",
                broker=self.node_id,
                reason="its logs may lack what was acknowledged before it ended",
                consequence="its replicas follow others that have more, else lead in new epochs",
            )
            operations.append(
                Create(unclean_path)
                if unclean is None
                else Set(unclean_path, b"", unclean.stat.version)
            )
        return operations

    async def _wait_gone(self, path: str) -> None:
        changed = trio.Event()
        try:
            node = await self.store.get(path, lambda _: changed.set())
        except NoNodeError:
            return
        log.warning(
            "registration_waits",
            broker=self.node_id,
            reason="a session that has not ended yet holds this number",
            owner=f"{node.stat.ephemeral_owner:#x}",
        )
        await changed.wait()


def _always(_last: LastLife) -> bool:
    return True


async def _cancel_when_expired(session: Metastore, scope: trio.CancelScope) -> None:
    await session.wait_expired()
    scope.cancel()


async def _close(session: Metastore) -> None:
    try:
        await session.close()
    except Exception as error:
        log.error("session_not_closed", exc_info=error)  # it expires by itself


class _FirstStart:
    """Reports only the first start of a part to its nursery."""

    def __init__(self, task_status: trio.TaskStatus[None]) -> None:
        self.has_come = False
        self._task_status = task_status

    def started(self, _value: None = None) -> None:
        if not self.has_come:
            self.has_come = True
            self._task_status.started()


async def _keep_up(
    part: Part, has_begun: bool, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Runs a part; after the session's end it waits for its own cancellation.

    A part that fails is restarted, since a broker that has served goes on. At the first start a
    failure ends the broker.
    """
    first = _FirstStart(task_status)
    while True:
        try:
            await part(task_status=first)
            return
        except Exception as error:
            if is_expiry(error):
                await trio.sleep_forever()
            if not (has_begun or first.has_come):
                raise
            log.error("part_failed", part=getattr(part, "__qualname__", repr(part)), exc_info=error)
        await trio.sleep(CONNECT_RETRY_SECONDS)


def is_expiry(error: Exception) -> bool:
    if isinstance(error, ExceptionGroup):
        return all(map(is_expiry, error.exceptions))
    return isinstance(error, SessionExpiredError)
