"""The requests of :class:`.service.GroupService` as events of the groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyrklog.base.pending import Pending
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.groups.history import Rebalance
from pyrklog.groups.machine import GroupMachine
from pyrklog.groups.registry import Outcome, Registry
from pyrklog.groups.table import OffsetCommit
from pyrklog.groups.values import (
    CommitRequest,
    CommitResult,
    DeleteOffsetsResult,
    Effect,
    FetchedOffset,
    GroupDescription,
    GroupOverview,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    Reply,
    SyncRequest,
    SyncResult,
    TopicPartition,
)

NO_TOKEN = 0
"""The token of a request whose answer is among the effects of its event."""


def not_served(group_id: str) -> ApiError:
    """What is told while a group is set aside."""
    return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Group '{group_id}' is set aside.")


class Requests(ABC):
    """The coordinator's side that is asked; what carries the effects out is the driver's."""

    def __init__(
        self, registry: Registry, wall_ms: Callable[[], int], fresh_id: Callable[[], str]
    ) -> None:
        self.registry = registry
        self._wall_ms = wall_ms
        self._fresh_id = fresh_id

    @abstractmethod
    def _begin(self, group_id: str, event: Callable[[int], Outcome]) -> Pending[Any]:
        """Hands an event with a fresh token in; its reply answers what is returned.

        Raises COORDINATOR_NOT_AVAILABLE where the group fails over it and is set aside.
        """

    @abstractmethod
    def _do(self, machine: GroupMachine | None, effect: Effect) -> None:
        """Carries out what an event leads to."""

    @abstractmethod
    def _set_aside(self, group_id: str, error: Exception) -> None:
        """A group whose rules have failed is served no more; all others go on."""

    def join(self, request: JoinRequest) -> Pending[JoinResult]:
        request = request._replace(fresh_id=self._fresh_id())
        return self._begin(
            request.group_id, lambda token: self.registry.join(request, token, self._wall_ms())
        )

    def sync(self, request: SyncRequest) -> Pending[SyncResult]:
        return self._begin(
            request.group_id, lambda token: self.registry.sync(request, token, self._wall_ms())
        )

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        error = ErrorCode.NONE
        try:
            machine, effects = self.registry.heartbeat(request, NO_TOKEN, self._wall_ms())
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
            group_id,
            lambda token: self.registry.leave(group_id, members, token, self._wall_ms()),
        )

    @abstractmethod
    def _is_forgetting(self) -> bool:
        """Whether offsets of topics that are gone are still to be forgotten."""

    @abstractmethod
    def _waits_to_be_forgotten(self, offsets: Iterable[TopicPartition]) -> bool:
        """Whether some of these are of topics that have such a name by now."""

    def commit(self, request: CommitRequest) -> Pending[CommitResult]:
        if self._waits_to_be_forgotten(request.offsets):
            # They would be forgotten, too. Clients try again at this code.
            refused: Pending[CommitResult] = Pending(lambda: None)
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            refused.answer(CommitResult(dict.fromkeys(request.offsets, code)))
            return refused
        return self._begin(
            request.group_id, lambda token: self.registry.commit(request, token, self._wall_ms())
        )

    def commit_as_member(self, commit: OffsetCommit) -> bool:
        machine = self.registry.groups.get(commit.group_id)
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
        return self._wall_ms()

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
    ) -> tuple[ErrorCode, dict[TopicPartition, FetchedOffset]]:
        return self.registry.fetch_offsets(group_id, partitions, require_stable=require_stable)

    def committed_count(self, group_id: str) -> int:
        return self.registry.committed_count(group_id)

    def fetch_page(
        self, group_id: str, after: TopicPartition | None, size: int, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset] | None:
        return self.registry.fetch_page(group_id, after, size, require_stable=require_stable)

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> DeleteOffsetsResult:
        pending: Pending[DeleteOffsetsResult] = self._begin(
            group_id,
            lambda token: self.registry.delete_offsets(
                group_id, partitions, token, self._wall_ms()
            ),
        )
        return await pending.wait()

    def list_groups(
        self, states: Sequence[str], types: Sequence[str]
    ) -> tuple[ErrorCode, list[GroupOverview]]:
        return self.registry.list_groups(states, types)

    def describe_group(self, group_id: str) -> GroupDescription:
        return self.registry.describe_group(group_id)

    def history(self, group_id: str) -> tuple[ErrorCode, Sequence[Rebalance]]:
        return self.registry.history(group_id)

    async def delete_group(self, group_id: str) -> ErrorCode:
        pending: Pending[ErrorCode] = self._begin(
            group_id, lambda token: self.registry.delete_group(group_id, token, self._wall_ms())
        )
        return await pending.wait()
