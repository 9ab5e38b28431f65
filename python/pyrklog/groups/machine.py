"""One group: events in, effects out.

Each method up to the questions is an event and returns its effects in order. One ``Reply`` answers
each request's token, now or later. The driver answers an ``Append`` with
:meth:`GroupMachine.append_finished`, even if the group has died, and a timer's end with
:meth:`GroupMachine.timer_fired`.

``now_ms`` is the wall clock: it stamps commits and states, and decides about expiry. Timers are
delays, so that setting the clock ends no session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Concatenate, ParamSpec

from pyrklog.coordinators.memory_pool import NO_HOST, MemoryPool
from pyrklog.errors import ErrorCode
from pyrklog.groups import committing, invariants, joining, rebalance, removal, sessions, syncing
from pyrklog.groups.core_types import OffsetCommit
from pyrklog.groups.effects import Effect, Timer
from pyrklog.groups.group import Group
from pyrklog.groups.member import Member
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
from pyrklog.groups.states import GroupState
from pyrklog.groups.transition import AppendDone, Transition
from pyrklog.plane.internal_log import AppendResult
from pyrklog.protocol.group_records import NO_TIMESTAMP, GroupValue, MemberValue

Effects = list[Effect]
P = ParamSpec("P")


class GroupMachine:
    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        now_ms: int,
        memory_pool: MemoryPool,
        host: str = NO_HOST,
    ) -> None:
        """``host`` is that of the founding client."""
        self.group = Group(group_id, settings, now_ms, memory_pool, host)
        self.appends: dict[int, AppendDone] = {}
        """The next step after the append of a ticket."""

    def _run(
        self,
        now_ms: int,
        step: Callable[Concatenate[Transition, P], object],
        *args: P.args,
        **options: P.kwargs,
    ) -> Effects:
        """One event. Raises :class:`.invariants.InvariantError`."""
        transition = Transition(self.group, self.appends, now_ms)
        step(transition, *args, **options)
        self.group.count_pending_offsets()
        invariants.check(self.group)
        return transition.effects

    def restore(self, value: GroupValue | None, offsets: GroupOffsets) -> None:
        """Takes the log's contents; only for a new group."""
        group = self.group
        group.offsets = offsets
        group.count_pending_offsets()
        if value is None:
            return
        group.generation = value.generation
        if value.protocol_type:
            group.set_protocol_type(value.protocol_type)
        group.protocol_name = value.protocol
        for member in value.members:
            _restore_member(group, member, value.protocol or "")
        group.members.settle_memory(anyway=True)
        if value.leader is not None and value.leader in group.members:
            group.members.leader_id = value.leader
        if group.members:
            group.state = GroupState.STABLE
        since_ms = value.current_state_timestamp
        group.state_since_ms = None if since_ms == NO_TIMESTAMP else since_ms
        group.find_subscribed_topics()
        group.checked_generation = group.generation
        invariants.check_whole(group)

    def loaded(self, now_ms: int) -> Effects:
        """The group serves: its members' sessions begin."""
        return self._run(now_ms, rebalance.loaded)

    def join(self, request: JoinRequest, token: int, now_ms: int) -> Effects:
        """The reply is a ``JoinResult``."""
        return self._run(now_ms, joining.join, request, token)

    def sync(self, request: SyncRequest, token: int, now_ms: int) -> Effects:
        """The reply is a ``SyncResult``."""
        return self._run(now_ms, syncing.sync, request, token)

    def heartbeat(self, request: MemberHeartbeat, token: int, now_ms: int) -> Effects:
        """The reply is a code, at once."""
        transition = Transition(self.group, self.appends, now_ms)
        sessions.heartbeat(transition, request, token)
        invariants.check(self.group)
        return transition.effects

    def leave(self, members: Sequence[LeavingMember], token: int, now_ms: int) -> Effects:
        """The reply is a ``LeaveResult``, at once."""
        return self._run(now_ms, sessions.leave, members, token)

    def commit(self, request: CommitRequest, token: int, now_ms: int) -> Effects:
        """OffsetCommit and TxnOffsetCommit. The reply is a ``CommitResult``."""
        return self._run(now_ms, committing.commit, request, token)

    def commit_as_member(self, commit: OffsetCommit, now_ms: int) -> Effects | None:
        """OffsetCommit of a member of the current generation; the data plane answers it. None,
        without effects, for other commits: those go to :meth:`commit`."""
        transition = Transition(self.group, self.appends, now_ms)
        is_taken = committing.commit_as_member(transition, commit)
        invariants.check(self.group)
        return transition.effects if is_taken else None

    def delete_offsets(
        self, partitions: Sequence[TopicPartition], token: int, now_ms: int
    ) -> Effects:
        """The reply is a ``DeleteOffsetsResult``."""
        return self._run(now_ms, removal.delete_offsets, partitions, token)

    def delete(self, token: int, now_ms: int) -> Effects:
        """The reply is a code."""
        return self._run(now_ms, removal.delete, token)

    def timer_fired(self, timer: Timer, member_id: str, now_ms: int) -> Effects:
        match timer:
            case Timer.SESSION:
                return self._run(now_ms, sessions.session_over, member_id)
            case Timer.PENDING_MEMBER:
                return self._run(now_ms, sessions.pending_id_over, member_id)
            case Timer.INITIAL_DELAY:
                return self._run(now_ms, rebalance.initial_delay_over)
            case Timer.REBALANCE:
                return self._run(now_ms, rebalance.time_over)
            case Timer.SYNC:
                return self._run(now_ms, syncing.time_over)

    def append_finished(self, ticket: int, result: AppendResult, now_ms: int) -> Effects:
        return self._run(now_ms, self.appends.pop(ticket), result)

    def transaction_completed(self, producer_id: int, *, marker_offset: int, commit: bool) -> None:
        """A transaction's marker has been written to the group's partition."""
        self.group.offsets.complete_transaction(
            producer_id, marker_offset=marker_offset, commit=commit
        )
        self.group.count_pending_offsets()

    def partitions_deleted(self, deleted: Deleted, now_ms: int) -> Effects:
        """Removes the offsets of deleted partitions."""
        return self._run(now_ms, removal.forget_deleted, deleted)

    def expire(self, now_ms: int) -> Effects:
        """Removes expired offsets, then the group if unused."""
        return self._run(now_ms, removal.expire)

    def unload(self, now_ms: int) -> Effects:
        """Another broker coordinates the group."""
        return self._run(now_ms, removal.unload)

    def abandon(self) -> None:
        """The group's rules have failed: from now on it only answers appends."""
        self.group.state = GroupState.DEAD

    def forget_memory(self) -> None:
        """The group has ended or moved."""
        self.group.memory.close()

    @property
    def group_id(self) -> str:
        return self.group.group_id

    @property
    def is_dead(self) -> bool:
        """Running appends are still answered."""
        return self.group.state is GroupState.DEAD

    @property
    def is_unused(self) -> bool:
        """Whether the group has no members, offsets, pending ids or appends."""
        return self.group.is_unused and not self.appends

    def fetch_offsets(
        self, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        """None = all."""
        return committing.fetch(self.group, partitions, require_stable=require_stable)

    def fetch_page(
        self, after: TopicPartition | None, size: int, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        return committing.fetch_page(self.group, after, size, require_stable=require_stable)

    @property
    def committed_count(self) -> int:
        return len(self.group.offsets)

    def overview(self) -> GroupOverview:
        group = self.group
        return GroupOverview(group.group_id, group.protocol_type or "", group.state.value)

    def describe(self) -> GroupDescription:
        """Metadata and assignments only while the group is stable."""
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


def _restore_member(group: Group, value: MemberValue, protocol: str) -> None:
    """The first of several entries of a member counts, as in a damaged record."""
    instance_id = value.group_instance_id
    if value.member_id in group.members or instance_id in group.members.ids_by_instance:
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
