"""A session with ZooKeeper, over kazoo.

kazoo runs the connection on its own thread, which hands answers and watch events to Trio in order
of arrival: a watch is called before a read shows its change. Only a broker that uses ZooKeeper
imports this module.

- While the connection is lost, calls wait: the session lives until ZooKeeper says otherwise. Every
  watch is called then, since changes may have been missed.
- A write whose answer was lost is looked for (``unsettled``) before it is sent again.
- An expired session stays expired; its owner connects again.
- kazoo pings only while Trio runs: a loop that stands still for a session time-out loses its
  session one time-out later. Otherwise such a broker would look alive.
- With ``sets_acl`` a node belongs to its creator. ZooKeeper's ACLs are not inherited: each new node
  gets its own; existing nodes keep theirs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import trio
from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from pyrklog.base.logs import ensure_configured, get_logger
from pyrklog.base.problems import Problem
from pyrklog.errors import TemporaryError
from pyrklog.metastore.interface import (
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    BadVersionError,
    Check,
    Create,
    Delete,
    Metastore,
    MetastoreError,
    NoChildrenForEphemeralsError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    OperationResult,
    Outcome,
    SessionExpiredError,
    Set,
    Stat,
    StoreFailedError,
    TooLargeError,
    Watch,
    WatchEvent,
)
from pyrklog.metastore.sizes import TRANSACTION_BYTES_MAX, transaction_bytes
from pyrklog.metastore.tree import check_path
from pyrklog.metastore.unsettled import results_if_done, touched
from pyrklog.metastore.watches import Watches
from pyrklog.metastore.znodes import CONSUMERS, SENSITIVE_PATHS
from pyrklog.metastore.zookeeper_handler import Handler, Progress, Reasons, quiet_logger
from pyrklog.metastore.zookeeper_tls import TlsFiles, tls_context, tls_failure

log = get_logger("zookeeper")

_REFUSALS: dict[type[Exception], type[MetastoreError]] = {
    kazoo_errors.NoNodeError: NoNodeError,
    kazoo_errors.NodeExistsError: NodeExistsError,
    kazoo_errors.BadVersionError: BadVersionError,
    kazoo_errors.NotEmptyError: NotEmptyError,
    kazoo_errors.NoChildrenForEphemeralsError: NoChildrenForEphemeralsError,
}
_CONSEQUENCES = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""Results of the other operations in a refused transaction."""
_EXPIRED = (kazoo_errors.SessionExpiredError, kazoo_errors.ConnectionClosedError)
_FORBIDDEN = (kazoo_errors.AuthFailedError, kazoo_errors.NoAuthError)
_LOST = (kazoo_errors.ConnectionLoss, kazoo_errors.OperationTimeoutError)
_EVENTS = {
    EventType.CREATED: CREATED,
    EventType.DELETED: DELETED,
    EventType.CHANGED: CHANGED,
    EventType.CHILD: CHILDREN,
}
_TELL_AFTER_SECONDS = 0.5
_told: set[str] = set()
"""ZooKeepers already logged as not answering."""
_RECONNECT_FIRST_SECONDS = 0.05
_RECONNECT_MAX_SECONDS = 1.0
_RESUMED_WITHIN = 1 / 3
"""How long, as a share of the session's timeout, it waits for a message on a connection. A
ZooKeeper that is starting may accept one and never answer; kazoo would wait for the whole timeout,
and the session would expire without a second try.
"""


class Credentials(NamedTuple):
    """They allow to speak for the session, and to end it."""

    session_id: int
    password: bytes


class ZooKeeperAddress(NamedTuple):
    connect: str
    """``HOST:PORT[,HOST:PORT...][/CHROOT]``."""
    session_timeout_ms: int
    connection_timeout_ms: int
    digest: str | None = None
    """``USER:PASSWORD`` of the digest scheme."""
    tls: TlsFiles | None = None
    sets_acl: bool = False
    """New nodes belong to this client: others may only read, and not even that where secrets may
    lie. Needs ``digest`` or a certificate.
    """


class _Call:
    """A sent request. ``on_answer`` runs before any later event is told."""

    def __init__(
        self,
        hand_over: Callable[..., None],
        result: Any,
        on_answer: Callable[[], None] | None = None,
    ) -> None:
        self._result = result
        self._on_answer = on_answer
        self._done = trio.Event()
        self._is_given_up = False
        result.rawlink(lambda _: hand_over(self._answered))

    def _answered(self) -> None:
        if self._on_answer is not None and not self._is_given_up and self._result.successful():
            self._on_answer()
        self._done.set()

    async def answer(self) -> Any:
        """Raises kazoo's errors for a lost connection or a refusal, ours for the end of the session
        and everything else.
        """
        try:
            await self._done.wait()
        except trio.Cancelled:
            self._is_given_up = True
            raise
        try:
            return self._result.get_nowait()
        except _EXPIRED:
            raise SessionExpiredError("/") from None
        except _FORBIDDEN as error:
            raise StoreFailedError(_forbidden(error)) from None
        except (*_LOST, *_REFUSALS):
            raise
        except kazoo_errors.KazooException as error:
            raise StoreFailedError(f"ZooKeeper failed: {error!r}") from None


class ZooKeeperSession(Metastore):
    """Made by :func:`connect`."""

    def __init__(self, client: KazooClient, *, sets_acl: bool = False) -> None:
        self._sets_acl = sets_acl
        session_id, password = client.client_id
        self.session_id: int = session_id
        self.credentials = Credentials(session_id, password)
        self._client = client
        self._trio = trio.lowlevel.current_trio_token()
        self._order = threading.Lock()
        """Held from sending a request until its answer will be handed over. An event behind a fast
        answer would overtake it otherwise, and find no watch."""
        self._watches = Watches()
        self._ended = False
        self._expired = trio.Event()
        self._connected = trio.Event()
        self._connected.set()
        client.add_listener(self._state_changed)
        # Beginning a session is a write and may take its time; resuming one is not.
        timeout_seconds = client._session_timeout / 1000
        client.handler.answer_wait_seconds = timeout_seconds * _RESUMED_WITHIN
        client.handler.progress = Progress(self._hand_over, timeout_seconds)

    # --- on kazoo's thread ---------------------------------------------------------------------

    def _hand_over(self, function: Callable[..., object], *arguments: object) -> None:
        # Trio may have ended.
        with contextlib.suppress(trio.RunFinishedError):
            self._trio.run_sync_soon(function, *arguments)

    def _state_changed(self, state: str) -> None:
        with self._order:
            self._hand_over(self._take_state, state)

    def _event_came(self, event: Any) -> None:
        kind = _EVENTS.get(event.type)
        # Other events concern the connection, which the listener also gets.
        if kind is not None:
            with self._order:
                self._hand_over(self._fire, WatchEvent(kind, event.path))

    # --- the session ---------------------------------------------------------------------------

    def _take_state(self, state: str) -> None:
        if self._ended:
            return
        if state == KazooState.CONNECTED:
            self._connected.set()
            log.info("zookeeper_connected")
        elif state == KazooState.SUSPENDED:
            self._connected = trio.Event()
            log.warning("zookeeper_connection_lost")
            self._watches.fire_all()
        else:
            self._end()
            self._expired.set()
            log.warning("zookeeper_session_expired")

    def _fire(self, event: WatchEvent) -> None:
        if not self._ended:
            self._watches.fire([event])

    def _end(self) -> None:
        self._ended = True
        self._watches = Watches()
        self._connected.set()

    @property
    def is_reachable(self) -> bool:
        return not self._ended and self._connected.is_set()

    async def wait_expired(self) -> None:
        await self._expired.wait()

    async def close(self) -> None:
        """Also frees what an expired session holds."""
        self._end()
        await _stop(self._client)

    def _check(self, path: str) -> None:
        check_path(path)
        if self._ended:
            raise SessionExpiredError(path)

    # --- reads ---------------------------------------------------------------------------------

    def _call(self, send: Callable[[], Any], on_answer: Callable[[], None] | None = None) -> _Call:
        with self._order:
            return _Call(self._hand_over, send(), on_answer)

    async def _read(
        self,
        paths: Sequence[str],
        send: Callable[..., Any],
        add: Callable[[str, int, Watch], None] | None = None,
        watch: Watch | None = None,
    ) -> list[Any]:
        """Sends all reads at once; None for missing nodes. ``add`` takes the watch once
        the answer has come.
        """

        def call(path: str) -> _Call:
            if add is None or watch is None:
                return self._call(partial(send, path))
            on_answer = partial(add, path, self.session_id, watch)
            return self._call(partial(send, path, self._event_came), on_answer)

        for path in paths:
            self._check(path)
        found: list[Any] = []
        for path, sent in zip(paths, list(map(call, paths)), strict=True):
            answer = None
            while True:
                try:
                    with _refusals(path):
                        answer = await sent.answer()
                except NoNodeError:
                    pass
                except _LOST:
                    await self._connected.wait()
                    self._check(path)
                    sent = call(path)
                    continue
                break
            found.append(answer)
        return found

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        answers = await self._read(paths, self._client.get_async, self._watches.add_data, watch)
        return [None if found is None else Node(found[0], _stat(found[1])) for found in answers]

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        exists = self._client.exists_async
        (stat,) = await self._read([path], exists, self._watches.add_data, watch)
        return _stat(stat) if stat is not None else None

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        children = self._client.get_children_async
        (names,) = await self._read([path], children, self._watches.add_children, watch)
        if names is None:
            raise NoNodeError(path)
        return sorted(names)

    async def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        answers = await self._read(paths, self._client.get_children_async)
        return [None if names is None else sorted(names) for names in answers]

    # --- writes --------------------------------------------------------------------------------

    async def multis(self, transactions: Sequence[Sequence[Operation]]) -> list[Outcome]:
        if self._ended:
            raise SessionExpiredError("/")
        for operations in transactions:
            for operation in operations:
                self._check(operation.path)
        # In order, all in flight together.
        calls = [self._refuse(operations) or self._send(operations) for operations in transactions]
        return [
            call if isinstance(call, MetastoreError) else await self._settle(operations, call)
            for operations, call in zip(transactions, calls, strict=True)
        ]

    def _refuse(self, operations: Sequence[Operation]) -> TooLargeError | None:
        """A server would close each connection on which it is sent."""
        size_bytes = transaction_bytes(operations, self._client.chroot)
        if size_bytes <= TRANSACTION_BYTES_MAX:
            return None
        largest = max(operations, key=lambda operation: transaction_bytes([operation]))
        return TooLargeError(largest.path, size_bytes, TRANSACTION_BYTES_MAX)

    def _send(self, operations: Sequence[Operation]) -> _Call | None:
        """None for an empty transaction."""
        if not operations:
            return None
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Check(path, version):
                    transaction.check(path, version)
                case Create(path, data, ephemeral, sequence):
                    acl = acl_of(path) if self._sets_acl else None
                    transaction.create(path, data, acl, ephemeral, sequence)
                case Set(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
        return self._call(transaction.commit_async)

    async def _settle(self, operations: Sequence[Operation], call: _Call | None) -> Outcome:
        while call is not None:
            try:
                return _outcome(operations, await call.answer())
            except _LOST:
                await self._connected.wait()
                found = await self._look_for(operations)
                if found is not None:
                    return found
                call = self._send(operations)
        return []

    async def _look_for(self, operations: Sequence[Operation]) -> list[OperationResult] | None:
        """The results of a transaction that happened although its answer was lost."""
        paths = touched(operations)
        if paths is None:
            return None
        nodes = await self.get_many(paths)
        found = dict(zip(paths, nodes, strict=True))
        return results_if_done(operations, found, self.session_id)


def _outcome(operations: Sequence[Operation], answer: Sequence[Any]) -> Outcome:
    for index, (operation, result) in enumerate(zip(operations, answer, strict=True)):
        if isinstance(result, Exception) and not isinstance(result, _CONSEQUENCES):
            refusal = _REFUSALS.get(type(result))
            if isinstance(result, _FORBIDDEN):
                return StoreFailedError(_forbidden(result, operation.path))
            if refusal is None:
                return StoreFailedError(f"ZooKeeper failed at {operation.path}: {result!r}")
            return refusal(operation.path, index)
    return [
        _result(operation, result) for operation, result in zip(operations, answer, strict=True)
    ]


def _result(operation: Operation, result: Any) -> OperationResult:
    match operation:
        case Create():
            return str(result)
        case Set():
            return _stat(result)
        case Check() | Delete():
            return None


def _stat(stat: Any) -> Stat:
    return Stat(
        version=stat.version,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        ephemeral_owner=stat.ephemeralOwner,
        ctime_ms=stat.ctime,
        mtime_ms=stat.mtime,
    )


def _forbidden(error: Exception, path: str = "") -> str:
    where = f" to {path}" if path else ""
    return f"ZooKeeper refuses access{where} ({type(error).__name__})"


def acl_of(path: str) -> list[Any]:
    """The ACL of a new node, by its path below the chroot, as Kafka's with zookeeper.set.acl."""
    if path == CONSUMERS:
        return list(OPEN_ACL_UNSAFE)
    if any(path == one or path.startswith(f"{one}/") for one in SENSITIVE_PATHS):
        return list(CREATOR_ALL_ACL)
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


@contextlib.contextmanager
def _refusals(path: str) -> Iterator[None]:
    try:
        yield
    except tuple(_REFUSALS) as error:
        raise _REFUSALS[type(error)](path) from None


async def connect(address: ZooKeeperAddress) -> ZooKeeperSession:
    """Starts a session; creates a missing chroot.

    Raises :class:`TemporaryError` when no ZooKeeper answers in time, :class:`ConfigError` when the
    TLS files do not fit, :class:`StoreFailedError` when the chroot may not be created.
    """
    if address.tls is not None:
        tls_context(address.tls)
    reasons = Reasons()
    client = _client(address, address.connect, reasons)
    await _start(client, address, reasons)
    try:
        session = ZooKeeperSession(client, sets_acl=address.sets_acl)
        if client.chroot and await session.exists("/") is None:
            await _make_chroot(address, client.chroot)
        return session
    except BaseException:
        await _stop(client)
        raise


def _client(address: ZooKeeperAddress, hosts: str, reasons: Reasons) -> KazooClient:
    retry = KazooRetry(
        max_tries=-1, delay=_RECONNECT_FIRST_SECONDS, max_delay=_RECONNECT_MAX_SECONDS
    )
    return KazooClient(
        hosts=hosts,
        timeout=address.session_timeout_ms / 1000,
        handler=Handler(address.tls),
        connection_retry=retry,
        logger=quiet_logger(reasons),
        auth_data=[("digest", address.digest)] if address.digest is not None else None,
    )


async def _start(client: KazooClient, address: ZooKeeperAddress, reasons: Reasons) -> None:
    timeout_seconds = address.connection_timeout_ms / 1000
    soon_seconds = min(_TELL_AFTER_SECONDS, timeout_seconds)

    is_connected = False
    try:
        wait: Callable[[float], bool] = client.start_async().wait
        is_connected = await trio.to_thread.run_sync(wait, soon_seconds, abandon_on_cancel=True)
        if not is_connected and soon_seconds < timeout_seconds:
            _tell_that_nobody_answers(address, reasons, timeout_seconds)
            is_connected = await trio.to_thread.run_sync(
                wait, timeout_seconds - soon_seconds, abandon_on_cancel=True
            )
        if is_connected:
            _told.discard(address.connect)
    finally:
        if not is_connected:
            await _stop(client)
    if not is_connected:
        if address.tls is not None:
            reason = await trio.to_thread.run_sync(tls_failure, client.hosts, address.tls)
            if reason is not None:
                raise TemporaryError(
                    Problem.ZOOKEEPER_AWAY,
                    f"No TLS with ZooKeeper at {address.connect}: {reason}.",
                    fix="look at zookeeper.ssl.truststore.location and keystore.location, "
                    "and at the port: ZooKeeper's secureClientPort",
                )
        raise TemporaryError(
            Problem.ZOOKEEPER_AWAY,
            f"No ZooKeeper answers at {address.connect} (waited {timeout_seconds:g} s).",
            fix="start it, or correct zookeeper.connect",
        )


def _tell_that_nobody_answers(
    address: ZooKeeperAddress, reasons: Reasons, waits_seconds: float
) -> None:
    """Logs once, until ZooKeeper has answered."""
    if address.connect in _told:
        return
    _told.add(address.connect)
    log.warning(
        "zookeeper_does_not_answer",
        connect=address.connect,
        reason=reasons.last or "no answer yet",
        waits_seconds=waits_seconds,
    )
    ensure_configured()  # a waiting start must show this


async def _make_chroot(address: ZooKeeperAddress, chroot: str) -> None:
    reasons = Reasons()
    client = _client(address, address.connect.partition("/")[0], reasons)
    await _start(client, address, reasons)
    acl = acl_of(chroot) if address.sets_acl else None
    try:
        await trio.to_thread.run_sync(client.ensure_path, chroot, acl)
    except _FORBIDDEN as error:
        raise StoreFailedError(_forbidden(error, chroot)) from None
    finally:
        await _stop(client)


async def _stop(client: KazooClient) -> None:
    """Ends the session and kazoo's thread."""

    def stop() -> None:
        client.stop()
        client.close()

    with trio.CancelScope(shield=True):
        await trio.to_thread.run_sync(stop)
