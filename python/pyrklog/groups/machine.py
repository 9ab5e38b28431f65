"""One group: events in, effects out.

Every method but the questions at the end is one event; it returns what is to be done, in order.
Requests come with a token, and each token is answered by exactly one ``Reply``, now or later. An
``Append`` is answered by :meth:`GroupMachine.append_finished`, also when the group has died since;
a timer that ends, by :meth:`GroupMachine.timer_fired`.

``now_ms`` is the wall clock: it stamps commits and states, and decides what has expired. Timers are
told as delays, so that a clock that is set does not end anybody's session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyrklog.errors import ErrorCode
from pyrklog.groups import (
    committing,
    joining,
    rebalance,
    removal,
    sessions,
    syncing,
)
from pyrklog.groups.core_types import OffsetCommit
from pyrklog.groups.effects import Effect, Timer
from pyrklog.groups.group import Group
from pyrklog.groups.member import Member
from pyrklog.groups.memory import NO_HOST, MemoryPool
from pyrklog.groups.messages import (
    CommitRequest,
    FetchedOffset,
    GroupDescription,
    GroupOverview,
    JoinRequest,
    LeavingMember,
    MemberDescription,
    MemberHeartbeat,
    SyncRequest,
    TopicPartition,
)
from pyrklog.groups.offsets import Deleted, GroupOffsets
from pyrklog.groups.options import GroupSettings
from pyrklog.groups.rebalance_history import Rebalance
from pyrklog.groups.states import GroupState
from pyrklog.groups.transition import Transition
from pyrklog.internal_log import (
    AppendResult,
)
from pyrklog.protocol.group_records import NO_TIMESTAMP, GroupValue, MemberValue

Effects = list[Effect]


class GroupMachine:
    """A group and its rules."""

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        now_ms: int,
        memory_pool: MemoryPool,
        host: str = NO_HOST,
    ) -> None:
        """``host`` is that of the client that founds the group."""
        self.group = Group(group_id, settings, now_ms, memory_pool, host)

    # --- loading ---------------------------------------------------------------------------------

    def restore(self, value: GroupValue | None, offsets: GroupOffsets) -> None:
        """Takes in what the log says; only for a group that was just made."""
        group = self.group
        group.offsets = offsets
        if value is None:
            return
        group.generation = value.generation
        if value.protocol_type:
            group.set_protocol_type(value.protocol_type)
        group.protocol_name = value.protocol
        for member in value.members:
            _restore_member(group, member, value.protocol or "")
        group.members.settle_memory(anyway=True)
        if value.leader is not None and group.members.get(value.leader) is not None:
            group.members.leader_id = value.leader
        if len(group.members):
            group.state = GroupState.STABLE
        since_ms = value.current_state_timestamp
        group.state_since_ms = None if since_ms == NO_TIMESTAMP else since_ms
        group.find_subscribed_topics()

    def loaded(self, now_ms: int) -> Effects:
        """The group serves: the sessions of its members begin."""
        transition = self._transition(now_ms)
        group = self.group
        for member in group.members.values():
            transition.refresh_session(member)
        if len(group.members) > group.settings.members_max:
            limit = group.settings.members_max
            rebalance.prepare(transition, f"loaded with more members than group.max.size ({limit})")
        return transition.effects

    # --- requests --------------------------------------------------------------------------------

    def join(self, request: JoinRequest, token: int, now_ms: int) -> Effects:
        """JoinGroup. The reply is a ``JoinResult``."""
        transition = self._transition(now_ms)
        joining.join(transition, request, token)
        return transition.effects

    def sync(self, request: SyncRequest, token: int, now_ms: int) -> Effects:
        """SyncGroup. The reply is a ``SyncResult``."""
        transition = self._transition(now_ms)
        syncing.sync(transition, request, token)
        return transition.effects

    def heartbeat(self, request: MemberHeartbeat, token: int, now_ms: int) -> Effects:
        """Heartbeat. The reply is a code, at once."""
        transition = self._transition(now_ms)
        sessions.heartbeat(transition, request, token)
        return transition.effects

    def leave(self, members: Sequence[LeavingMember], token: int, now_ms: int) -> Effects:
        """LeaveGroup. The reply is a ``LeaveResult``, at once."""
        transition = self._transition(now_ms)
        sessions.leave(transition, members, token)
        return transition.effects

    def commit(self, request: CommitRequest, token: int, now_ms: int) -> Effects:
        """OffsetCommit and TxnOffsetCommit. The reply is a ``CommitResult``."""
        transition = self._transition(now_ms)
        committing.commit(transition, request, token)
        return transition.effects

    def commit_as_member(self, commit: OffsetCommit, now_ms: int) -> Effects | None:
        """OffsetCommit of a member of the current generation, which the data plane answers. None:
        it is not one that can be taken so; ask :meth:`commit`."""
        transition = self._transition(now_ms)
        return transition.effects if committing.commit_as_member(transition, commit) else None

    def delete_offsets(
        self, partitions: Sequence[TopicPartition], token: int, now_ms: int
    ) -> Effects:
        """OffsetDelete. The reply is a ``DeleteOffsetsResult``."""
        transition = self._transition(now_ms)
        committing.delete(transition, partitions, token)
        removal.end_if_unused(transition)
        return transition.effects

    def delete(self, token: int, now_ms: int) -> Effects:
        """DeleteGroups. The reply is a code."""
        transition = self._transition(now_ms)
        removal.delete(transition, token)
        return transition.effects

    # --- other events ----------------------------------------------------------------------------

    def timer_fired(self, timer: Timer, member_id: str, now_ms: int) -> Effects:
        """A timer has ended."""
        transition = self._transition(now_ms)
        match timer:
            case Timer.SESSION:
                sessions.session_over(transition, member_id)
            case Timer.PENDING_MEMBER:
                sessions.pending_id_over(transition, member_id)
            case Timer.INITIAL_DELAY:
                rebalance.initial_delay_over(transition)
            case Timer.REBALANCE:
                rebalance.time_over(transition)
            case Timer.SYNC:
                syncing.time_over(transition)
        return transition.effects

    def append_finished(self, ticket: int, result: AppendResult, now_ms: int) -> Effects:
        """The records of an ``Append`` are safe, or have failed."""
        transition = self._transition(now_ms)
        self.group.appends.pop(ticket)(transition, result)
        return transition.effects

    def transaction_completed(self, producer_id: int, *, commit: bool) -> None:
        """The marker of a transaction has been written to the group's partition."""
        self.group.offsets.complete_transaction(producer_id, commit=commit)

    def partitions_deleted(self, deleted: Deleted, now_ms: int) -> Effects:
        """Topics, or some partitions, are gone, and their offsets with them."""
        transition = self._transition(now_ms)
        committing.forget_deleted(transition, deleted)
        removal.end_if_unused(transition)
        return transition.effects

    def expire(self, now_ms: int) -> Effects:
        """Forgets offsets whose time is over, and then the group if it is not used."""
        transition = self._transition(now_ms)
        committing.expire(transition)
        removal.end_if_unused(transition)
        return transition.effects

    def unload(self, now_ms: int) -> Effects:
        """Another broker coordinates the group."""
        transition = self._transition(now_ms)
        removal.unload(transition)
        return transition.effects

    def abandon(self) -> None:
        """Its rules have failed: it begins nothing more, and answers nobody but appends."""
        self.group.state = GroupState.DEAD

    def forget_memory(self) -> None:
        """The group has ended or is served elsewhere: what it remembers counts no more."""
        self.group.memory.close()

    # --- questions -------------------------------------------------------------------------------

    @property
    def group_id(self) -> str:
        """The group's name."""
        return self.group.group_id

    @property
    def is_dead(self) -> bool:
        """Whether the group has ended; it answers the appends that are under way, no more."""
        return self.group.state is GroupState.DEAD

    @property
    def is_unused(self) -> bool:
        """Whether nothing would be lost with it, and nobody is about to join it."""
        return self.group.is_unused

    def fetch_offsets(
        self, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        """OffsetFetch; None = all."""
        return committing.fetch(self.group, partitions, require_stable=require_stable)

    def fetch_page(
        self, after: TopicPartition | None, size: int, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        """A part of all its committed offsets, those behind this partition."""
        return committing.fetch_page(self.group, after, size, require_stable=require_stable)

    @property
    def committed_count(self) -> int:
        """How many offsets it has committed."""
        return len(self.group.offsets)

    def overview(self) -> GroupOverview:
        """ListGroups."""
        group = self.group
        return GroupOverview(group.group_id, group.protocol_type or "", group.state.value)

    def describe(self) -> GroupDescription:
        """DescribeGroups: metadata and assignments only while the group is stable."""
        group = self.group
        stable = group.state is GroupState.STABLE
        protocol = (group.protocol_name or "") if stable else ""
        members = [
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(protocol) if stable else b"",
                assignment=member.assignment if stable else b"",
            )
            for member in group.members.values()
        ]
        return GroupDescription(
            error=ErrorCode.NONE,
            group_id=group.group_id,
            state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_name=protocol,
            members=members,
        )

    def history(self) -> Sequence[Rebalance]:
        """The last rebalances and their reasons, the oldest first."""
        return self.group.history.entries()

    def _transition(self, now_ms: int) -> Transition:
        return Transition(self.group, now_ms)


def _restore_member(group: Group, value: MemberValue, protocol: str) -> None:
    """Takes in a member; a damaged record may name one twice, and the first counts."""
    instance_id = value.group_instance_id
    if group.members.get(value.member_id) is not None:
        return
    if instance_id is not None and group.members.member_of_instance(instance_id) is not None:
        return
    group.members.add(
        Member(
            value.member_id,
            instance_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            session_timeout_ms=value.session_timeout_ms,
            protocols=[(protocol, value.subscription)],
            assignment=value.assignment,
        )
    )
