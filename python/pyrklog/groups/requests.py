"""Handlers' requests as events of groups; questions go to :attr:`GroupDriver.manager`.

Requests and results are in :mod:`.messages`. A request with a ``Pending`` has been acted on when
the call returns, in call order; only its answer may wait, for other members or replication.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog.base.pending import Pending, answered
from pyrklog.errors import ErrorCode
from pyrklog.groups.core_types import OffsetCommit
from pyrklog.groups.driver import GroupDriver, not_served
from pyrklog.groups.effects import Reply
from pyrklog.groups.messages import (
    CommitRequest,
    CommitResult,
    DeleteOffsetsResult,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    MemberHeartbeat,
    SyncRequest,
    SyncResult,
    TopicPartition,
)

NO_TOKEN = 0
"""For a request answered among its event's effects."""


class GroupCoordinator(GroupDriver):
    """Coordinates the groups whose partitions this broker leads."""

    def join(self, request: JoinRequest) -> Pending[JoinResult]:
        """Fills in ``request.fresh_id``."""
        request = request._replace(fresh_id=self._fresh_id())
        return self._begin(
            request.group_id, lambda token: self.manager.join(request, token, self._wall_ms())
        )

    def sync(self, request: SyncRequest) -> Pending[SyncResult]:
        return self._begin(
            request.group_id, lambda token: self.manager.sync(request, token, self._wall_ms())
        )

    def heartbeat(self, request: MemberHeartbeat) -> ErrorCode:
        error = ErrorCode.NONE
        try:
            machine, effects = self.manager.heartbeat(request, NO_TOKEN, self._wall_ms())
            for effect in effects:
                if isinstance(effect, Reply):
                    assert isinstance(effect.result, ErrorCode)
                    error = effect.result
                else:
                    self._do(machine, effect)
        except Exception as failure:
            self._set_aside(request.group_id, failure)
            raise not_served(request.group_id) from failure
        return error

    def leave(self, group_id: str, members: Sequence[LeavingMember]) -> Pending[LeaveResult]:
        return self._begin(
            group_id, lambda token: self.manager.leave(group_id, members, token, self._wall_ms())
        )

    def commit(self, request: CommitRequest) -> Pending[CommitResult]:
        """OffsetCommit, for existing partitions."""
        if self._waits_to_be_forgotten(request.offsets):
            # These offsets would be removed as well. Clients retry after this code.
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return answered(CommitResult(dict.fromkeys(request.offsets, code)))
        return self._begin(
            request.group_id, lambda token: self.manager.commit(request, token, self._wall_ms())
        )

    def commit_as_member(self, commit: OffsetCommit) -> bool:
        """OffsetCommit of a member of the current generation; the data plane answers it. False for
        others: call :meth:`commit`."""
        machine = self.manager.groups.get(commit.group_id)
        if machine is None or self._is_forgetting():
            return False
        try:
            effects = machine.commit_as_member(commit, self._wall_ms())
            for effect in effects or ():
                self._do(machine, effect)
        except Exception as error:
            self._set_aside(commit.group_id, error)
            raise not_served(commit.group_id) from error
        return effects is not None

    def now_ms(self) -> int:
        """The wall clock of commits."""
        return self._wall_ms()

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> DeleteOffsetsResult:
        pending: Pending[DeleteOffsetsResult] = self._begin(
            group_id,
            lambda token: self.manager.delete_offsets(group_id, partitions, token, self._wall_ms()),
        )
        return await pending.wait()

    async def delete_group(self, group_id: str) -> ErrorCode:
        pending: Pending[ErrorCode] = self._begin(
            group_id, lambda token: self.manager.delete_group(group_id, token, self._wall_ms())
        )
        return await pending.wait()
