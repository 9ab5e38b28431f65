"""Why a group rebalanced: the last of its rebalances, in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from pyrklog.groups.memory import REBALANCE_BYTES, GroupMemory, text_bytes

REBALANCES_MAX = 50
REASON_CHARACTERS_MAX = 512


class Rebalance(NamedTuple):
    """``generation`` is the one that it led to; -1, and ``ended_ms`` None, while it is going on."""

    began_ms: int
    reason: str
    members_before: int
    ended_ms: int | None = None
    generation: int = -1
    members_after: int = -1


class RebalanceHistory:
    """The last rebalances of a group, the oldest first."""

    def __init__(self, memory: GroupMemory) -> None:
        self._memory = memory
        self._entries: deque[Rebalance] = deque()

    def begin(self, now_ms: int, reason: str, members: int) -> None:
        """A rebalance begins. Where memory is short, fewer of those before it are kept."""
        reason = reason[:REASON_CHARACTERS_MAX]
        size_bytes = REBALANCE_BYTES + text_bytes(reason)
        while self._entries and not (
            len(self._entries) < REBALANCES_MAX and self._memory.has_room(size_bytes)
        ):
            forgotten = self._entries.popleft().reason
            self._memory.change(-REBALANCE_BYTES - text_bytes(forgotten))
        self._memory.change(size_bytes)
        self._entries.append(Rebalance(now_ms, reason, members))

    def end(self, now_ms: int, generation: int, members: int) -> None:
        """The rebalance has led to a generation, whose members may still await their parts."""
        if self._entries and self._entries[-1].ended_ms is None:
            self._entries[-1] = self._entries[-1]._replace(
                ended_ms=now_ms, generation=generation, members_after=members
            )

    def reason_of(self, generation: int) -> str | None:
        """Why the last rebalance led to this generation; None where it did not."""
        if self._entries and self._entries[-1].generation == generation:
            return self._entries[-1].reason
        return None

    def entries(self) -> Sequence[Rebalance]:
        """All that are kept."""
        return tuple(self._entries)
