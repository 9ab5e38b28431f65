"""The state of one group; :mod:`.machine` and its steps change it."""

from __future__ import annotations

from typing import NamedTuple

from pyrklog.coordinators.memory_pool import NO_HOST, MemoryPool, text_bytes
from pyrklog.groups.members import Members
from pyrklog.groups.memory import PENDING_BYTES, TOPIC_BYTES, GroupMemory
from pyrklog.groups.offsets import GroupOffsets
from pyrklog.groups.options import GroupSettings
from pyrklog.groups.states import TRANSITIONS, GroupState
from pyrklog.groups.subscription import CONSUMER, all_subscribed_topics

REASON_CHARACTERS_MAX = 512


class InitialDelay(NamedTuple):
    """The wait for the first members: the running part, and the possible rest."""

    running_ms: int
    remaining_ms: int


class Group:
    """Created empty, in generation 0."""

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        now_ms: int,
        memory_pool: MemoryPool,
        host: str = NO_HOST,
    ) -> None:
        self.memory = GroupMemory(memory_pool, host, group_id)
        self.group_id = group_id
        self.settings = settings
        self.state = GroupState.EMPTY
        self.state_since_ms: int | None = now_ms
        """None if an old record does not tell."""
        self.generation = 0
        self.protocol_type: str | None = None
        """None before the first member."""
        self.protocol_name: str | None = None
        self.members = Members(self.memory)
        self.pending_ids: dict[str, str] = {}
        """Given member ids that have not come back, with their clients' hosts."""
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not sent SyncGroup."""
        self.assigned_generation = 0
        """The last generation with the leader's assignment."""
        self.subscribed_topics: frozenset[str] | None = None
        """None if unknown: no consumers, unreadable metadata, or too many topics for the free
        memory."""
        self.initial_delay: InitialDelay | None = None
        self.member_added_in_delay = False
        self.offsets = GroupOffsets()
        self._pending_bytes = 0
        self.rebalance_reason = ""
        self.checked_state = self.state
        self.checked_generation = 0
        """The last checked state and generation (:mod:`.invariants`)."""
        self._next_ticket = 0

    def take_ticket(self) -> int:
        """A number unique among the group's appends and staged commits."""
        self._next_ticket += 1
        return self._next_ticket

    def move_to(self, state: GroupState, now_ms: int) -> None:
        """The only place where the state changes."""
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state = state
        self.state_since_ms = now_ms

    def set_protocol_type(self, protocol_type: str) -> None:
        self.memory.change(self.protocol_type_bytes_more(protocol_type))
        self.protocol_type = protocol_type

    def protocol_type_bytes_more(self, protocol_type: str) -> int:
        """Additional bytes of this protocol type."""
        return text_bytes(protocol_type) - text_bytes(self.protocol_type or "")

    def set_rebalance_reason(self, reason: str) -> None:
        """Keeps the reason for the next generation's record."""
        reason = reason[:REASON_CHARACTERS_MAX]
        self.memory.change(text_bytes(reason) - text_bytes(self.rebalance_reason))
        self.rebalance_reason = reason

    def add_pending_id(self, member_id: str, host: str) -> None:
        self.pending_ids[member_id] = host
        self.memory.change(PENDING_BYTES + text_bytes(member_id), host)
        self.members.touched_ids.add(member_id)

    def remove_pending_id(self, member_id: str) -> bool:
        """False if the group did not wait for it."""
        host = self.pending_ids.pop(member_id, None)
        if host is None:
            return False
        self.memory.change(-PENDING_BYTES - text_bytes(member_id), host)
        return True

    def count_pending_offsets(self) -> None:
        """Counts the offsets of open transactions anew."""
        now_bytes = self.offsets.transactions.used_bytes
        self.memory.change(now_bytes - self._pending_bytes)
        self._pending_bytes = now_bytes

    @property
    def is_unused(self) -> bool:
        """Whether the group has no members, offsets or pending ids."""
        is_empty = self.state is GroupState.EMPTY and not self.pending_ids
        return is_empty and self.offsets.is_empty

    @property
    def all_joined(self) -> bool:
        """Whether all members have joined and all pending ids have come back."""
        return self.members.awaiting_count == len(self.members) and not self.pending_ids

    def accepts_protocols(
        self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
    ) -> bool:
        """Whether a member with these protocols fits the others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and self.members.all_support_one_of(protocols)

    def begin_generation(self, now_ms: int) -> None:
        """A group without members becomes Empty."""
        self.generation += 1
        if len(self.members):
            self.protocol_name = self.members.select_protocol()
            self.move_to(GroupState.COMPLETING, now_ms)
        else:
            self.protocol_name = None
            self.move_to(GroupState.EMPTY, now_ms)
            self.members.settle_memory()
        self.pending_syncs.clear()
        self.find_subscribed_topics()

    def find_subscribed_topics(self) -> None:
        self._remember_topics(None)
        if self.protocol_type == CONSUMER:
            protocol = self.protocol_name or ""
            topics = all_subscribed_topics(
                member.metadata(protocol) for member in self.members.values()
            )
            if self.memory.has_room(_topics_bytes(topics)):
                self._remember_topics(topics)

    def _remember_topics(self, topics: frozenset[str] | None) -> None:
        self.memory.change(_topics_bytes(topics) - _topics_bytes(self.subscribed_topics))
        self.subscribed_topics = topics

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members may read the topic."""
        return self.subscribed_topics is None or topic in self.subscribed_topics


def _topics_bytes(topics: frozenset[str] | None) -> int:
    return sum(TOPIC_BYTES + text_bytes(topic) for topic in topics or ())
