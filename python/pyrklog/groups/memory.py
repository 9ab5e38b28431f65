"""The bound on what groups and their members make a coordinator remember, over all groups. Pure.

Counted are groups, members with their metadata and assignments, member ids that were handed out,
topics that members subscribe to, and the history of rebalances. Committed offsets are not: the log
keeps them, and they expire. Each byte counts for the host of the client that caused it; a group
counts for the host that founded it, or no host where only the log knows it, until a member comes.

No host may have more than it leaves free, so that nobody takes all of it: a lone one gets a half,
the next one a quarter. Beyond that nothing more is taken in. What the log says is, whatever it
takes; but what a host has beyond a half, or nobody has to answer for, takes no room from others.

Who is in stays in: a group keeps a *reserve* (:class:`GroupMemory`) for its next assignment and for
metadata that grows, and gives nothing of it back before the next generation has its assignment.
"""

from __future__ import annotations

from collections.abc import Mapping

GROUP_BYTES = 4096
"""What a group takes without members, and without offsets."""
MEMBER_BYTES = 2048
"""What a member takes beside its strings: its timers, its counts."""
PROTOCOL_BYTES = 256
"""What a protocol of a member takes beside its name and metadata, which may be of one byte."""
PENDING_BYTES = 512
"""What a member id takes that was handed out, beside itself."""
REBALANCE_BYTES = 256
"""What a rebalance of the history takes beside its reason."""
TOPIC_BYTES = 128
"""What a topic takes, beside its name, that members subscribe to."""
RESERVE_BYTES = 1024
"""What is set aside for a member's assignment before there has been any."""
NO_HOST = ""
"""Of a group that the log knows without members. It takes no room from others: what there is of it
the log bounds."""


def text_bytes(text: str) -> int:
    """What a string takes: one wide character makes all of them wide."""
    return len(text) if text.isascii() else 4 * len(text)


class MemoryPool:
    """What all groups take together, in bytes."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._by_host: dict[str, int] = {}
        self._counted_bytes = 0
        """What takes room from others: of each host no more than a half, and nothing of no host."""

    def has_room(self, host: str, more_bytes: int, total_bytes: int | None = None) -> bool:
        """Whether the host may take so much more, while all hosts together take ``total_bytes``
        more; what takes no more always may."""
        if more_bytes <= 0:
            return True
        free_bytes = self.max_bytes - self._counted_bytes - (total_bytes or more_bytes)
        return self.of_host(host) + more_bytes <= free_bytes

    def of_host(self, host: str) -> int:
        """What the host takes now."""
        return self._by_host.get(host, 0)

    def change(self, host: str, bytes_more: int) -> None:
        """The host takes so much more, or less."""
        self._counted_bytes -= self._counted(host)
        _add(self._by_host, host, bytes_more)
        self._counted_bytes += self._counted(host)
        self.used_bytes += bytes_more

    def _counted(self, host: str) -> int:
        return 0 if host == NO_HOST else min(self.of_host(host), self.max_bytes // 2)


class GroupMemory:
    """One group's part of it, from its making to its end.

    The *reserve* is what the members' assignments take, or may take. Out of it members that are in
    may let their metadata grow, as those do that name there what they own, and the leader may
    assign. What the last assignment took stays for the next one.
    """

    def __init__(self, pool: MemoryPool, host: str, name: str) -> None:
        self._pool: MemoryPool | None = pool
        self.host = host
        """That the group itself counts for."""
        self._own_bytes = 0
        """What the group takes itself, its members aside."""
        self.used_bytes = 0
        """The reserve included."""
        self.reserved_bytes = 0
        self._assigned_bytes = 0
        self._by_host: dict[str, int] = {}
        self._reserved: dict[str, int] = {}
        self.change(GROUP_BYTES + text_bytes(name))

    def change(self, bytes_more: int, host: str | None = None) -> None:
        """The group takes so much more, or less."""
        if self._pool is None:
            return
        if host is None:
            host = self.host
            self._own_bytes += bytes_more
        self.used_bytes += bytes_more
        _add(self._by_host, host, bytes_more)
        self._pool.change(host, bytes_more)

    def has_room(self, more_bytes: int, host: str | None = None) -> bool:
        """Whether the group may take so much more, its reserve aside."""
        host = self.host if host is None else host
        return self._pool is None or self._pool.has_room(host, more_bytes)

    @property
    def unfounded_bytes(self) -> int:
        """What of it counts for no host, until the first member comes."""
        return self._own_bytes if self.host == NO_HOST else 0

    def found(self, host: str) -> None:
        """A member comes: a group that only the log knew counts for its host from now on."""
        unfounded_bytes = self.unfounded_bytes
        self.change(-unfounded_bytes, NO_HOST)
        self.change(unfounded_bytes, host)
        self.host = self.host or host

    @property
    def hosts(self) -> set[str]:
        """The hosts that parts of it count for."""
        return self._by_host.keys() | self._reserved.keys()

    def close(self) -> None:
        """The group has ended or is served elsewhere: what happens to it counts no more."""
        for host, used_bytes in list(self._by_host.items()):
            self.change(-used_bytes, host)
        self._reserved.clear()
        self.reserved_bytes = 0
        self._pool = None

    # --- the reserve -----------------------------------------------------------------------------

    @property
    def _spare_bytes(self) -> int:
        """What the reserve holds beyond the last assignment."""
        return max(0, self.reserved_bytes - self._assigned_bytes)

    def reserve(self, bytes_more: int, host: str) -> None:
        """A member comes, or one goes that had no assignment yet: its part is set aside, or given
        back as far as it is still there."""
        if bytes_more < 0:
            there = min(self._reserved.get(host, 0), self._spare_bytes)
            bytes_more = -min(-bytes_more, there)
        self._set_aside(bytes_more, host)

    def _set_aside(self, bytes_more: int, host: str) -> None:
        if self._pool is None or not bytes_more:
            return
        self.reserved_bytes += bytes_more
        _add(self._reserved, host, bytes_more)
        self.change(bytes_more, host)

    def has_room_to_grow(self, more_bytes: int, host: str) -> bool:
        """Whether the metadata of a member that is in may take so much more."""
        return self.has_room(more_bytes - self._spare_bytes, host)

    def grow(self, bytes_more: int, host: str) -> None:
        """It does: out of the reserve first, its own host's before that of others. What shrinks
        goes back there, and what of it is not wanted leaves with the next assignment."""
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
        """Whether there is room for an assignment of so much for members of each host; it is kept
        from then on. There is as long as it takes no more than the group has in reserve."""
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
        """An assignment counts (none in a group without members): the reserve becomes what that
        takes, and what the next one may: as much again, since metadata may come to name it. Where
        memory is short it is what the reserve held. ``assigned``: bytes and wanted bytes by host.
        """
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


def _add(by_host: dict[str, int], host: str, bytes_more: int) -> None:
    """Hosts without anything are not remembered."""
    by_host[host] = by_host.get(host, 0) + bytes_more
    if not by_host[host]:
        del by_host[host]
