"""What a handler is given beside the request."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import trio

from pyrklog.base.pending import Pending
from pyrklog.cluster.requests import BrokerChannel, ControllerAdmin
from pyrklog.handlers.service import ClusterService
from pyrklog.plane.dataplane import Session

if TYPE_CHECKING:
    from pyrklog.groups.driver import GroupCoordinator


@dataclass(frozen=True, slots=True)
class Context:
    """The surroundings of one request."""

    service: ClusterService
    groups: "GroupCoordinator"
    control_requests: BrokerChannel
    """Takes the controller's requests."""
    controller: ControllerAdmin
    """What this broker is asked as the controller."""
    session: Session
    api_version: int
    elements_max: int
    """What an answer may consist of where nobody names it in the request."""
    large_answers: trio.Lock
    """Held while a large answer is made: one at a time."""


STEP_ITEMS = 1_000
"""What of a request is looked at before others have their turn: some milliseconds."""

Answer = TypeVar("Answer", covariant=True)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Later(Generic[Answer]):
    """The answer to a request that is not there yet."""

    wait: Callable[[], Awaitable[Answer]]
    """To be called once."""
    waits: bool
    """Whether it is known to wait for something: the request has been acted on."""
    is_large: bool = False
    """It takes long to encode: that is done beside the loop."""


async def step(count: int) -> None:
    """Lets others have their turn after each thousand items of a request."""
    if count % STEP_ITEMS == 0:
        await trio.lowlevel.checkpoint()


def now_or_later(
    pending: Pending[Result], convert: Callable[[Result], Answer]
) -> Answer | Later[Answer]:
    """The answer that ``convert`` makes of a result which may still have to come."""
    if pending.result is not None:
        return convert(pending.result)

    async def wait() -> Answer:
        return convert(await pending.wait())

    return Later(wait, waits=True)
