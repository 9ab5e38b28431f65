"""The same broker under asyncio and Trio: what waits is awaited, in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import trio

from pyrklog.testing.broker import TestBroker
from pyrklog.testing.door_client import ArmedFault, Clock
from pyrklog.testing.topics import Record, Topic

Result = TypeVar("Result")


class AsyncTestBroker:
    """Of a :class:`TestBroker`, here ``sync``: a new one of the same arguments, or one that is
    there, as that of the fixture ``pyrklog``. Faults and the clock do not wait: they are as there.
    """

    def __init__(self, sync: TestBroker | None = None, **arguments: Any) -> None:
        """``arguments``: as those of :class:`TestBroker`."""
        if sync is not None and arguments:
            raise TypeError("arguments are for a new broker")
        self.sync = TestBroker(**arguments) if sync is None else sync

    @property
    def bootstrap(self) -> str:
        return self.sync.bootstrap

    @property
    def port(self) -> int:
        return self.sync.port

    @property
    def data(self) -> Path:
        return self.sync.data

    @property
    def pid(self) -> int:
        return self.sync.pid

    @property
    def running(self) -> bool:
        return self.sync.running

    @property
    def log(self) -> Sequence[str]:
        return self.sync.log

    def events(self, since: int = 0) -> list[dict[str, Any]]:
        return self.sync.events(since)

    def signal(self, number: int) -> None:
        self.sync.signal(number)

    @property
    def clock(self) -> Clock:
        return self.sync.clock

    async def start(self, timeout_s: float = 30.0) -> Self:
        await _in_thread(partial(self.sync.start, timeout_s))
        return self

    async def stop(self, timeout_s: float = 30.0) -> int:
        return await _in_thread(partial(self.sync.stop, timeout_s))

    async def kill(self) -> None:
        await _in_thread(self.sync.kill)

    async def restart(self) -> Self:
        await _in_thread(self.sync.restart)
        return self

    async def close(self) -> None:
        await _in_thread(self.sync.close)

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            self.sync.kill()
            self.sync.close()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        config: Mapping[str, str | int | bool] | None = None,
        timeout_s: float = 30.0,
    ) -> Topic:
        create = partial(
            self.sync.create_topic,
            name,
            partitions=partitions,
            config=config,
            timeout_s=timeout_s,
        )
        return await _in_thread(create)

    async def delete_topic(self, name: str, *, timeout_s: float = 30.0) -> None:
        await _in_thread(partial(self.sync.delete_topic, name, timeout_s=timeout_s))

    async def records(self, topic: str, *, timeout_s: float = 30.0) -> list[Record]:
        return await _in_thread(partial(self.sync.records, topic, timeout_s=timeout_s))

    async def tail(self, topic: str, last: int, *, timeout_s: float = 30.0) -> list[Record]:
        return await _in_thread(partial(self.sync.tail, topic, last, timeout_s=timeout_s))

    async def note(self, text: str) -> None:
        await _in_thread(partial(self.sync.note, text))

    async def wait_for(self, topic: str, count: int, *, timeout_s: float = 10.0) -> list[Record]:
        return await _in_thread(partial(self.sync.wait_for, topic, count, timeout_s=timeout_s))

    # --- faults ----------------------------------------------------------------------------------

    def fail_next(
        self, api: str | int, error: str | int, times: int = 1, *, client_id: str | None = None
    ) -> ArmedFault:
        return self.sync.fail_next(api, error, times, client_id=client_id)

    def delay(
        self,
        api: str | int,
        ms: int,
        times: int | None = None,
        *,
        client_id: str | None = None,
    ) -> ArmedFault:
        return self.sync.delay(api, ms, times, client_id=client_id)

    def disconnect(
        self,
        api: str | int | None = None,
        times: int = 1,
        *,
        after: bool = False,
        client_id: str | None = None,
    ) -> ArmedFault | None:
        return self.sync.disconnect(api, times, after=after, client_id=client_id)

    def clear_faults(self) -> None:
        self.sync.clear_faults()


async def _in_thread(call: Callable[[], Result]) -> Result:
    """To its end, also when cancelled: a process that starts must not be left alone."""
    if trio.lowlevel.in_trio_run():
        return await trio.to_thread.run_sync(call)
    work = asyncio.create_task(asyncio.to_thread(call))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
