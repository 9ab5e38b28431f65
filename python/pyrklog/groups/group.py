"""The state of one group. What may happen to it: :mod:`.machine` and its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pyrklog.groups.history import History
from pyrklog.groups.memory import PENDING_BYTES, GroupMemory, Share
from pyrklog.groups.offsets import GroupOffsets
from pyrklog.groups.roster import Roster
from pyrklog.groups.states import TRANSITIONS, GroupState
from pyrklog.groups.subscription import CONSUMER, all_subscribed_topics
from pyrklog.groups.values import (
    GroupSettings,
)
from pyrklog.internal_log import (
    AppendResult,
)

if TYPE_CHECKING:
    from pyrklog.groups.turn import Turn

AppendDone = Callable[["Turn", AppendResult], None]


class InitialDelay(NamedTuple):
    """The wait for the first members: the part that runs now, and what may still follow it."""

    running_ms: int
    remaining_ms: int


class Group:
    """A group; created empty, in generation 0."""

    def __init__(
        self, group_id: str, settings: GroupSettings, now_ms: int, memory: GroupMemory
    ) -> None:
        self.share = Share(memory)
        self.group_id = group_id
        self.settings = settings
        self.state = GroupState.EMPTY
        self.state_since_ms: int | None = now_ms
        """None where an old record did not say."""
        self.generation = 0
        self.protocol_type: str | None = None
        """None: no member has ever joined."""
        self.protocol_name: str | None = None
        self.roster = Roster(self.share)
        self.pending_ids: set[str] = set()
        """Member ids that were handed out and have not come back."""
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not asked for their assignment."""
        self.assigned_generation = 0
        """The last generation whose assignment the leader has handed in."""
        self.subscribed_topics: frozenset[str] | None = None
        """None where unknown: no consumers, or metadata that cannot be read."""
        self.initial_delay: InitialDelay | None = None
        self.member_added_in_delay = False
        self.offsets = GroupOffsets()
        self.history = History(self.share)
        self.appends: dict[int, AppendDone] = {}
        """What to do when the append of a ticket is over."""
        self.next_ticket = 0

    def move_to(self, state: GroupState, now_ms: int) -> None:
        """The only place where the state changes."""
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state = state
        self.state_since_ms = now_ms

    def add_pending_id(self, member_id: str) -> None:
        """A member id is handed out, and is to come back."""
        self.pending_ids.add(member_id)
        self.share.change(PENDING_BYTES + len(member_id))

    def remove_pending_id(self, member_id: str) -> bool:
        """It is no longer waited for; False where it was not."""
        if member_id not in self.pending_ids:
            return False
        self.pending_ids.remove(member_id)
        self.share.change(-PENDING_BYTES - len(member_id))
        return True

    @property
    def is_unused(self) -> bool:
        """Whether nothing would be lost with it, and nobody is about to join it."""
        is_empty = self.state is GroupState.EMPTY and not self.pending_ids
        return is_empty and self.offsets.is_empty and not self.appends

    @property
    def all_joined(self) -> bool:
        """Whether nobody is missing: every member has joined, every id has come back."""
        return self.roster.awaiting_count == len(self.roster) and not self.pending_ids

    def accepts_protocols(
        self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
    ) -> bool:
        """Whether a member with these fits the others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and self.roster.all_know_one_of(protocols)

    def begin_generation(self, now_ms: int) -> None:
        """Counts up; a group without members is empty again."""
        self.generation += 1
        if len(self.roster):
            self.protocol_name = self.roster.select_protocol()
            self.move_to(GroupState.COMPLETING, now_ms)
        else:
            self.protocol_name = None
            self.move_to(GroupState.EMPTY, now_ms)
        self.pending_syncs.clear()
        self.find_subscribed_topics()

    def find_subscribed_topics(self) -> None:
        """What this generation's members subscribe to."""
        self.subscribed_topics = None
        if self.protocol_type == CONSUMER:
            protocol = self.protocol_name or ""
            self.subscribed_topics = all_subscribed_topics(
                member.metadata(protocol) for member in self.roster.members.values()
            )

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read the topic, or may."""
        return self.subscribed_topics is None or topic in self.subscribed_topics
