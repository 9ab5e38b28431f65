"""The embedded store: ZooKeeper's semantics in one process, over SQLite.

All nodes are in memory: reads are function calls. Writes go to disk on their own thread and become
visible when durable. Waiting transactions share one commit (one fsync). Sessions end with the
process.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from pyrklog.metastore.database import Database, DiskFullError, persistent
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
    StoreFailedError,
    Watch,
)
from pyrklog.metastore.tree import Context, Draft, Tree, check_path
from pyrklog.metastore.watches import Watches

OPENING_SHIFT = 32
"""A transaction number is the count of openings, then a count in the low 32 bits."""


SYSTEM_SESSION = 0
"""Submits for sessions that have ended."""


@dataclass(eq=False)
class _Batch:
    session: int
    transactions: Sequence[Sequence[Operation]]
    outcomes: list[Outcome] | None = None


class EmbeddedStore:
    """Made by :func:`open_store`."""

    def __init__(self, database: Database, tree: Tree) -> None:
        self._database = database
        self.tree = tree
        self.watches = Watches()
        self._zxid = database.opening << OPENING_SHIFT
        self._sessions = 0
        self._live: set[int] = {SYSTEM_SESSION}
        self._pending: list[_Batch] = []
        self._turn = trio.Lock()
        self._thread = trio.CapacityLimiter(1)
        self._failed: str | None = None

    def session(self) -> EmbeddedSession:
        self._sessions += 1
        session_id = (self._database.opening << OPENING_SHIFT) + self._sessions
        self._live.add(session_id)
        return EmbeddedSession(self, session_id)

    async def end_session(self, session_id: int) -> None:
        """Drops the session's watches, then its ephemeral nodes."""
        self._live.discard(session_id)
        self.watches.drop_session(session_id)
        await self.submit(SYSTEM_SESSION, [])  # lets a running commit finish first
        owned = self.tree.owned_by(session_id)
        if owned:
            await self.submit(SYSTEM_SESSION, [[Delete(path)] for path in owned])

    async def close(self) -> None:
        """All sessions must be closed before."""
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._database.close, limiter=self._thread)

    async def submit(
        self, session: int, transactions: Sequence[Sequence[Operation]]
    ) -> list[Outcome]:
        """Runs transactions together with others that wait; see ``Metastore.multis``."""
        batch = _Batch(session, transactions)
        self._pending.append(batch)
        try:
            async with self._turn:
                if batch.outcomes is None:
                    # Not cancelled once begun: memory and disk must agree.
                    with trio.CancelScope(shield=True):
                        await self._commit()
        except BaseException:
            if batch in self._pending:
                self._pending.remove(batch)
            raise
        assert batch.outcomes is not None
        return batch.outcomes

    async def _commit(self) -> None:
        batches, self._pending = self._pending, []
        draft = Draft(self.tree)
        results = [
            [self._try(draft, batch.session, operations) for operations in batch.transactions]
            for batch in batches
        ]
        failure = await self._write(draft)
        for batch, outcomes in zip(batches, results, strict=True):
            batch.outcomes = list(outcomes)
            if failure is not None:
                batch.outcomes = [failure for _ in outcomes]
        if failure is None:
            self.tree.apply(draft)
            self.watches.fire(draft.events)

    def _try(self, draft: Draft, session: int, operations: Sequence[Operation]) -> Outcome:
        if session not in self._live:
            return SessionExpiredError("/")
        self._zxid += 1
        context = Context(session, self._zxid, time.time_ns() // 1_000_000)
        attempt = Draft(draft)
        results: list[OperationResult] = []
        try:
            for index, operation in enumerate(operations):
                results.append(attempt.run(operation, index, context))
        except MetastoreError as error:
            return error
        draft.absorb(attempt)
        return results

    async def _write(self, draft: Draft) -> StoreFailedError | None:
        changes = persistent(draft.changes, self.tree)
        if not changes:
            return None
        if self._failed is not None:
            return StoreFailedError(self._failed)
        try:
            await trio.to_thread.run_sync(self._database.commit, changes, limiter=self._thread)
        except DiskFullError as error:
            return StoreFailedError(f"the metadata store has {error}")
        except sqlite3.Error as error:
            # The content on disk is unknown now; a restart reads it again.
            self._failed = f"the metadata store failed and needs a restart: {error}"
            return StoreFailedError(self._failed)
        return None


class EmbeddedSession(Metastore):
    def __init__(self, store: EmbeddedStore, session_id: int) -> None:
        self.session_id = session_id
        self._store = store
        self._ended = False
        self._expired = trio.Event()

    def _check(self, path: str) -> None:
        check_path(path)
        if self._ended:
            raise SessionExpiredError(path)

    def _find(self, path: str) -> Node | None:
        self._check(path)
        entry = self._store.tree.get(path)
        return entry.node if entry else None

    @property
    def is_reachable(self) -> bool:
        return not self._ended

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        await trio.lowlevel.checkpoint()
        found = [self._find(path) for path in paths]
        if watch is not None:
            for path, node in zip(paths, found, strict=True):
                if node is not None:
                    self._store.watches.add_data(path, self.session_id, watch)
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        await trio.lowlevel.checkpoint()
        node = self._find(path)
        if watch is not None:
            self._store.watches.add_data(path, self.session_id, watch)
        return node.stat if node else None

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await trio.lowlevel.checkpoint()
        if self._find(path) is None:
            raise NoNodeError(path)
        if watch is not None:
            self._store.watches.add_children(path, self.session_id, watch)
        return self._store.tree.children(path)

    async def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        await trio.lowlevel.checkpoint()
        children = self._store.tree.children
        return [None if self._find(path) is None else children(path) for path in paths]

    async def multis(self, transactions: Sequence[Sequence[Operation]]) -> list[Outcome]:
        if self._ended:
            raise SessionExpiredError("/")
        return await self._store.submit(self.session_id, transactions)

    async def wait_expired(self) -> None:
        await self._expired.wait()

    async def close(self) -> None:
        if self._ended:
            return
        await self._end()

    async def expire(self) -> None:
        """Ends the session as a loss of contact would (for tests and simulations)."""
        await self._end()
        self._expired.set()

    async def _end(self) -> None:
        self._ended = True
        await self._store.end_session(self.session_id)


async def open_store(directory: Path) -> EmbeddedStore:
    """Opens or creates the store. Raises ``StartError`` or a subclass."""

    def load() -> tuple[Database, Tree]:
        database = Database(directory)
        try:
            return database, database.load()
        except BaseException:
            database.close()
            raise

    database, tree = await trio.to_thread.run_sync(load)
    return EmbeddedStore(database, tree)
