"""One event: the group it happens to, when, and the effects so far."""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog.errors import ErrorCode
from pyrklog.groups.group import AppendDone, Group
from pyrklog.groups.member import Member
from pyrklog.groups.table import OffsetCommit
from pyrklog.groups.values import (
    NO_MEMBER_ID,
    Append,
    AppendCommit,
    CancelTimer,
    Effect,
    JoinResult,
    Notice,
    Reply,
    Result,
    SetTimer,
    SyncResult,
    Timer,
)
from pyrklog.plane.internal_log import NewRecord, Producer

GROUP_ITSELF = ""


class Turn:
    """Collects what follows from an event."""

    __slots__ = ("effects", "group", "now_ms")

    def __init__(self, group: Group, now_ms: int) -> None:
        self.group = group
        self.now_ms = now_ms
        self.effects: list[Effect] = []

    def reply(self, token: int, result: Result) -> None:
        """Answers a request."""
        self.effects.append(Reply(token, result))

    def set_timer(self, timer: Timer, delay_ms: int, member_id: str = GROUP_ITSELF) -> None:
        """Starts a timer (anew); a negative delay is none."""
        self.effects.append(SetTimer(timer, member_id, max(0, delay_ms)))

    def cancel_timer(self, timer: Timer, member_id: str = GROUP_ITSELF) -> None:
        """Stops a timer, if it runs."""
        self.effects.append(CancelTimer(timer, member_id))

    def notice(self, event: str, level: str = "info", **fields: object) -> None:
        """Says something to operators."""
        self.effects.append(Notice(event, {"group": self.group.group_id, **fields}, level))

    def append(
        self,
        records: Sequence[NewRecord],
        done: AppendDone,
        producer: Producer | None = None,
    ) -> int:
        """Writes records; ``done`` follows when they are safe or have failed. Returns a ticket."""
        group = self.group
        ticket = group.next_ticket
        group.next_ticket += 1
        group.appends[ticket] = done
        self.effects.append(Append(ticket, records, producer))
        return ticket

    def append_commit(self, commit: OffsetCommit) -> bool:
        """Hands a commit on to the data plane, which answers it when it is over. False, and nothing
        is done, where it has to go another way."""
        group = self.group
        if not group.offsets.stage_commit(group.next_ticket, commit):
            return False
        group.next_ticket += 1
        self.effects.append(AppendCommit(commit))
        return True

    # --- members ---------------------------------------------------------------------------------

    def refresh_session(self, member: Member) -> None:
        """The member lives: its session begins anew."""
        self.set_timer(Timer.SESSION, member.session_timeout_ms, member.member_id)

    def park_join(self, member: Member, token: int) -> None:
        """The member's JoinGroup waits. One that waited before is answered, so that none is lost:
        its client has gone, or asked twice."""
        replaced = self.group.roster.park_join(member, token)
        if replaced is not None:
            self.reply(replaced, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))

    def park_sync(self, member: Member, token: int) -> None:
        """The member's SyncGroup waits; see :meth:`park_join`."""
        if member.awaiting_sync is not None:
            self.reply(member.awaiting_sync, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = token

    def answer_join(self, member: Member, result: JoinResult) -> bool:
        """Answers the member's parked JoinGroup, if there is one."""
        token = self.group.roster.take_join(member)
        if token is not None:
            self.reply(token, result)
        return token is not None

    def answer_sync(self, member: Member, result: SyncResult) -> bool:
        """Answers the member's parked SyncGroup, if there is one."""
        token = member.awaiting_sync
        if token is not None:
            member.awaiting_sync = None
            self.reply(token, result)
        return token is not None

    def remove_member(self, member: Member) -> None:
        """Takes a member out. What it waits for is answered with UNKNOWN_MEMBER_ID, so that it
        joins afresh if it still lives."""
        group = self.group
        self.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID))
        self.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        group.roster.remove(member)
        group.pending_syncs.discard(member.member_id)
        self.cancel_timer(Timer.SESSION, member.member_id)

    def remove_pending_id(self, member_id: str) -> None:
        """A member id that was handed out is no longer waited for."""
        self.group.remove_pending_id(member_id)
        self.cancel_timer(Timer.PENDING_MEMBER, member_id)
