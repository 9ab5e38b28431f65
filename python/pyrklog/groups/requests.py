"""Handlers' requests as events of groups; questions go to :attr:`GroupRequests.manager`.

Requests and results are in :mod:`.messages`. A request with a ``Pending`` has been acted on when
the call returns, in call order; only its answer may wait, for other members or replication.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyrklog.base.pending import Pending
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.groups.core_types import OffsetCommit
from pyrklog.groups.effects import Effect, Reply
from pyrklog.groups.group_manager import GroupEffects, GroupManager
from pyrklog.groups.machine import GroupMachine
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


def not_served(group_id: str) -> ApiError:
    """The answer for a group that is set aside."""
    return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Group '{group_id}' is set aside.")


class GroupRequests(ABC):
    """Turns requests into events; the driver carries out the effects."""

    def __init__(
        self, manager: GroupManager, wall_ms: Callable[[], int], fresh_id: Callable[[], str]
    ) -> None:
        self.manager = manager
        self._wall_ms = wall_ms
        self._fresh_id = fresh_id

    @abstractmethod
    def _begin(self, group_id: str, event: Callable[[int], GroupEffects]) -> Pending[Any]:
        """Runs an event with a fresh token; its reply answers the returned ``Pending``.

        Raises COORDINATOR_NOT_AVAILABLE if the event fails, which sets the group aside.
        """

    @abstractmethod
    def _do(self, machine: GroupMachine | None, effect: Effect) -> None:
        """Carries out an effect."""

    @abstractmethod
    def _set_aside(self, group_id: str, error: Exception) -> None:
        """Stops serving a group whose rules have failed."""

    @abstractmethod
    def _is_forgetting(self) -> bool:
        """Whether offsets of deleted partitions are still to be removed."""

    @abstractmethod
    def _waits_to_be_forgotten(self, offsets: Iterable[TopicPartition]) -> bool:
        """Whether some of these partitions have the names of such deleted ones."""

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
            refused: Pending[CommitResult] = Pending(lambda: None)
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            refused.answer(CommitResult(dict.fromkeys(request.offsets, code)))
            return refused
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
