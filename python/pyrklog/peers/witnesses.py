"""Asks other brokers about one that does not answer the controller."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import trio

from pyrklog.peers.connection import Address, PeerConnection, PeerError
from pyrklog.protocol import DecodeError
from pyrklog.protocol.observation import OBSERVE_BROKER, ObserveBrokerRequest, Outcome

WITNESSES_MAX = 3
GRACE_SECONDS = 0.2
"""A witness may take this much longer than its wait."""


class View(NamedTuple):
    """The controller's reach at a moment."""

    registered: int
    """Registered brokers, including the controller and the silent one."""
    answering: Sequence[int]
    """Other brokers that answer the controller."""

    @property
    def is_of_a_majority(self) -> bool:
        """Of two sides of a split network at most one may elect around the other."""
        return 2 * (1 + len(self.answering)) > self.registered


def is_agreed(outcomes: Collection[Outcome]) -> bool:
    """Whether a witness finds the broker silent and none got an answer."""
    return Outcome.SILENT in outcomes and Outcome.ANSWERED not in outcomes


class Witnesses:
    """Uses one connection for each question."""

    def __init__(
        self,
        view: Callable[[], View],
        address_of: Callable[[int], Callable[[], Address | None]],
        client_id: str,
    ) -> None:
        """``view`` is called each time; ``address_of`` returns a broker's address function."""
        self._view = view
        self._address_of = address_of
        self._client_id = client_id

    async def agree(self, silent: int, seconds: float) -> bool:
        """Whether others find the broker silent; they wait so many seconds for its answer."""
        view = self._view()
        asked = [broker for broker in view.answering if broker != silent][:WITNESSES_MAX]
        if not view.is_of_a_majority or not asked:
            await trio.lowlevel.checkpoint()
            return False
        outcomes: list[Outcome] = []

        async def ask(broker: int) -> None:
            outcomes.append(await self._ask(broker, silent, seconds))

        async with trio.open_nursery() as nursery:
            for broker in asked:
                nursery.start_soon(ask, broker)
        return is_agreed(outcomes) and self._view().is_of_a_majority

    async def _ask(self, broker: int, silent: int, seconds: float) -> Outcome:
        connection = PeerConnection(
            self._address_of(broker),
            client_id=self._client_id,
            timeout_seconds=seconds + GRACE_SECONDS,
        )
        request = ObserveBrokerRequest(silent, int(seconds * 1000))
        try:
            answer = await connection.call(
                OBSERVE_BROKER, 0, OBSERVE_BROKER.encode_request(request, 0)
            )
            response = OBSERVE_BROKER.decode_response(answer, 0)
            return Outcome(response.outcome)
        except (PeerError, DecodeError, ValueError):
            return Outcome.UNKNOWN
        finally:
            with trio.CancelScope(shield=True):
                await connection.close()
