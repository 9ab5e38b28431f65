"""The bound on what groups and their members make a coordinator remember, over all groups. Pure.

Counted are groups, members with their metadata and assignments, member ids that were handed out,
and the history of rebalances. Committed offsets are not: the log keeps them, and they expire.
Beyond the bound nothing more is taken in; what the log says is, whatever it takes.
"""

from __future__ import annotations

GROUP_BYTES = 4096
"""What a group takes without members, and without offsets."""
MEMBER_BYTES = 2048
"""What a member takes beside its strings: its timers, its counts."""
PENDING_BYTES = 512
"""What a member id takes that was handed out, beside itself."""
REBALANCE_BYTES = 256
"""What a rebalance of the history takes beside its reason."""


class GroupMemory:
    """What all groups take together, in bytes."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0

    def has_room(self, more_bytes: int) -> bool:
        """Whether so much more may be taken; what takes no more always may."""
        return more_bytes <= 0 or self.used_bytes + more_bytes <= self.max_bytes


class Share:
    """One group's part of it, from its making to its end."""

    def __init__(self, memory: GroupMemory) -> None:
        self._memory: GroupMemory | None = memory
        self.used_bytes = 0
        self.change(GROUP_BYTES)

    def change(self, bytes_more: int) -> None:
        """The group takes so much more, or less."""
        if self._memory is not None:
            self.used_bytes += bytes_more
            self._memory.used_bytes += bytes_more

    def has_room(self, more_bytes: int) -> bool:
        """Whether the group may take so much more."""
        return self._memory is None or self._memory.has_room(more_bytes)

    def close(self) -> None:
        """The group has ended or is served elsewhere: what happens to it counts no more."""
        self.change(-self.used_bytes)
        self._memory = None
