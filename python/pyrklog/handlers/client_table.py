"""The clients that a broker has met, in bounded memory: names, addresses, the oldest version of
each API that they used, and what they were refused.

It knows what the control plane sees: requests that Python answers, and of Rust's the notices about
clients' software, old record formats and refused versions.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from pyrklog.base.clock_reading import now_ms
from pyrklog.plane.seam import Session

CLIENTS_MAX = 1_000
"""A further one takes the place of the one that was seen longest ago."""
APIS_MAX = 60
REFUSALS_MAX = 5
"""Sentences kept of a client."""
NAME_CHARACTERS_MAX = 100
SENTENCE_CHARACTERS_MAX = 200
OLD_CLIENT = "old_client"
REFUSED = "connection_refused"
SEEN = "client_seen"
"""Not for the log: names a client's software (KIP-511), from its ApiVersions."""
_BETWEEN_BROKERS = frozenset({4, 5, 6, 7, 27, 56, 58, 67})
"""LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, WriteTxnMarkers, AlterPartition,
Envelope, AllocateProducerIds."""
_OWN_KEYS_FROM = 20_000
_REQUEST = re.compile(r"(\w+) v(\d+)")
_NOT_SERVED = re.compile(r"\w+ version -?\d+ is not served.*|API key -?\d+ is unknown")


@dataclass
class SeenClient:
    """``software``: name and version, as the client calls them, empty where it has not.
    ``oldest``: the oldest version used of each API, by name. ``refused``: sentences and how
    often each was the reason for a refusal. Times are milliseconds since the epoch."""

    client_id: str
    host: str
    first_seen_ms: int
    last_seen_ms: int
    software: tuple[str, str] = ("", "")
    oldest: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


class ClientTable:
    def __init__(
        self, names: Callable[[], Mapping[int, str]], clock: Callable[[], int] = now_ms
    ) -> None:
        """``names`` gives those of APIs by their keys; it is called once, with the first client."""
        self._names = cache(names)
        self._clock = clock
        self._clients: OrderedDict[tuple[str, str], SeenClient] = OrderedDict()
        self.forgotten = 0
        """Clients that made room for others."""

    def note_request(self, session: Session, api_key: int, version: int) -> None:
        if api_key in _BETWEEN_BROKERS or api_key >= _OWN_KEYS_FROM:
            return
        name = self._names().get(api_key)
        if name is not None:
            self._note_version(session.host, session.client_id or "", name, version)

    def note_notice(self, event: str, fields: Mapping[str, str]) -> None:
        """Of the data plane; other events than three are passed over."""
        if event == SEEN:
            client = self._client(fields.get("host", ""), fields.get("client_id", ""))
            name, version = fields.get("software_name", ""), fields.get("software_version", "")
            client.software = name[:NAME_CHARACTERS_MAX], version[:NAME_CHARACTERS_MAX]
        elif event == OLD_CLIENT:
            found = _REQUEST.fullmatch(fields.get("request", ""))
            if found is not None:
                host, client_id = fields.get("host", ""), fields.get("client_id", "")
                self._note_version(host, client_id, found[1], int(found[2]))
        elif event == REFUSED and _NOT_SERVED.fullmatch(fields.get("reason", "")):
            refused = self._client(fields.get("peer", ""), "").refused
            sentence = fields["reason"][:SENTENCE_CHARACTERS_MAX]
            if sentence in refused or len(refused) < REFUSALS_MAX:
                refused[sentence] = refused.get(sentence, 0) + 1

    def clients(self) -> list[SeenClient]:
        """The one that was seen last comes first."""
        return list(reversed(self._clients.values()))

    def _note_version(self, host: str, client_id: str, api: str, version: int) -> None:
        oldest = self._client(host, client_id).oldest
        before = oldest.get(api)
        if (before is None and len(oldest) < APIS_MAX) or (before or 0) > version:
            oldest[api] = version

    def _client(self, host: str, client_id: str) -> SeenClient:
        key = (host, client_id[:NAME_CHARACTERS_MAX])
        found = self._clients.get(key)
        now = self._clock()
        if found is None:
            if len(self._clients) >= CLIENTS_MAX:
                self._clients.popitem(last=False)
                self.forgotten += 1
            found = self._clients[key] = SeenClient(key[1], host, now, now)
        else:
            self._clients.move_to_end(key)
            found.last_seen_ms = now
        return found
