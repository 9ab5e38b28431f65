"""A group's members, instance ids, leader, and common protocols.

Counters keep questions of the hot path independent of the number of members. See
:mod:`.invariants`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pyrklog.coordinators.memory_pool import text_bytes
from pyrklog.groups.member import Member, distinct, protocols_bytes
from pyrklog.groups.memory import RESERVE_BYTES, GroupMemory
from pyrklog.groups.messages import JoinedMember


class Members(dict[str, Member]):
    """By id, in order of arrival; only the methods below change it."""

    def __init__(self, memory: GroupMemory) -> None:
        super().__init__()
        self._memory = memory
        self.leader_id: str | None = None
        self.awaiting_count = 0
        """Members with a parked JoinGroup."""
        self.ids_by_instance: dict[str, str] = {}
        self.protocol_counts: Counter[str] = Counter()
        """How many members support each protocol."""
        self.touched_ids: set[str] = set()
        """Ids of members changed since the last check (:mod:`.invariants`)."""
        self._settled_reserve_bytes = 0
        """Each member's reserve after the last assignment."""

    @property
    def leader(self) -> str:
        """The leader's id, or ""."""
        return self.leader_id or ""

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def add(self, member: Member) -> None:
        """Both ids must be new. The first member leads."""
        assert member.member_id not in self
        if member.instance_id is not None:
            assert member.instance_id not in self.ids_by_instance
            self.ids_by_instance[member.instance_id] = member.member_id
        member.reserved_bytes = self.reserve_for_one_more
        self[member.member_id] = member
        self._memory.found(member.client_host)
        self._memory.change(member.size_bytes, member.client_host)
        self._memory.reserve(member.reserved_bytes, member.client_host)
        self._count_protocols(member, 1)
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.touched_ids.add(member.member_id)

    def remove(self, member: Member) -> None:
        """Requires that no request is parked. The oldest of the others follows a leader. The
        assignment stays in reserve: others will get it."""
        assert member.awaiting_join is None
        assert member.awaiting_sync is None
        del self[member.member_id]
        self._memory.change(-member.size_bytes, member.client_host)
        if member.is_new:
            self._memory.reserve(-member.reserved_bytes, member.client_host)
        self._count_protocols(member, -1)
        if member.instance_id is not None:
            del self.ids_by_instance[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self), None)
        self.touched_ids.add(member.member_id)

    def rename(self, member: Member, member_id: str) -> None:
        assert member.instance_id is not None
        old_id = member.member_id
        del self[old_id]
        if self.leader_id == old_id:
            self.leader_id = member_id
        self._memory.change(text_bytes(member_id) - text_bytes(old_id), member.client_host)
        member.member_id = member_id
        self[member_id] = member
        self.ids_by_instance[member.instance_id] = member_id
        self.touched_ids.update((old_id, member_id))

    def update_member(
        self,
        member: Member,
        protocols: Sequence[tuple[str, bytes]],
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Updates a member that joins again."""
        self._count_protocols(member, -1)
        before_bytes = protocols_bytes(member.protocols)
        member.protocols = distinct(protocols)
        self._memory.grow(protocols_bytes(member.protocols) - before_bytes, member.client_host)
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.touched_ids.add(member.member_id)

    def park_join(self, member: Member, token: int) -> int | None:
        """Returns the token of a replaced JoinGroup."""
        replaced = member.awaiting_join
        member.awaiting_join = token
        self.awaiting_count += replaced is None
        self.touched_ids.add(member.member_id)
        return replaced

    def take_join(self, member: Member) -> int | None:
        """Takes the parked JoinGroup, to answer it."""
        token = member.awaiting_join
        if token is not None:
            member.awaiting_join = None
            self.awaiting_count -= 1
            self.touched_ids.add(member.member_id)
        return token

    def park_sync(self, member: Member, token: int) -> int | None:
        """Returns the token of a replaced SyncGroup."""
        replaced = member.awaiting_sync
        member.awaiting_sync = token
        self.touched_ids.add(member.member_id)
        return replaced

    def take_sync(self, member: Member) -> int | None:
        """Takes the parked SyncGroup, to answer it."""
        token = member.awaiting_sync
        if token is not None:
            member.awaiting_sync = None
            self.touched_ids.add(member.member_id)
        return token

    def elect_joined_leader(self) -> bool:
        """Makes a joined member the leader; False if none has joined."""
        leader = self.get(self.leader)
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    @property
    def reserve_for_one_more(self) -> int:
        """Bytes to reserve for one more member's assignment: each member's share of the last
        generation, less what departed members left. The present reserve is no measure: it would
        multiply when most members leave and come back."""
        each_bytes = max(RESERVE_BYTES, self._settled_reserve_bytes)
        lacking_bytes = each_bytes * (len(self) + 1) - self._memory.reserved_bytes
        return max(0, min(each_bytes, lacking_bytes))

    def take_memory_for(self, assignments: Mapping[str, bytes]) -> bool:
        """Takes the memory for all assignments; False if there is too little."""
        by_host: Counter[str] = Counter()
        for member in self.values():
            by_host[member.client_host] += len(assignments[member.member_id])
        return self._memory.take_assignment(by_host)

    def settle_memory(self, *, anyway: bool = False) -> None:
        """Fits the reserve to the members' assignments; ``anyway``: even without room, since they
        existed before."""
        by_host: dict[str, tuple[int, int]] = {}
        for member in self.values():
            taken, wanted = by_host.get(member.client_host, (0, 0))
            taken += len(member.assignment)
            by_host[member.client_host] = (taken, wanted + member.wanted_reserve_bytes)
        self._memory.settle(by_host, anyway=anyway)
        self._settled_reserve_bytes = self._memory.reserved_bytes // max(1, len(self))

    def all_support_one_of(self, protocols: Sequence[tuple[str, bytes]]) -> bool:
        return any(self.protocol_counts[name] == len(self) for name, _ in protocols)

    def select_protocol(self) -> str:
        """The protocol with the most votes; at a tie, the first voted for."""
        total = len(self)
        candidates = {name for name, count in self.protocol_counts.items() if count == total}
        votes = Counter(member.vote(candidates) for member in self.values())
        return max(votes, key=lambda name: votes[name])

    def joined_members(self, protocol: str) -> list[JoinedMember]:
        """The members with their metadata, for the leader."""
        return [
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self.values()
        ]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of all members; 0 without any."""
        return max((m.rebalance_timeout_ms for m in self.values()), default=0)

    def _count_protocols(self, member: Member, step: int) -> None:
        counts = self.protocol_counts
        for name, _ in member.protocols:
            counts[name] += step
            if not counts[name]:
                del counts[name]
