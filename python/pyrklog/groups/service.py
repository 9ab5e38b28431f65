"""What the handlers may ask of the group coordinator: signatures, no logic.

Requests and results are those of :mod:`.values`. What is answered by a ``Pending`` has happened
when the call returns, in the order of the calls; only the answer may have to wait (for other
members, or for replication).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyrklog.base.pending import Pending
from pyrklog.errors import ErrorCode
from pyrklog.groups.history import Rebalance
from pyrklog.groups.interfaces import Endpoint
from pyrklog.groups.table import OffsetCommit
from pyrklog.groups.values import (
    CommitRequest,
    CommitResult,
    DeleteOffsetsResult,
    FetchedOffset,
    GroupDescription,
    GroupOverview,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
    TopicPartition,
)


class GroupService(Protocol):
    """The group coordinator as the handlers see it."""

    async def find(self, group_id: str, listener: str) -> tuple[ErrorCode, Endpoint | None]:
        """The broker that coordinates a group, as advertised on a listener; creates
        ``__consumer_offsets`` where it is missing. COORDINATOR_NOT_AVAILABLE: try again."""

    def join(self, request: JoinRequest) -> Pending[JoinResult]:
        """JoinGroup; ``request.fresh_id`` is filled in here."""

    def sync(self, request: SyncRequest) -> Pending[SyncResult]:
        """SyncGroup."""

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat."""

    def leave(self, group_id: str, members: Sequence[LeavingMember]) -> Pending[LeaveResult]:
        """LeaveGroup."""

    def commit(self, request: CommitRequest) -> Pending[CommitResult]:
        """OffsetCommit, for partitions that exist."""

    def commit_as_member(self, commit: OffsetCommit) -> bool:
        """OffsetCommit of a member of the current generation; the data plane answers it. False: it
        is not one that can be taken so, and :meth:`commit` has to be asked."""

    def now_ms(self) -> int:
        """The wall clock that commits are stamped with."""

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
    ) -> tuple[ErrorCode, dict[TopicPartition, FetchedOffset]]:
        """OffsetFetch of one group; None = all that it has."""

    def committed_count(self, group_id: str) -> int:
        """How many offsets a group has committed, which is what OffsetFetch of all of them
        answers; 0 for a group that is not here."""

    def fetch_page(
        self, group_id: str, after: TopicPartition | None, size: int, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset] | None:
        """Up to ``size`` of all offsets that a group has committed, those behind ``after``; None
        where the group is not here."""

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> DeleteOffsetsResult:
        """OffsetDelete."""

    def list_groups(
        self, states: Sequence[str], types: Sequence[str]
    ) -> tuple[ErrorCode, list[GroupOverview]]:
        """ListGroups; empty filters let everything pass."""

    def describe_group(self, group_id: str) -> GroupDescription:
        """DescribeGroups, one of them."""

    def history(self, group_id: str) -> tuple[ErrorCode, Sequence[Rebalance]]:
        """The last rebalances of a group and their reasons."""

    async def delete_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups, one of them."""
