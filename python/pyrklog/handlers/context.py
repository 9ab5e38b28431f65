import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from pyrklog.base.pending import Pending
from pyrklog.cluster.requests import BrokerChannel, ControllerAdmin
from pyrklog.handlers.service import ClusterService
from pyrklog.plane.seam import Session

if TYPE_CHECKING:
    from pyrklog.groups.requests import GroupCoordinator
    from pyrklog.transactions.parts import TransactionParts


@dataclass(frozen=True, slots=True)
class Context:
    service: ClusterService
    groups: "GroupCoordinator"
    transactions: "TransactionParts"
    control_requests: BrokerChannel
    """Takes the controller's requests."""
    controller: ControllerAdmin
    """Serves requests to the controller."""
    large_answers: trio.Lock
    """Held while a large answer is made: one at a time."""
    elements_max: int
    """Most elements of an answer to a request that does not name them."""
    session: Session
    api_version: int

    @property
    def client_host(self) -> str:
        """The client's address as members of groups have it: what Java's ``InetAddress.toString``
        makes of it, with all eight numbers of an IPv6 address."""
        host = self.session.host
        if ":" not in host:
            return f"/{host}"
        numbers = struct.unpack("!8H", socket.inet_pton(socket.AF_INET6, host))
        return "/" + ":".join(f"{number:x}" for number in numbers)


LIMIT_SECONDS = 20.0
"""Longest time of an answer; shorter than clients' request time-outs."""
STEP_ITEMS = 1_000
"""Items of a request handled before a checkpoint: some milliseconds."""

Answer = TypeVar("Answer", covariant=True)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Later(Generic[Answer]):
    """A deferred answer."""

    wait: Callable[[], Awaitable[Answer]]
    """To be called once."""
    waits: bool
    """Whether it waits for an event, since the request has been acted on."""
    is_large: bool = False
    """Encoding takes long: a thread does it."""
    is_limited: bool = False
    """Whether :data:`LIMIT_SECONDS` bound the wait; the request has no deadline of its own."""


@dataclass(frozen=True, slots=True)
class WhenDone(Generic[Answer]):
    """An answer that a pending result becomes: it takes no task."""

    pending: Pending[Any]
    convert: Callable[[Any], Answer]
    is_limited: bool = False
    """As for :class:`Later`."""

    def answer(self) -> Answer:
        """Of the result, which is there. Raises its failure."""
        return self.convert(self.pending.take())

    async def wait(self) -> Answer:
        """To be called once."""
        return self.convert(await self.pending.wait())


Deferred = Later[Answer] | WhenDone[Answer]


async def step(count: int) -> None:
    """A checkpoint after each thousand items of a request."""
    if count % STEP_ITEMS == 0:
        await trio.lowlevel.checkpoint()


def now_or_later(
    pending: Pending[Result], convert: Callable[[Result], Answer], *, is_limited: bool = False
) -> Answer | WhenDone[Answer]:
    """The answer that ``convert`` makes of the result, deferred if the result is pending."""
    if pending.result is not None:
        return convert(pending.result)
    return WhenDone(pending, convert, is_limited)
