"""A client that waits for its answers: a process with tasks, like a broker's drivers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyrklog.protocol.api import Api
from tests.sim.clients import Caller
from tests.sim.scheduler import Task


class Client(Caller):
    """To be used by tasks. One request at a time to one broker."""

    async def exchange(
        self, broker: int, key: int, version: int, body: bytes, *, flexible: bool = False
    ) -> bytes | None:
        """The answer's body; None if the request's fate is unknown."""

        def arm(task: Task) -> None:
            wake: Callable[[bytes | None], None] = task.waker()
            self.call(broker, key, version, body, wake, flexible=flexible)

        answer: bytes | None = await self.world.scheduler.suspend(arm)
        return answer[1:] if flexible and answer is not None else answer

    async def ask(self, broker: int, api: Api[Any, Any], version: int, request: Any) -> Any:
        """The decoded answer; None if the request's fate is unknown."""
        body = api.encode_request(request, version)
        flexible = version >= api.flexible_since
        answer = await self.exchange(broker, api.key, version, body, flexible=flexible)
        return None if answer is None else api.decode_response(answer, version)

    async def sleep(self, microseconds: int) -> None:
        await self.world.scheduler.sleep(microseconds / 1e6)
