from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyrklog.coordinators.memory_pool import text_bytes
from pyrklog.groups.memory import MEMBER_BYTES, PROTOCOL_BYTES, RESERVE_BYTES


@dataclass(slots=True, eq=False)
class Member:
    """A member and its parked requests."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Sequence[tuple[str, bytes]]
    """(name, metadata) in order of preference, each name once."""
    assignment: bytes = b""
    awaiting_join: int | None = None
    """The token of a parked request, as :attr:`awaiting_sync`; :class:`.members.Members` counts and
    changes them."""
    awaiting_sync: int | None = None
    reserved_bytes: int = 0
    """The reserve for its assignment when it came."""
    is_new: bool = False
    """It has been in no generation yet, and so cannot send heartbeats."""

    def __post_init__(self) -> None:
        self.protocols = distinct(self.protocols)

    def metadata(self, protocol: str) -> bytes:
        """Empty for an unsupported protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    @property
    def size_bytes(self) -> int:
        """Its size (:mod:`.memory`) without its assignment's reserve."""
        ids = (self.member_id, self.instance_id or "", self.client_id)
        return MEMBER_BYTES + sum(map(text_bytes, ids)) + protocols_bytes(self.protocols)

    @property
    def wanted_reserve_bytes(self) -> int:
        """Its assignment, and as much again for metadata that names the assignment."""
        return max(RESERVE_BYTES, 2 * len(self.assignment))

    def vote(self, candidates: Collection[str]) -> str:
        """Its preferred candidate; it supports all."""
        return next(name for name, _ in self.protocols if name in candidates)

    def has_exactly(self, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Whether these are its protocols, with the same metadata and order."""
        return self.protocols == distinct(protocols)


def protocols_bytes(protocols: Sequence[tuple[str, bytes]]) -> int:
    """The size of distinct protocols (:mod:`.memory`)."""
    return sum(PROTOCOL_BYTES + text_bytes(name) + len(metadata) for name, metadata in protocols)


def distinct(protocols: Sequence[tuple[str, bytes]]) -> tuple[tuple[str, bytes], ...]:
    """The first protocol of each name."""
    by_name: dict[str, bytes] = {}
    for name, metadata in protocols:
        by_name.setdefault(name, metadata)
    return tuple(by_name.items())
