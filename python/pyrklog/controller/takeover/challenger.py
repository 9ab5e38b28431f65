"""Observes the controller and deposes it where it does not answer any more.

:mod:`.evidence` has the rules. Writes to the store only in the session that saw the controller.
"""

from __future__ import annotations

import time
from contextlib import suppress

import trio

from pyrklog.base.logs import get_logger
from pyrklog.controller.store_writes import Term
from pyrklog.controller.takeover.evidence import (
    Evidence,
    Found,
    Incumbent,
    LastDeposal,
    Silence,
    operations,
)
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import (
    BadVersionError,
    Create,
    Delete,
    Metastore,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
    Stat,
    StoreFailedError,
    WatchEvent,
    ensure_path,
)
from pyrklog.peers.channels import address_of
from pyrklog.peers.connection import Address
from pyrklog.peers.port_monitor import PortMonitor
from pyrklog.plane.values import BrokerImage

log = get_logger("controller")


class Challenger:
    """For one task at a time."""

    def __init__(
        self, node_id: int, store: Metastore, listener: str, session_timeout_ms: int
    ) -> None:
        """``listener`` is the one between brokers."""
        self._node_id = node_id
        self._store = store
        self._listener = listener
        self._session_timeout_ms = session_timeout_ms
        self._changed = trio.Event()

    async def run(self, incumbent: Incumbent | None, moved: trio.Event) -> Term | None:
        found = None if incumbent is None else await self._registration_of(incumbent)
        if incumbent is None or found is None:
            await moved.wait()
            return None
        address, broker_epoch = found
        monitor = PortMonitor(
            lambda: address, lambda _: None, self._wake, client_id=f"broker-{self._node_id}"
        )
        term: Term | None = None
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(monitor.run)
            nursery.start_soon(self._wake_when, moved)
            try:
                term = await self._challenge(incumbent, broker_epoch, monitor, moved)
            except Exception as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return term

    def _wake(self, _event: WatchEvent | None = None) -> None:
        self._changed.set()

    async def _wake_when(self, moved: trio.Event) -> None:
        await moved.wait()
        self._wake()

    async def _registration_of(self, incumbent: Incumbent) -> tuple[Address, int] | None:
        """The incumbent's address and broker epoch.

        None unless the session that made it controller also registered it: the address of another
        life says nothing about this one.
        """
        path = znodes.broker_path(incumbent.broker)
        try:
            node = await self._store.get(path)
            registration = znodes.decode_broker(path, node.data)
        except (NoNodeError, znodes.ZnodeError):
            return None
        if node.stat.ephemeral_owner != incumbent.stat.ephemeral_owner:
            return None
        image = BrokerImage(incumbent.broker, registration.rack, registration.endpoints)
        address = address_of(image, self._listener)
        return None if address is None else (address, node.stat.czxid)

    async def _challenge(
        self, incumbent: Incumbent, broker_epoch: int, monitor: PortMonitor, moved: trio.Event
    ) -> Term | None:
        term = None
        is_marked = False
        while not moved.is_set():
            self._changed = trio.Event()
            if not (monitor.refusals or monitor.is_silent):
                if is_marked:
                    await self._unmark()
                    is_marked = False
                await self._wait(None)
                continue
            is_marked = True
            now_ms = await self._mark(incumbent, monitor)
            refused, silent = await self._count_others(incumbent)
            registered = len(await self._store.children(znodes.BROKER_IDS))
            deposed_version, last = await self._last_deposal()
            # The epoch first: a later election makes the transaction fail.
            epoch = await self._store.get(znodes.CONTROLLER_EPOCH)
            (node,) = await self._store.get_many([znodes.CONTROLLER])
            if not incumbent.is_still(node):
                break
            # Checked after all reads: a connection may have been made meanwhile.
            silence = None
            if monitor.refusals or monitor.is_silent:
                silence = Silence(refused + silent, registered)
            evidence = Evidence(monitor.refusals, refused, now_ms, last, silence)
            wait_ms = evidence.wait_ms(self._session_timeout_ms)
            if wait_ms == 0:
                found = Found(epoch, broker_epoch, deposed_version)
                reason = "its port refuses connections" if monitor.refusals else "it is silent"
                term = await self._depose(incumbent, found, evidence.unproven, reason)
                break
            await self._wait(wait_ms)
        if is_marked and term is None:
            await self._unmark()
        return term

    async def _wait(self, at_most_ms: int | None) -> None:
        if at_most_ms is None:
            await self._changed.wait()
        else:
            with trio.move_on_after(at_most_ms / 1000):
                await self._changed.wait()

    async def _mark(self, incumbent: Incumbent, monitor: PortMonitor) -> int:
        """Writes that this broker is refused or not answered; returns the store's time.

        Each broker writes before it reads: of two, at least one sees both marks.
        """
        path = znodes.refused_path(self._node_id)
        refused = znodes.Refused(incumbent.stat.czxid, not monitor.refusals)
        data = znodes.encode_refused(refused)
        while True:
            (old,) = await self._store.get_many([path])
            made: list[Operation] = [Create(path, b"", ephemeral=True), Set(path, data, 0)]
            # It may be of an earlier life and go with that session.
            gone: list[Operation] = [] if old is None else [Delete(path, old.stat.version)]
            try:
                results = await self._store.multi([*gone, *made])
            except (NodeExistsError, NoNodeError, BadVersionError):
                # That session has just ended, or the parent was deleted.
                await ensure_path(self._store, znodes.REFUSED)
                continue
            stat = results[-1]
            assert isinstance(stat, Stat)
            return stat.mtime_ms

    async def _unmark(self) -> None:
        with suppress(NoNodeError):
            await self._store.delete(znodes.refused_path(self._node_id))

    async def _count_others(self, incumbent: Incumbent) -> tuple[int, int]:
        """How many other brokers this controller's term refuses, and does not answer."""
        names = await self._store.children(znodes.REFUSED)
        paths = [f"{znodes.REFUSED}/{name}" for name in names if name != str(self._node_id)]
        marks: list[znodes.Refused] = []
        for path, node in zip(paths, await self._store.get_many(paths), strict=True):
            # An empty one is being written.
            with suppress(znodes.ZnodeError):
                if node is not None:
                    marks.append(znodes.decode_refused(path, node.data))
        of_term = [mark for mark in marks if mark.controller_czxid == incumbent.stat.czxid]
        silent = sum(mark.is_silent for mark in of_term)
        return len(of_term) - silent, silent

    async def _last_deposal(self) -> tuple[int | None, LastDeposal | None]:
        """The version of /pyrklog/deposed and its content; watches for its proof."""
        (node,) = await self._store.get_many([znodes.DEPOSED])
        if node is None:
            return None, None
        try:
            last = znodes.decode_deposed(node.data)
        except znodes.ZnodeError as error:
            log.error("bad_znode", reason=str(error))
            return node.stat.version, None
        stat = await self._store.exists(znodes.broker_path(last.broker), self._wake)
        is_proven = stat is None or stat.czxid != last.broker_epoch
        return node.stat.version, LastDeposal(node.stat.mtime_ms, last.unproven, is_proven)

    async def _depose(
        self, incumbent: Incumbent, found: Found, unproven: int, reason: str
    ) -> Term | None:
        """None where something has changed."""
        timestamp_ms = time.time_ns() // 1_000_000
        try:
            epoch = znodes.decode_controller_epoch(found.epoch.data) + 1
        except znodes.ZnodeError as error:
            raise StoreFailedError(str(error)) from None
        transaction = operations(self._node_id, incumbent, found, unproven, timestamp_ms)
        try:
            results = await self._store.multi(transaction)
        except (BadVersionError, NoNodeError, NodeExistsError):
            return None
        stat = results[2]
        assert isinstance(stat, Stat)
        log.warning("controller_deposed", broker=incumbent.broker, reason=reason, unproven=unproven)
        return Term(epoch, stat.version, incumbent.broker)
