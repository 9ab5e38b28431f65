"""Who is in a group: members, instance ids, the leader, and the protocols that all know.

Counters make every question of the hot path cost the same for ten members and for ten thousand.

Invariants: the leader is a member, and there is one whenever there are members; an instance id maps
to a member that bears it; ``awaiting_count`` is the number of members whose JoinGroup is parked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pyrklog.groups.member import Member, distinct, protocols_bytes
from pyrklog.groups.memory import RESERVE_BYTES, GroupMemory, text_bytes
from pyrklog.groups.messages import JoinedMember


class Members(dict[str, Member]):
    """The members of a group, in the order in which they came."""

    def __init__(self, memory: GroupMemory) -> None:
        super().__init__()
        self._memory = memory
        self.leader_id: str | None = None
        self.awaiting_count = 0
        self._by_instance: dict[str, str] = {}
        self._protocol_counts: Counter[str] = Counter()
        self._settled_reserve_bytes = 0
        """What the last assignment left in reserve for each member."""

    def member_of_instance(self, instance_id: str) -> str | None:
        """The id of the static member."""
        return self._by_instance.get(instance_id)

    @property
    def leader(self) -> str:
        """The leader's id; empty without one."""
        return self.leader_id or ""

    def is_leader(self, member_id: str) -> bool:
        """Whether this member assigns."""
        return self.leader_id == member_id

    # --- changes ---------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """A member whose id, and instance id if any, is not in the group. The first one leads."""
        assert member.member_id not in self
        if member.instance_id is not None:
            assert member.instance_id not in self._by_instance
            self._by_instance[member.instance_id] = member.member_id
        member.reserved_bytes = self.reserve_for_one_more
        self[member.member_id] = member
        self._memory.found(member.client_host)
        self._memory.change(member.size_bytes, member.client_host)
        self._memory.reserve(member.reserved_bytes, member.client_host)
        self._count_protocols(member, 1)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """A member that waits for nothing. If it led, the oldest of the others leads. What was
        assigned to it stays in reserve: others will get it."""
        assert member.awaiting_join is None
        assert member.awaiting_sync is None
        del self[member.member_id]
        self._memory.change(-member.size_bytes, member.client_host)
        if member.is_new:
            self._memory.reserve(-member.reserved_bytes, member.client_host)
        self._count_protocols(member, -1)
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Gives a static member another id."""
        assert member.instance_id is not None
        del self[member.member_id]
        if self.leader_id == member.member_id:
            self.leader_id = member_id
        self._memory.change(
            text_bytes(member_id) - text_bytes(member.member_id), member.client_host
        )
        member.member_id = member_id
        self[member_id] = member
        self._by_instance[member.instance_id] = member_id

    def update_member(
        self,
        member: Member,
        protocols: Sequence[tuple[str, bytes]],
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """What a member says when it joins again."""
        self._count_protocols(member, -1)
        before_bytes = protocols_bytes(member.protocols)
        member.protocols = distinct(protocols)
        self._memory.grow(protocols_bytes(member.protocols) - before_bytes, member.client_host)
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    @property
    def reserve_for_one_more(self) -> int:
        """What is set aside for the assignment of a member that comes: as much as each had in the
        last generation, which it may be given of, as far as members that left do not leave it.
        Were it a part of what is in reserve now, that would multiply while most leave and come."""
        each_bytes = max(RESERVE_BYTES, self._settled_reserve_bytes)
        lacking_bytes = each_bytes * (len(self) + 1) - self._memory.reserved_bytes
        return max(0, min(each_bytes, lacking_bytes))

    def take_memory_for(self, assignments: Mapping[str, bytes]) -> bool:
        """Takes the memory for the assignments of all members; False where there is none."""
        by_host: dict[str, int] = {}
        for member in self.values():
            taken = by_host.get(member.client_host, 0)
            by_host[member.client_host] = taken + len(assignments[member.member_id])
        return self._memory.take_assignment(by_host)

    def settle_memory(self, *, anyway: bool = False) -> None:
        """The members have their assignments; ``anyway``: they had them before they came here."""
        by_host: dict[str, tuple[int, int]] = {}
        for member in self.values():
            taken, wanted = by_host.get(member.client_host, (0, 0))
            taken += len(member.assignment)
            by_host[member.client_host] = (taken, wanted + member.wanted_reserve_bytes)
        self._memory.settle(by_host, anyway=anyway)
        self._settled_reserve_bytes = self._memory.reserved_bytes // max(1, len(self))

    def park_join(self, member: Member, token: int) -> int | None:
        """The member's JoinGroup waits; returns the token of an earlier one that it replaces."""
        replaced = member.awaiting_join
        member.awaiting_join = token
        if replaced is None:
            self.awaiting_count += 1
        return replaced

    def take_join(self, member: Member) -> int | None:
        """The member's parked JoinGroup, which is about to be answered."""
        token = member.awaiting_join
        if token is not None:
            member.awaiting_join = None
            self.awaiting_count -= 1
        return token

    def elect_joined_leader(self) -> bool:
        """Makes a member lead that has joined; False where nobody has."""
        leader = self.get(self.leader) if self.leader_id is not None else None
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    # --- protocols -------------------------------------------------------------------------------

    def all_know_one_of(self, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Whether every member knows at least one of these."""
        total = len(self)
        return any(self._protocol_counts[name] == total for name, _ in protocols)

    def select_protocol(self) -> str:
        """The protocol that gets most votes; of several the one that was voted for first."""
        total = len(self)
        candidates = {name for name, count in self._protocol_counts.items() if count == total}
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
        """The longest rebalance time-out of all members, 0 without any."""
        return max((m.rebalance_timeout_ms for m in self.values()), default=0)

    def _count_protocols(self, member: Member, step: int) -> None:
        counts = self._protocol_counts
        for name, _ in member.protocols:
            counts[name] += step
            if not counts[name]:
                del counts[name]
