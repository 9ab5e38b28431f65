"""One event: its group, the time, and the effects so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyrklog.errors import ErrorCode
from pyrklog.groups.core_types import OffsetCommit
from pyrklog.groups.effects import (
    Append,
    AppendCommit,
    CancelTimer,
    Effect,
    Notice,
    Reply,
    SetTimer,
    Timer,
)
from pyrklog.groups.group import Group
from pyrklog.groups.member import Member
from pyrklog.groups.messages import NO_MEMBER_ID, JoinResult, Result, SyncResult
from pyrklog.plane.internal_log import AppendResult, NewRecord, Producer

GROUP_ITSELF = ""

AppendDone = Callable[["Transition", AppendResult], None]


class Transition:
    """Collects the effects of an event."""

    __slots__ = ("appends", "effects", "group", "now_ms")

    def __init__(self, group: Group, appends: dict[int, AppendDone], now_ms: int) -> None:
        """``appends``: the next step after the append of a ticket."""
        self.group = group
        self.appends = appends
        self.now_ms = now_ms
        self.effects: list[Effect] = []

    def reply(self, token: int, result: Result) -> None:
        self.effects.append(Reply(token, result))

    def set_timer(self, timer: Timer, delay_ms: int, member_id: str = GROUP_ITSELF) -> None:
        """Starts or restarts a timer; a negative delay counts as 0."""
        self.effects.append(SetTimer(timer, member_id, max(0, delay_ms)))

    def cancel_timer(self, timer: Timer, member_id: str = GROUP_ITSELF) -> None:
        self.effects.append(CancelTimer(timer, member_id))

    def notice(self, event: str, level: str = "info", **fields: object) -> None:
        self.effects.append(Notice(event, {"group": self.group.group_id, **fields}, level))

    def append(
        self,
        records: Sequence[NewRecord],
        done: AppendDone,
        producer: Producer | None = None,
        guard: int | None = None,
    ) -> int:
        """Writes records and returns a ticket; ``done`` runs after success or failure."""
        ticket = self.group.take_ticket()
        self.appends[ticket] = done
        self.effects.append(Append(ticket, records, producer, guard))
        return ticket

    def append_commit(self, commit: OffsetCommit) -> bool:
        """Hands a commit to the data plane, which answers it. False, without effects, if the data
        plane cannot take it."""
        if not self.group.offsets.stage_commit(self.group.take_ticket(), commit):
            return False
        self.effects.append(AppendCommit(commit))
        return True

    def refresh_session(self, member: Member) -> None:
        delay_ms = max(0, member.session_timeout_ms)
        self.effects.append(SetTimer(Timer.SESSION, member.member_id, delay_ms))

    def park_join(self, member: Member, token: int) -> None:
        """Parks the member's JoinGroup; answers the one before: its client has gone, or asked
        twice."""
        replaced = self.group.members.park_join(member, token)
        if replaced is not None:
            self.reply(replaced, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))

    def park_sync(self, member: Member, token: int) -> None:
        """Parks the member's SyncGroup; see :meth:`park_join`."""
        replaced = self.group.members.park_sync(member, token)
        if replaced is not None:
            self.reply(replaced, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))

    def answer_join(self, member: Member, result: JoinResult) -> bool:
        """Answers the member's parked JoinGroup, if any."""
        token = self.group.members.take_join(member)
        if token is not None:
            self.reply(token, result)
        return token is not None

    def answer_sync(self, member: Member, result: SyncResult) -> bool:
        token = self.group.members.take_sync(member)
        if token is not None:
            self.reply(token, result)
        return token is not None

    def remove_member(self, member: Member) -> None:
        """Answers parked requests with UNKNOWN_MEMBER_ID, so that a live client joins afresh."""
        self.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID))
        self.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self.group.members.remove(member)
        self.group.pending_syncs.discard(member.member_id)
        self.cancel_timer(Timer.SESSION, member.member_id)

    def remove_pending_id(self, member_id: str) -> None:
        self.group.remove_pending_id(member_id)
        self.cancel_timer(Timer.PENDING_MEMBER, member_id)
