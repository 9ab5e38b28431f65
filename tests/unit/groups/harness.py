"""Plays events to one group and records replies, timers and appends.

Invariants checked after each event: every token is answered once, every running timer has its
reason, there is one leader, and a stable member owns what the leader gave it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyrklog.coordinators.memory_pool import MemoryPool
from pyrklog.errors import ErrorCode
from pyrklog.groups.effects import Append, CancelTimer, Notice, Reply, SetTimer, Timer
from pyrklog.groups.loading import PartitionLoader
from pyrklog.groups.machine import Effects, GroupMachine
from pyrklog.groups.memory import GROUP_BYTES, PENDING_BYTES, TOPIC_BYTES
from pyrklog.groups.messages import (
    CommitRequest,
    CommitResult,
    JoinRequest,
    JoinResult,
    LeavingMember,
    MemberHeartbeat,
    Offset,
    SyncRequest,
    SyncResult,
    TopicPartition,
)
from pyrklog.groups.options import GroupSettings
from pyrklog.groups.states import GroupState
from pyrklog.plane.internal_log import (
    AppendResult,
    InternalBatch,
    InternalRecord,
    Producer,
)
from pyrklog.testing.fake_transactions import FakeLiveRecords

DEFAULTS = GroupSettings()
RANGE = (("range", b"range-meta"),)
NONE = ErrorCode.NONE


class Play:
    """One group. Appends succeed at once with ``auto_append``, else when a test says so."""

    def __init__(
        self,
        settings: GroupSettings = DEFAULTS,
        *,
        group_id: str = "g",
        auto_append: bool = True,
    ) -> None:
        self.memory = MemoryPool(2**30)
        self.machine = GroupMachine(group_id, settings, 1_000, self.memory)
        self.now_ms = 1_000
        self.auto_append = auto_append
        self.replies: dict[int, Any] = {}
        self.timers: dict[tuple[Timer, str], int] = {}
        self.appends: list[Append] = []
        self.log: list[tuple[int, bytes, bytes | None]] = []
        """Appended records: (offset, key, value)."""
        self.headers: list[dict[bytes, bytes]] = []
        self.notices: list[Notice] = []
        self.asked: set[int] = set()
        self.given: dict[tuple[int, str], bytes] = {}
        """(generation, member) -> the assignment of the leader's accepted SyncGroup."""
        self._token = 0
        self._fresh = 0

    # --- state -----------------------------------------------------------------------------------

    @property
    def group(self) -> Any:
        return self.machine.group

    @property
    def state(self) -> GroupState:
        state: GroupState = self.machine.group.state
        return state

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def generation(self) -> int:
        return self.machine.group.generation

    @property
    def member_ids(self) -> list[str]:
        return list(self.machine.group.members)

    @property
    def reasons(self) -> list[str]:
        """Why each rebalance began."""
        return [str(n.fields["reason"]) for n in self.notices if n.event == "group_rebalancing"]

    def token(self) -> int:
        self._token += 1
        self.asked.add(self._token)
        return self._token

    # --- requests --------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        client: str = "c",
        protocols: Sequence[tuple[str, bytes]] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        reason: str | None = None,
        v4: bool = False,
        v9: bool = False,
    ) -> int:
        self._fresh += 1
        token = self.token()
        request = JoinRequest(
            self.machine.group_id,
            member_id,
            instance,
            client,
            "/10.0.0.1",
            session_ms,
            rebalance_ms,
            protocol_type,
            protocols,
            reason,
            member_id_required=v4 and instance is None,
            can_skip_assignment=v9,
            fresh_id=str(self._fresh),
        )
        self.take(self.machine.join(request, token, self.now_ms))
        return token

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] = {},
        *,
        generation: int | None = None,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        token = self.token()
        request = SyncRequest(
            self.machine.group_id,
            self.generation if generation is None else generation,
            member_id,
            instance,
            protocol_type,
            protocol_name,
            assignments,
        )
        members = self.machine.group.members
        before = len(self.machine.appends)
        effects = self.machine.sync(request, token, self.now_ms)
        if len(self.machine.appends) > before and members.is_leader(member_id):
            for member in members:
                self.given[(request.generation, member)] = assignments.get(member, b"")
        self.take(effects)
        return token

    def heartbeat(
        self, member_id: str, *, generation: int | None = None, instance: str | None = None
    ) -> ErrorCode:
        token = self.token()
        number = self.generation if generation is None else generation
        request = MemberHeartbeat(self.machine.group_id, number, member_id, instance)
        self.take(self.machine.heartbeat(request, token, self.now_ms))
        error: ErrorCode = self.replies[token]
        return error

    def leave(self, *members: LeavingMember | str) -> list[ErrorCode]:
        token = self.token()
        leaving = [m if isinstance(m, LeavingMember) else LeavingMember(m) for m in members]
        self.take(self.machine.leave(leaving, token, self.now_ms))
        result = self.replies[token]
        assert result.error is NONE
        return [error for _, error in result.members]

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | Offset],
        member_id: str = "",
        *,
        generation: int = -1,
        instance: str | None = None,
        producer: Producer | None = None,
    ) -> int:
        token = self.token()
        stamped = {
            key: value if isinstance(value, Offset) else Offset(value, commit_ms=self.now_ms)
            for key, value in offsets.items()
        }
        request = CommitRequest(
            self.machine.group_id, generation, member_id, instance, stamped, producer
        )
        self.take(self.machine.commit(request, token, self.now_ms))
        return token

    def commit_error(self, *args: Any, **kwargs: Any) -> ErrorCode:
        """Commits; returns the one error of all partitions."""
        result = self.replies[self.commit(*args, **kwargs)]
        assert isinstance(result, CommitResult)
        [error] = set(result.errors.values())
        return error

    def committed(self) -> dict[TopicPartition, int]:
        found = self.machine.fetch_offsets(None, require_stable=False)
        return {key: value.offset for key, value in found.items()}

    def joined(self, token: int) -> JoinResult:
        result = self.replies[token]
        assert isinstance(result, JoinResult)
        return result

    def synced(self, token: int) -> SyncResult:
        result = self.replies[token]
        assert isinstance(result, SyncResult)
        return result

    # --- short cuts ------------------------------------------------------------------------------

    def stable(self, count: int = 1, **join: Any) -> list[str]:
        """A stable group of so many members; returns their ids, the leader first."""
        tokens = [self.join(client=f"c{i}", **join) for i in range(count)]
        while self.group.initial_delay is not None:
            self.fire(Timer.INITIAL_DELAY)
        ids = [self.joined(token).member_id for token in tokens]
        self.settle(ids)
        return ids

    def settle(self, ids: Sequence[str]) -> None:
        """All sync; each member is assigned its own id."""
        leader = self.group.members.leader
        for member_id in [*(m for m in ids if m != leader), leader]:
            self.sync(member_id, {m: m.encode() for m in ids} if member_id == leader else {})
        assert self.state is GroupState.STABLE

    # --- other events ----------------------------------------------------------------------------

    def fire(self, timer: Timer, member_id: str = "") -> None:
        self.now_ms = max(self.now_ms, self.timers.pop((timer, member_id)))
        self.take(self.machine.timer_fired(timer, member_id, self.now_ms))

    def finish_append(self, error: ErrorCode = NONE, index: int = 0) -> None:
        append = self.appends.pop(index)
        base = -1
        if error is NONE:
            base = len(self.log)
            self.log += [(base + i, one.key, one.value) for i, one in enumerate(append.records)]
            self.headers += [dict(one.headers) for one in append.records]
        effects = self.machine.append_finished(
            append.ticket, AppendResult(error, base), self.now_ms
        )
        self.take(effects)

    def take(self, effects: Effects) -> None:
        """Carries out effects, then checks the invariants."""
        for effect in effects:
            match effect:
                case Reply(token, result):
                    assert token in self.asked, "an answer to nobody"
                    assert token not in self.replies, "answered twice"
                    self.replies[token] = result
                case SetTimer(timer, member_id, delay_ms):
                    assert delay_ms >= 0
                    self.timers[(timer, member_id)] = self.now_ms + delay_ms
                case CancelTimer(timer, member_id):
                    self.timers.pop((timer, member_id), None)
                case Append():
                    self.appends.append(effect)
                case Notice():
                    self.notices.append(effect)
        self.check()
        while self.auto_append and self.appends:
            self.finish_append()

    def reloaded(self) -> Play:
        """The same group as another broker loads it from the log."""
        other = Play(self.machine.group.settings, group_id=self.machine.group_id)
        records = [InternalRecord(*record) for record in self.log]
        batch = InternalBatch(0, len(records), -1, False, False, records)
        loader = PartitionLoader(FakeLiveRecords([batch], {}, len(records)))
        while loader.take(100):
            pass
        assert not loader.skipped
        for loaded in loader.finish():
            other.machine.restore(loaded.value, loaded.offsets)
        other.log = list(self.log)
        other.take(other.machine.loaded(self.now_ms))
        return other

    # --- what must hold --------------------------------------------------------------------------

    def check(self) -> None:
        group = self.machine.group
        members = group.members
        assert members.leader_id in members if members else members.leader_id is None
        self._check_tokens()
        self._check_timers()
        self._check_memory()
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            assert not members or group.state is GroupState.DEAD
        assert group.pending_syncs <= members.keys()
        assert not (group.pending_ids.keys() & members.keys())
        joins = [m for m in members.values() if m.awaiting_join is not None]
        assert group.members.awaiting_count == len(joins)
        if group.state is GroupState.STABLE:
            for member_id, member in members.items():
                given = self.given.get((group.generation, member_id), member.assignment)
                assert member.assignment == given

    def _check_memory(self) -> None:
        group = self.machine.group
        expected = GROUP_BYTES + sum(m.size_bytes for m in group.members.values())
        expected += len(self.machine.group_id) + len(group.protocol_type or "")
        expected += sum(PENDING_BYTES + len(one) for one in group.pending_ids)
        expected += len(group.rebalance_reason)
        expected += sum(TOPIC_BYTES + len(one) for one in group.subscribed_topics or ())
        expected += group.offsets.transactions.used_bytes
        memory = group.memory
        assert memory.used_bytes == self.memory.used_bytes == expected + memory.reserved_bytes
        assert memory.reserved_bytes >= self._assigned_bytes()
        if group.state is GroupState.EMPTY and not group.pending_ids:
            assert not memory.reserved_bytes

    def _assigned_bytes(self) -> int:
        return sum(len(m.assignment) for m in self.group.members.values())

    def _check_tokens(self) -> None:
        members = self.machine.group.members.values()
        parked = [m.awaiting_join for m in members] + [m.awaiting_sync for m in members]
        waiting = {token for token in parked if token is not None}
        open_tokens = self.asked - self.replies.keys()
        assert waiting <= open_tokens
        # The rest waits for appends, each of which answers at most one request of its own.
        assert len(open_tokens - waiting) <= len(self.machine.appends)

    def _check_timers(self) -> None:
        group = self.machine.group
        members = group.members
        running = self.timers.keys()
        sessions = {m for timer, m in running if timer is Timer.SESSION}
        if group.state is GroupState.DEAD:
            assert not running
            return
        assert sessions <= members.keys()
        for member_id in members.keys() - sessions:
            member = members[member_id]
            assert member.awaiting_join is not None or member.awaiting_sync is not None
        assert {
            m for timer, m in running if timer is Timer.PENDING_MEMBER
        } == group.pending_ids.keys()
        preparing = group.state is GroupState.PREPARING
        delayed = group.initial_delay is not None
        assert ((Timer.INITIAL_DELAY, "") in running) == delayed
        assert ((Timer.REBALANCE, "") in running) == (preparing and not delayed)
        assert ((Timer.SYNC, "") in running) == bool(group.pending_syncs)
        assert preparing or not delayed
