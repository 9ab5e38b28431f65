"""A model of ZooKeeper: tree and watches of the embedded store, with sessions over a network.

One server, linearizable like an ensemble's leader. Within a session requests, answers and watches
keep their order. A silent session ends after its timeout; its client learns of it when it can be
reached. While a client is cut off its requests wait, as in kazoo, and every watch is called when it
returns, as in ``zookeeper.py``. Sessions outlive an absence of the server. As in ``zookeeper.py``,
the client refuses transactions larger than the server accepts; some seeds set that limit so low
that the controller's batches are split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyrklog.metastore.interface import (
    Delete,
    Metastore,
    MetastoreError,
    Node,
    NoNodeError,
    Operation,
    OperationResult,
    Outcome,
    SessionExpiredError,
    Stat,
    TooLargeError,
    Watch,
    WatchEvent,
)
from pyrklog.metastore.sizes import TRANSACTION_BYTES_MAX, transaction_bytes
from pyrklog.metastore.tree import Context, Draft, Tree
from pyrklog.metastore.watches import Watches
from tests.sim.heap import Heap, Process
from tests.sim.network import STORE, Network
from tests.sim.scheduler import Event, Scheduler, Task

SESSION_TIMEOUT_US = 3_000_000
HEARTBEAT_US = 700_000
SMALL_SHARE = 0.3
SMALL_BYTES = 1_150
"""Enough for a registration and a deposition, but not for several partitions."""


class ZooKeeper:
    def __init__(self, heap: Heap, network: Network, scheduler: Scheduler) -> None:
        self.heap = heap
        self.network = network
        self.scheduler = scheduler
        self.tree = Tree()
        self.watches = Watches()
        self.sessions: dict[int, Session] = {}
        self.on_written: Callable[[set[str]], None] = lambda _paths: None
        self.is_away = False
        self.away_us = (0, -(10**9))
        """From when to when it was away last."""
        """The server answers nobody, and the timeouts of sessions stop."""
        is_small = heap.dice("store's limit").random() < SMALL_SHARE
        self.transaction_bytes_max = SMALL_BYTES if is_small else TRANSACTION_BYTES_MAX
        self.refused = 0
        self._zxid = 0
        self._last_session = 0

    def go_away(self) -> None:
        self.is_away = True
        self.away_us = (self.heap.now_us, self.heap.now_us)

    def come_back(self) -> None:
        if self.is_away:
            self.is_away = False
            self.away_us = (self.away_us[0], self.heap.now_us)

    def begin(self, process: Process, broker: int) -> Session:
        self._last_session += 1
        session = Session(self, process, broker, self._last_session)
        self.sessions[session.session_id] = session
        self._watch_over(session)
        return session

    def _watch_over(self, session: Session) -> None:
        """Ends the session after a timeout without contact."""

        def look() -> None:
            if session.session_id not in self.sessions:
                return
            if session.is_heard or self.is_away:
                session.heard_us = self.heap.now_us
            if self.heap.now_us - session.heard_us >= SESSION_TIMEOUT_US:
                self.heap.note(f"session {session.session_id} of {session.broker} expires")
                self.end(session)
                return
            self.heap.after(HEARTBEAT_US, None, look)

        self.heap.after(HEARTBEAT_US, None, look)

    def end(self, session: Session) -> None:
        """Removes its watches, then its nodes."""
        if self.sessions.pop(session.session_id, None) is None:
            return
        self.watches.drop_session(session.session_id)
        owned = self.tree.owned_by(session.session_id)
        for path in sorted(owned):
            self.run(0, [Delete(path)])
        session.tell(session.learn_of_end)

    def run(self, session_id: int, operations: Sequence[Operation]) -> Outcome:
        self._zxid += 1
        draft = Draft(self.tree)
        context = Context(session_id, self._zxid, self.heap.now_ms)
        results: list[OperationResult] = []
        try:
            for index, operation in enumerate(operations):
                results.append(draft.run(operation, index, context))
        except MetastoreError as error:
            return error
        self.tree.apply(draft)
        self.watches.fire(draft.events)
        self.on_written(set(draft.changes))
        return results


class Session(Metastore):
    """A session of one process. The driver sees it as a ``Metastore``."""

    def __init__(self, server: ZooKeeper, process: Process, broker: int, session_id: int) -> None:
        self.session_id = session_id
        self.broker = broker
        self.heard_us = server.heap.now_us
        self._server = server
        self._process = process
        self._network = server.network
        self._heap = server.heap
        self._expired = Event(server.scheduler)
        self._arrives_us = 0
        self._returns_us = 0
        self._waiting: list[Callable[[Any], None]] = []
        self._watches: dict[Watch, Watch] = {}
        self._is_over = False
        self._was_cut_off = False

    @property
    def is_heard(self) -> bool:
        """Whether the server hears of the client now."""
        process, network = self._process, self._network
        is_up = process.is_alive and not process.is_paused
        return is_up and network.reaches(self.broker, STORE) and network.reaches(STORE, self.broker)

    # --- on the way ------------------------------------------------------------------------------

    def _send(self, arrive: Callable[[], None]) -> None:
        """To the server, after earlier requests."""
        self._arrives_us = max(self._arrives_us, self._heap.now_us + self._network.delay_us())
        self._heap.after(self._arrives_us - self._heap.now_us, None, lambda: self._arrive(arrive))

    def _arrive(self, arrive: Callable[[], None]) -> None:
        if not self._process.is_alive:
            return  # a dead client's request may arrive or not; here it does not
        if self._network.reaches(self.broker, STORE):
            arrive()
        else:
            self._cut_off()
            self._network.when_healed(lambda: self._arrive(arrive))

    def tell(self, learn: Callable[[], None]) -> None:
        """To the client, after earlier answers."""
        self._returns_us = max(self._returns_us, self._heap.now_us + self._network.delay_us())
        self._heap.after(self._returns_us - self._heap.now_us, None, lambda: self._return(learn))

    def _return(self, learn: Callable[[], None]) -> None:
        if self._network.reaches(STORE, self.broker):
            self._heap.after(0, self._process, learn)
        else:
            self._cut_off()
            self._network.when_healed(lambda: self._return(learn))

    def _cut_off(self) -> None:
        """The client's library loses its connection, and calls every watch once it has another."""
        if self._was_cut_off:
            return
        self._was_cut_off = True

        def look() -> None:
            if not self.is_heard:
                self._network.when_healed(look)
                return
            self._was_cut_off = False
            if self.session_id in self._server.sessions:
                self.tell(self._call_all_watches)

        self._network.when_healed(look)

    def _call_all_watches(self) -> None:
        for watch in list(self._watches):
            watch(WatchEvent("changed", "/"))

    # --- requests --------------------------------------------------------------------------------

    async def _ask(self, serve: Callable[[], Any]) -> Any:
        """Runs ``serve`` on the server. Raises the :class:`MetastoreError` it returns."""
        if self._is_over:
            raise SessionExpiredError("/")

        def arm(task: Task) -> None:
            wake = task.waker()
            self._waiting.append(wake)

            def answer(outcome: Any) -> None:
                if wake in self._waiting:
                    self._waiting.remove(wake)
                    wake(outcome)

            def arrive() -> None:
                if self.session_id not in self._server.sessions:
                    self.tell(lambda: answer(SessionExpiredError("/")))
                    return
                outcome = serve()
                self.tell(lambda: answer(outcome))

            self._send(arrive)

        outcome = await self._server.scheduler.suspend(arm)
        if isinstance(outcome, MetastoreError):
            raise outcome
        return outcome

    def learn_of_end(self) -> None:
        self._is_over = True
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake(SessionExpiredError("/"))
        self._expired.set()

    def _find(self, path: str) -> Node | None:
        entry = self._server.tree.get(path)
        return entry.node if entry is not None else None

    def _wrapped(self, watch: Watch) -> Watch:
        """The server's side of the watch: calls it at the client, in order."""

        def call(event: WatchEvent) -> None:
            self.tell(lambda: watch(event))

        return self._watches.setdefault(watch, call)

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        def serve() -> Node | MetastoreError:
            node = self._find(path)
            if node is None:
                return NoNodeError(path)
            if watch is not None:
                self._server.watches.add_data(path, self.session_id, self._wrapped(watch))
            return node

        found: Node = await self._ask(serve)
        return found

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        def serve() -> list[Node | None]:
            found = [self._find(path) for path in paths]
            for path, node in zip(paths, found, strict=True):
                if watch is not None and node is not None:
                    self._server.watches.add_data(path, self.session_id, self._wrapped(watch))
            return found

        found: list[Node | None] = await self._ask(serve)
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def serve() -> Stat | None:
            if watch is not None:
                self._server.watches.add_data(path, self.session_id, self._wrapped(watch))
            node = self._find(path)
            return node.stat if node is not None else None

        found: Stat | None = await self._ask(serve)
        return found

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def serve() -> list[str] | MetastoreError:
            if self._find(path) is None:
                return NoNodeError(path)
            if watch is not None:
                self._server.watches.add_children(path, self.session_id, self._wrapped(watch))
            return self._server.tree.children(path)

        found: list[str] = await self._ask(serve)
        return found

    async def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        def serve() -> list[list[str] | None]:
            children = self._server.tree.children
            return [None if self._find(path) is None else children(path) for path in paths]

        found: list[list[str] | None] = await self._ask(serve)
        return found

    def _run(self, operations: Sequence[Operation]) -> Outcome:
        most, size = self._server.transaction_bytes_max, transaction_bytes(operations)
        if size > most:
            self._server.refused += 1
            return TooLargeError(operations[-1].path, size, most)
        return self._server.run(self.session_id, operations)

    async def multis(self, transactions: Sequence[Sequence[Operation]]) -> list[Outcome]:
        def serve() -> list[Outcome]:
            return [self._run(operations) for operations in transactions]

        found: list[Outcome] = await self._ask(serve)
        return found

    @property
    def is_reachable(self) -> bool:
        return not self._is_over and not self._was_cut_off

    async def wait_expired(self) -> None:
        await self._expired.wait()

    async def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._send(lambda: self._server.end(self))
