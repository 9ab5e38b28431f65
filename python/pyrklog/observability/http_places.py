"""Which HTTP connections are served, so that no client takes all the places.

Decisions only: what a connection is, and how it is ended, is the server's affair.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Generic, Protocol, TypeVar

SERVED_MAX = 16
WAITING_MAX = 64
"""Connections that are accepted and not served yet: each is a descriptor, and nothing is read."""


class Served(Protocol):
    """A connection that is served."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""


Stream = TypeVar("Stream")
Connection = TypeVar("Connection", bound=Served)


class Places(Generic[Stream, Connection]):
    """Connections that wait for a place, and those that have one. Clients that wait take turns,
    one connection each time."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Stream]] = {}
        """By client, in the order of their turns; each client's in the order of arrival."""
        self._waiting_count = 0
        self._served: dict[Connection, str] = {}
        """The client of each; oldest first."""

    @property
    def served(self) -> list[Connection]:
        return list(self._served)

    def arrive(self, client: str, stream: Stream) -> Stream | None:
        """Adds one that waits. Returns the one to end if that makes too many: the oldest of the
        client that has most."""
        self._waiting.setdefault(client, deque()).append(stream)
        self._waiting_count += 1
        if self._waiting_count <= WAITING_MAX:
            return None
        return self._take(max(self._waiting, key=lambda one: len(self._waiting[one])))

    def next(self) -> tuple[str, Stream] | None:
        """The one to serve next, with its client; it does not wait any more. None without any."""
        client = next(iter(self._waiting), None)
        if client is None:
            return None
        stream = self._take(client)
        if client in self._waiting:
            self._waiting[client] = self._waiting.pop(client)
        return client, stream

    def _take(self, client: str) -> Stream:
        of_client = self._waiting[client]
        if len(of_client) == 1:
            del self._waiting[client]
        self._waiting_count -= 1
        return of_client.popleft()

    def surplus(self, client: str) -> Connection | None:
        """The connection to end before one more of ``client`` is served; None while there is a
        place. Of the client that has most, counted with that one, it is the oldest that is idle,
        or else the oldest."""
        if len(self._served) < SERVED_MAX:
            return None
        counts = Counter([*self._served.values(), client])
        most = max(counts.values())
        found = [one for one, of in self._served.items() if counts[of] == most]
        return next((one for one in found if one.is_idle), found[0])

    def serve(self, client: str, connection: Connection) -> None:
        self._served[connection] = client

    def leave(self, connection: Connection) -> None:
        """It is not served any more, or was not."""
        self._served.pop(connection, None)
