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
    ending,
    joining,
    liveness,
    rebalance,
    syncing,
)
from pyrklog.groups.group import Group
from pyrklog.groups.history import Rebalance
from pyrklog.groups.member import Member
from pyrklog.groups.memory import NO_HOST, GroupMemory
from pyrklog.groups.offsets import Deleted, GroupOffsets
from pyrklog.groups.states import GroupState
from pyrklog.groups.table import OffsetCommit
from pyrklog.groups.turn import Turn
from pyrklog.groups.values import (
    CommitRequest,
    Effect,
    FetchedOffset,
    GroupDescription,
    GroupOverview,
    GroupSettings,
    HeartbeatRequest,
    JoinRequest,
    LeavingMember,
    MemberDescription,
    SyncRequest,
    Timer,
    TopicPartition,
)
from pyrklog.plane.internal_log import AppendResult
from pyrklog.protocol.group_records import NO_TIMESTAMP, GroupValue, MemberValue

Effects = list[Effect]


class GroupMachine:
    """A group and its rules."""

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        now_ms: int,
        memory: GroupMemory,
        host: str = NO_HOST,
    ) -> None:
        """``memory`` is what all groups share; ``host`` is that of the client that founds it."""
        self.group = Group(group_id, settings, now_ms, memory, host)

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
        group.roster.settle_memory(anyway=True)
        if value.leader is not None and group.roster.get(value.leader) is not None:
            group.roster.leader_id = value.leader
        if len(group.roster):
            group.state = GroupState.STABLE
        since_ms = value.current_state_timestamp
        group.state_since_ms = None if since_ms == NO_TIMESTAMP else since_ms
        group.find_subscribed_topics()

    def loaded(self, now_ms: int) -> Effects:
        """The group serves: the sessions of its members begin."""
        turn = self._turn(now_ms)
        group = self.group
        for member in group.roster.members.values():
            turn.refresh_session(member)
        if len(group.roster) > group.settings.members_max:
            limit = group.settings.members_max
            rebalance.prepare(turn, f"loaded with more members than group.max.size ({limit})")
        return turn.effects

    # --- requests --------------------------------------------------------------------------------

    def join(self, request: JoinRequest, token: int, now_ms: int) -> Effects:
        """JoinGroup. The reply is a ``JoinResult``."""
        turn = self._turn(now_ms)
        joining.join(turn, request, token)
        return turn.effects

    def sync(self, request: SyncRequest, token: int, now_ms: int) -> Effects:
        """SyncGroup. The reply is a ``SyncResult``."""
        turn = self._turn(now_ms)
        syncing.sync(turn, request, token)
        return turn.effects

    def heartbeat(self, request: HeartbeatRequest, token: int, now_ms: int) -> Effects:
        """Heartbeat. The reply is a code, at once."""
        turn = self._turn(now_ms)
        liveness.heartbeat(turn, request, token)
        return turn.effects

    def leave(self, members: Sequence[LeavingMember], token: int, now_ms: int) -> Effects:
        """LeaveGroup. The reply is a ``LeaveResult``, at once."""
        turn = self._turn(now_ms)
        liveness.leave(turn, members, token)
        return turn.effects

    def commit(self, request: CommitRequest, token: int, now_ms: int) -> Effects:
        """OffsetCommit and TxnOffsetCommit. The reply is a ``CommitResult``."""
        turn = self._turn(now_ms)
        committing.commit(turn, request, token)
        return turn.effects

    def commit_as_member(self, commit: OffsetCommit, now_ms: int) -> Effects | None:
        """OffsetCommit of a member of the current generation, which the data plane answers. None:
        it is not one that can be taken so; ask :meth:`commit`."""
        turn = self._turn(now_ms)
        return turn.effects if committing.commit_as_member(turn, commit) else None

    def delete_offsets(
        self, partitions: Sequence[TopicPartition], token: int, now_ms: int
    ) -> Effects:
        """OffsetDelete. The reply is a ``DeleteOffsetsResult``."""
        turn = self._turn(now_ms)
        committing.delete(turn, partitions, token)
        ending.end_if_unused(turn)
        return turn.effects

    def delete(self, token: int, now_ms: int) -> Effects:
        """DeleteGroups. The reply is a code."""
        turn = self._turn(now_ms)
        ending.delete(turn, token)
        return turn.effects

    # --- other events ----------------------------------------------------------------------------

    def timer_fired(self, timer: Timer, member_id: str, now_ms: int) -> Effects:
        """A timer has ended."""
        turn = self._turn(now_ms)
        match timer:
            case Timer.SESSION:
                liveness.session_over(turn, member_id)
            case Timer.PENDING_MEMBER:
                liveness.pending_id_over(turn, member_id)
            case Timer.INITIAL_DELAY:
                rebalance.initial_delay_over(turn)
            case Timer.REBALANCE:
                rebalance.time_over(turn)
            case Timer.SYNC:
                syncing.time_over(turn)
        return turn.effects

    def append_finished(self, ticket: int, result: AppendResult, now_ms: int) -> Effects:
        """The records of an ``Append`` are safe, or have failed."""
        turn = self._turn(now_ms)
        self.group.appends.pop(ticket)(turn, result)
        return turn.effects

    def transaction_completed(self, producer_id: int, *, commit: bool) -> None:
        """The marker of a transaction has been written to the group's partition."""
        self.group.offsets.complete_transaction(producer_id, commit=commit)

    def partitions_deleted(self, deleted: Deleted, now_ms: int) -> Effects:
        """Topics, or some partitions, are gone, and their offsets with them."""
        turn = self._turn(now_ms)
        committing.forget_deleted(turn, deleted)
        ending.end_if_unused(turn)
        return turn.effects

    def expire(self, now_ms: int) -> Effects:
        """Forgets offsets whose time is over, and then the group if it is not used."""
        turn = self._turn(now_ms)
        committing.expire(turn)
        ending.end_if_unused(turn)
        return turn.effects

    def unload(self, now_ms: int) -> Effects:
        """Another broker coordinates the group."""
        turn = self._turn(now_ms)
        ending.unload(turn)
        return turn.effects

    def abandon(self) -> None:
        """Its rules have failed: it begins nothing more, and answers nobody but appends."""
        self.group.state = GroupState.DEAD

    def forget_memory(self) -> None:
        """The group has ended or is served elsewhere: what it remembers counts no more."""
        self.group.share.close()

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
            for member in group.roster.members.values()
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

    def _turn(self, now_ms: int) -> Turn:
        return Turn(self.group, now_ms)


def _restore_member(group: Group, value: MemberValue, protocol: str) -> None:
    """Takes in a member; a damaged record may name one twice, and the first counts."""
    instance_id = value.group_instance_id
    if group.roster.get(value.member_id) is not None:
        return
    if instance_id is not None and group.roster.member_of_instance(instance_id) is not None:
        return
    group.roster.add(
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
