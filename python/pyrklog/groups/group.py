"""The state of one group. What may happen to it: :mod:`.machine` and its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pyrklog.groups.history import History
from pyrklog.groups.memory import (
    NO_HOST,
    PENDING_BYTES,
    TOPIC_BYTES,
    GroupMemory,
    Share,
    text_bytes,
)
from pyrklog.groups.offsets import GroupOffsets
from pyrklog.groups.roster import Roster
from pyrklog.groups.states import TRANSITIONS, GroupState
from pyrklog.groups.subscription import CONSUMER, all_subscribed_topics
from pyrklog.groups.values import (
    GroupSettings,
)
from pyrklog.plane.internal_log import AppendResult

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
        self,
        group_id: str,
        settings: GroupSettings,
        now_ms: int,
        memory: GroupMemory,
        host: str = NO_HOST,
    ) -> None:
        self.share = Share(memory, host, group_id)
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
        self.pending_ids: dict[str, str] = {}
        """Member ids that were handed out and have not come back, and their clients' hosts."""
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not asked for their assignment."""
        self.assigned_generation = 0
        """The last generation whose assignment the leader has handed in."""
        self.subscribed_topics: frozenset[str] | None = None
        """None where unknown: no consumers, metadata that cannot be read, or too many topics for
        the memory that is left."""
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

    def set_protocol_type(self, protocol_type: str) -> None:
        """The first member says what the group is for."""
        self.share.change(self.protocol_type_bytes_more(protocol_type))
        self.protocol_type = protocol_type

    def protocol_type_bytes_more(self, protocol_type: str) -> int:
        """What the group takes more with this one."""
        return text_bytes(protocol_type) - text_bytes(self.protocol_type or "")

    def add_pending_id(self, member_id: str, host: str) -> None:
        """A member id is handed out, and is to come back."""
        self.pending_ids[member_id] = host
        self.share.change(PENDING_BYTES + text_bytes(member_id), host)

    def remove_pending_id(self, member_id: str) -> bool:
        """It is no longer waited for; False where it was not."""
        host = self.pending_ids.pop(member_id, None)
        if host is None:
            return False
        self.share.change(-PENDING_BYTES - text_bytes(member_id), host)
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
            self.roster.settle_memory()
        self.pending_syncs.clear()
        self.find_subscribed_topics()

    def find_subscribed_topics(self) -> None:
        """What this generation's members subscribe to."""
        self._remember_topics(None)
        if self.protocol_type == CONSUMER:
            protocol = self.protocol_name or ""
            topics = all_subscribed_topics(
                member.metadata(protocol) for member in self.roster.members.values()
            )
            if self.share.has_room(_topics_bytes(topics)):
                self._remember_topics(topics)

    def _remember_topics(self, topics: frozenset[str] | None) -> None:
        self.share.change(_topics_bytes(topics) - _topics_bytes(self.subscribed_topics))
        self.subscribed_topics = topics

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read the topic, or may."""
        return self.subscribed_topics is None or topic in self.subscribed_topics


def _topics_bytes(topics: frozenset[str] | None) -> int:
    return sum(TOPIC_BYTES + text_bytes(topic) for topic in topics or ())
