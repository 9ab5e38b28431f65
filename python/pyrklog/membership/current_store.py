"""The current session, for users that outlive one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from pyrklog.metastore.interface import (
    Metastore,
    Node,
    Operation,
    Outcome,
    SessionExpiredError,
    Stat,
    Watch,
)

Result = TypeVar("Result")


class CurrentStore(Metastore):
    """Continues across sessions.

    Calls between two sessions wait for the next one. A read without a watch is repeated there. A
    write or a read with a watch fails with :class:`SessionExpiredError`: only the caller can find
    out whether the write happened and what the watch missed.
    """

    def __init__(self, session: Metastore) -> None:
        self._session: Metastore | None = session
        self._changed = trio.Event()
        self.session_id = session.session_id

    def take(self, session: Metastore) -> None:
        self.session_id = session.session_id
        self._change(session)

    def lose(self) -> Metastore | None:
        """The session has ended: calls wait from now on. Returns it, to be closed."""
        session = self._session
        self._change(None)
        return session

    def _change(self, session: Metastore | None) -> None:
        self._session = session
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def session(self) -> Metastore:
        while self._session is None:
            await self._changed.wait()
        return self._session

    @property
    def is_reachable(self) -> bool:
        return self._session is not None and self._session.is_reachable

    async def _read(
        self, watch: Watch | None, read: Callable[[Metastore], Awaitable[Result]]
    ) -> Result:
        while True:
            session = await self.session()
            try:
                return await read(session)
            except SessionExpiredError:
                if watch is not None:
                    raise
            while self._session is session:
                await self._changed.wait()

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        return await self._read(watch, lambda session: session.get_many(paths, watch))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._read(watch, lambda session: session.exists(path, watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._read(watch, lambda session: session.children(path, watch))

    async def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        return await self._read(None, lambda session: session.children_of(paths))

    async def multis(self, transactions: Sequence[Sequence[Operation]]) -> list[Outcome]:
        return await (await self.session()).multis(transactions)

    async def wait_expired(self) -> None:
        await (await self.session()).wait_expired()

    async def close(self) -> None:
        session = self.lose()
        if session is not None:
            with trio.CancelScope(shield=True):
                await session.close()
