"""The memory limit of a coordinator's groups and members. Pure.

Groups count, members with metadata and assignments, pending ids, and subscribed topics. Committed
offsets do not: the log keeps them, and they expire. Each byte counts for the host of the client
that caused it, a group for its founder's; a loaded group counts for no host until a member comes.

How hosts share it: :mod:`pyrklog.coordinators.memory_pool`. The log's contents are always accepted.

Accepted members stay: a group keeps a *reserve* (:class:`GroupMemory`) for its next assignment and
growing metadata, until the next generation has its assignment.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyrklog.coordinators.memory_pool import NO_HOST, MemoryPool, add_bytes, text_bytes

GROUP_BYTES = 4096
"""A group without members and offsets."""
MEMBER_BYTES = 2048
"""A member without its strings: timers, counts."""
PROTOCOL_BYTES = 256
"""A protocol of a member without name and metadata, which may have one byte."""
PENDING_BYTES = 512
"""A pending member id without its characters."""
TOPIC_BYTES = 128
"""A subscribed topic without its name."""
RESERVE_BYTES = 1024
"""The reserve for a member's first assignment."""


class GroupMemory:
    """One group's memory, for its life.

    The *reserve* is for current and later assignments. The leader's assignment comes out of it, and
    so does growing metadata, for example when members name what they own. The last assignment's
    bytes stay for the next one.
    """

    def __init__(self, pool: MemoryPool, host: str, name: str) -> None:
        self._pool: MemoryPool | None = pool
        self.host = host
        """The host that pays for the group itself."""
        self._own_bytes = 0
        """The group without its members."""
        self.used_bytes = 0
        self.reserved_bytes = 0
        self._assigned_bytes = 0
        self._by_host: dict[str, int] = {}
        self._reserved: dict[str, int] = {}
        self.change(GROUP_BYTES + text_bytes(name))

    def change(self, bytes_more: int, host: str | None = None) -> None:
        if self._pool is None:
            return
        if host is None:
            host = self.host
            self._own_bytes += bytes_more
        self.used_bytes += bytes_more
        add_bytes(self._by_host, host, bytes_more)
        self._pool.change(host, bytes_more)

    def has_room(self, more_bytes: int, host: str | None = None) -> bool:
        """Whether the group may take so much more without its reserve."""
        host = self.host if host is None else host
        return self._pool is None or self._pool.has_room(host, more_bytes)

    @property
    def unfounded_bytes(self) -> int:
        """Bytes that count for no host until the first member comes."""
        return self._own_bytes if self.host == NO_HOST else 0

    def found(self, host: str) -> None:
        """The first member's host pays for a group of no host."""
        unfounded_bytes = self.unfounded_bytes
        self.change(-unfounded_bytes, NO_HOST)
        self.change(unfounded_bytes, host)
        self.host = self.host or host

    @property
    def hosts(self) -> set[str]:
        return self._by_host.keys() | self._reserved.keys()

    def close(self) -> None:
        """The group has ended or moved."""
        for host, used_bytes in list(self._by_host.items()):
            self.change(-used_bytes, host)
        self._reserved.clear()
        self.reserved_bytes = 0
        self._pool = None

    @property
    def _spare_bytes(self) -> int:
        """The reserve beyond the last assignment."""
        return max(0, self.reserved_bytes - self._assigned_bytes)

    def reserve(self, bytes_more: int, host: str) -> None:
        """Reserves a new member's part; negative: returns what is left of the part of one that
        leaves without an assignment."""
        if bytes_more < 0:
            there = min(self._reserved.get(host, 0), self._spare_bytes)
            bytes_more = -min(-bytes_more, there)
        self._set_aside(bytes_more, host)

    def _set_aside(self, bytes_more: int, host: str) -> None:
        if self._pool is None or not bytes_more:
            return
        self.reserved_bytes += bytes_more
        add_bytes(self._reserved, host, bytes_more)
        self.change(bytes_more, host)

    def has_room_to_grow(self, more_bytes: int, host: str) -> bool:
        """Whether a member's metadata may grow so much."""
        return self.has_room(more_bytes - self._spare_bytes, host)

    def grow(self, bytes_more: int, host: str) -> None:
        """A member's metadata grows out of the reserve, its own host's first. When it shrinks, the
        bytes go to the reserve until the next assignment."""
        if bytes_more < 0:
            self.change(bytes_more, host)
            self._set_aside(-bytes_more, host)
            return
        wanted = min(bytes_more, self._spare_bytes)
        for one in (host, *(other for other in list(self._reserved) if other != host)):
            if wanted <= 0:
                break
            taken = min(wanted, self._reserved.get(one, 0))
            self._set_aside(-taken, one)
            wanted -= taken
        self.change(bytes_more, host)

    def take_assignment(self, assigned: Mapping[str, int]) -> bool:
        """Takes the memory for an assignment (bytes by host); False if there is too little. An
        assignment within the reserve always fits."""
        lacking = sum(assigned.values()) - self.reserved_bytes
        if self._pool is None or lacking <= 0:
            return True
        left = lacking
        more: dict[str, int] = {}
        for host, wanted in assigned.items():
            more[host] = min(left, max(0, wanted - self._reserved.get(host, 0)))
            left -= more[host]
        if not all(self._pool.has_room(host, one, lacking) for host, one in more.items()):
            return False
        for host, one in more.items():
            self._set_aside(one, host)
        return True

    def settle(self, assigned: Mapping[str, tuple[int, int]], *, anyway: bool = False) -> None:
        """Fits the reserve to the current assignment, if any: its bytes, and as much again for
        metadata that may name it. Without room the reserve does not grow. ``assigned``: bytes and
        wanted bytes by host."""
        if self._pool is None:
            return
        before = self.reserved_bytes
        for host, reserved in list(self._reserved.items()):
            self._set_aside(-reserved, host)
        for host, (taken, _) in assigned.items():
            self._set_aside(taken, host)
        self._assigned_bytes = self.reserved_bytes
        free = max(0, before - self.reserved_bytes)
        for host, (taken, wanted) in assigned.items():
            extra = wanted - taken
            if not anyway and not self._pool.has_room(host, extra):
                extra = min(extra, free)
            self._set_aside(extra, host)
            free = max(0, free - extra)
