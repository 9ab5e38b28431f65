"""The groups that this broker coordinates. Pure.

A partition is *loading* from this broker's leadership until all groups of its log serve, then
*owned* until the leadership ends. :attr:`GroupManager.groups` has only groups of led partitions, so
that the common case is one look-up. Each event returns the machine that handled it, if any, and its
effects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from pyrklog.coordinators.memory_pool import NO_HOST, MemoryPool, text_bytes
from pyrklog.errors import ErrorCode
from pyrklog.groups.effects import Reply
from pyrklog.groups.loading import LoadedGroup
from pyrklog.groups.machine import Effects, GroupMachine
from pyrklog.groups.memory import GROUP_BYTES
from pyrklog.groups.messages import (
    CommitRequest,
    CommitResult,
    DeleteOffsetsResult,
    FetchedOffset,
    GroupDescription,
    GroupOverview,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    MemberHeartbeat,
    Result,
    SyncRequest,
    SyncResult,
    TopicPartition,
)
from pyrklog.groups.offsets import Deleted
from pyrklog.groups.options import GroupSettings
from pyrklog.groups.partitioner import partition_for
from pyrklog.groups.states import GroupState

SET_ASIDE_MAX = 10_000
"""Most names of groups that are set aside."""
CLASSIC = "classic"
"""The type of every group here (ListGroups v5+)."""


class GroupEffects(NamedTuple):
    """``group`` None: no group handled the event."""

    group: GroupMachine | None
    effects: Effects


class Loaded(NamedTuple):
    """Groups that serve after a load; ``failed``: groups set aside, with reasons; ``elsewhere``:
    groups that are left out, since their hash names another partition."""

    served: list[tuple[GroupMachine, Effects]]
    failed: list[tuple[str, Exception]]
    elsewhere: list[str]


class OwnedPartition(NamedTuple):
    epoch: int
    is_loading: bool


def _host_of(loaded: LoadedGroup) -> str:
    """The leader's host, which pays for a loaded group. Without a leader, the first member's host
    pays later."""
    members = () if loaded.value is None else loaded.value.members
    leaders = (one for one in members if loaded.value and one.member_id == loaded.value.leader)
    return next((one.client_host for one in leaders), NO_HOST)


def _no_group(token: int, result: Result) -> GroupEffects:
    return GroupEffects(None, [Reply(token, result)])


class GroupManager:
    def __init__(
        self,
        settings: GroupSettings,
        partition_count: int,
        assigned: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """``assigned`` gives the partitions that this broker is to lead, opened or not."""
        self.settings = settings
        self.memory_pool = MemoryPool(settings.memory_max_bytes)
        self._assigned = assigned
        self.partition_count = partition_count
        self.groups: dict[str, GroupMachine] = {}
        self._partitions: dict[int, OwnedPartition] = {}
        self._aside: dict[str, None] = {}
        """Groups not served until the next load of their partition, oldest first."""
        self._deleted: dict[int, dict[str, set[int]]] = {}
        """Partitions deleted before a partition of the offsets topic was loaded."""
        self._markers: dict[int, list[tuple[int, int, bool]]] = {}
        """Markers (producer id, offset, commit) written while a partition is loaded."""
        self._in_transaction: dict[int, dict[str, None]] = {}
        """Producer id -> groups that have, or had, offsets of its transaction. The markers clear
        them."""

    def partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self.partition_count)

    def epoch_of(self, group_id: str) -> int | None:
        """The leader epoch in which this broker coordinates the group, if it does."""
        partition = self._partitions.get(self.partition_for(group_id))
        return None if partition is None else partition.epoch

    def partitions(self) -> dict[int, OwnedPartition]:
        return dict(self._partitions)

    def begin_load(self, partition: int, epoch: int) -> bool:
        """False: the log need not be read again."""
        if partition in self._partitions:
            return False
        for name in [name for name in self._aside if self.partition_for(name) == partition]:
            del self._aside[name]
        self._partitions[partition] = OwnedPartition(epoch, is_loading=True)
        return True

    def take_loaded(self, partition: int, groups: Iterable[LoadedGroup], now_ms: int) -> Loaded:
        """Lets some of the log's groups serve, but not those of other partitions, from a time when
        the topic had fewer."""
        done = Loaded([], [], [])
        if not self._is_loading(partition):
            return done
        for loaded in groups:
            if self.partition_for(loaded.group_id) != partition:
                done.elsewhere.append(loaded.group_id)
                continue
            machine = self._create(loaded.group_id, now_ms, _host_of(loaded))
            try:
                machine.restore(loaded.value, loaded.offsets)
                for producer_id in loaded.offsets.transactions.producers:
                    self._note_transaction(producer_id, loaded.group_id)
                effects = machine.loaded(now_ms)
                deleted = self._deleted.get(partition)
                if deleted:
                    effects += machine.partitions_deleted(deleted, now_ms)
            except Exception as error:
                self.set_aside(loaded.group_id)
                done.failed.append((loaded.group_id, error))
            else:
                self._forget_if_dead(machine)
                done.served.append((machine, effects))
        return done

    def finish_load(self, partition: int, groups: Iterable[LoadedGroup], now_ms: int) -> Loaded:
        """Takes the last groups of the log; from now on unknown groups do not exist."""
        done = self.take_loaded(partition, groups, now_ms)
        if self._is_loading(partition):
            known = self._partitions[partition]
            self._partitions[partition] = known._replace(is_loading=False)
            self._deleted.pop(partition, None)
            for marker in self._markers.pop(partition, ()):
                self._complete(partition, *marker)
        return done

    def _is_loading(self, partition: int) -> bool:
        known = self._partitions.get(partition)
        return known is not None and known.is_loading

    def unload(self, partition: int) -> list[GroupMachine]:
        """Returns the served groups; the caller runs their :meth:`.machine.GroupMachine.unload`."""
        if self._partitions.pop(partition, None) is None:
            return []
        self._deleted.pop(partition, None)
        self._markers.pop(partition, None)
        moved = [m for name, m in self.groups.items() if self.partition_for(name) == partition]
        for machine in moved:
            self._forget(machine)
        return moved

    def set_aside(self, group_id: str) -> None:
        """Stops serving a group with unreliable state. Clients retry until the next load of its
        partition."""
        machine = self.groups.get(group_id)
        if machine is not None:
            self._forget(machine)
        self._aside[group_id] = None
        if len(self._aside) > SET_ASIDE_MAX:
            del self._aside[next(iter(self._aside))]

    def note_deleted(self, deleted: Deleted) -> None:
        """Notes deletions for groups still to be loaded; :meth:`partitions_deleted` is for serving
        ones."""
        to_load = {number for number, one in self._partitions.items() if one.is_loading}
        to_load |= set(self._assigned()) - self._partitions.keys()
        for number in to_load:
            noted = self._deleted.setdefault(number, {})
            for topic, partitions in deleted.items():
                noted.setdefault(topic, set()).update(partitions)

    def forget_unassigned(self) -> None:
        """Drops notes for partitions that this broker will not load."""
        kept = self._partitions.keys() | set(self._assigned())
        self._deleted = {number: gone for number, gone in self._deleted.items() if number in kept}

    @property
    def is_loading(self) -> bool:
        """Whether some partition is loading, or about to."""
        reading = any(partition.is_loading for partition in self._partitions.values())
        return reading or any(one not in self._partitions for one in self._assigned())

    def _refusal(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """The error for an unknown group; NONE: this broker coordinates it."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        number = self.partition_for(group_id)
        partition = self._partitions.get(number)
        if partition is None and number not in self._assigned():
            return ErrorCode.NOT_COORDINATOR
        if partition is None or partition.is_loading:
            # A starting broker knows its partitions before it has opened them. NOT_COORDINATOR
            # would be wrong, and librdkafka passes that code on to its user.
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if group_id in self._aside:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def _create(self, group_id: str, now_ms: int, host: str) -> GroupMachine:
        machine = GroupMachine(group_id, self.settings, now_ms, self.memory_pool, host)
        self.groups[group_id] = machine
        return machine

    def _has_room(self, group_id: str, host: str) -> bool:
        """Whether this host's client may found a group of this name."""
        return self.memory_pool.has_room(host, GROUP_BYTES + text_bytes(group_id))

    def _found(
        self, group_id: str, host: str, now_ms: int, event: Callable[[GroupMachine], Effects]
    ) -> GroupEffects:
        """Founds a group with its first event; nothing is left after a refusal."""
        machine = self._create(group_id, now_ms, host)
        effects = event(machine)
        if machine.is_unused:
            self._forget(machine)
        return GroupEffects(machine, effects)

    def _forget_if_dead(self, machine: GroupMachine) -> None:
        if machine.is_dead and self.groups.get(machine.group_id) is machine:
            self._forget(machine)

    def _forget(self, machine: GroupMachine) -> None:
        del self.groups[machine.group_id]
        for producer_id in machine.group.offsets.transactions.producers:
            self._end_transaction(producer_id, machine.group_id)
        machine.forget_memory()

    def join(self, request: JoinRequest, token: int, now_ms: int) -> GroupEffects:
        """JoinGroup; a member without an id may found a group."""
        machine = self.groups.get(request.group_id) if request.group_id else None
        if machine is None:
            error = self._refusal(request.group_id)
            if error is not ErrorCode.NONE:
                return _no_group(token, JoinResult(error, request.member_id))
        settings = self.settings
        timeout_ms = request.session_timeout_ms
        if not settings.session_timeout_min_ms <= timeout_ms <= settings.session_timeout_max_ms:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
            return _no_group(token, JoinResult(error, request.member_id))
        if machine is None:
            if request.member_id:
                error = ErrorCode.UNKNOWN_MEMBER_ID
                return _no_group(token, JoinResult(error, request.member_id))
            if not self._has_room(request.group_id, request.client_host):
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
                return _no_group(token, JoinResult(error, request.member_id))
            founding = partial(GroupMachine.join, request=request, token=token, now_ms=now_ms)
            return self._found(request.group_id, request.client_host, now_ms, founding)
        return GroupEffects(machine, machine.join(request, token, now_ms))

    def sync(self, request: SyncRequest, token: int, now_ms: int) -> GroupEffects:
        """SyncGroup. During a load the member is told to rejoin, without searching another
        coordinator: its generation is lost."""
        machine = self.groups.get(request.group_id) if request.group_id else None
        if machine is not None:
            return GroupEffects(machine, machine.sync(request, token, now_ms))
        error = self._refusal(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        return _no_group(token, SyncResult(error or ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, request: MemberHeartbeat, token: int, now_ms: int) -> GroupEffects:
        """Heartbeat; always NONE during a load."""
        machine = self.groups.get(request.group_id) if request.group_id else None
        if machine is not None:
            return GroupEffects(machine, machine.heartbeat(request, token, now_ms))
        error = self._refusal(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return _no_group(token, ErrorCode.NONE)
        return _no_group(token, error or ErrorCode.UNKNOWN_MEMBER_ID)

    def leave(
        self, group_id: str, members: Sequence[LeavingMember], token: int, now_ms: int
    ) -> GroupEffects:
        machine = self.groups.get(group_id) if group_id else None
        if machine is not None:
            return GroupEffects(machine, machine.leave(members, token, now_ms))
        error = self._refusal(group_id)
        if error is not ErrorCode.NONE:
            return _no_group(token, LeaveResult(error))
        unknown = [(member, ErrorCode.UNKNOWN_MEMBER_ID) for member in members]
        return _no_group(token, LeaveResult(ErrorCode.NONE, unknown))

    def commit(self, request: CommitRequest, token: int, now_ms: int) -> GroupEffects:
        """OffsetCommit and TxnOffsetCommit; a consumer without a generation may found a group."""
        committed = self._commit(request, token, now_ms)
        if request.producer is not None and committed.group is not None:
            self._note_transaction(request.producer.id, request.group_id)
        return committed

    def _commit(self, request: CommitRequest, token: int, now_ms: int) -> GroupEffects:
        machine = self.groups.get(request.group_id)
        if machine is None:
            error = self._refusal(request.group_id, may_be_empty=request.producer is None)
            if error is ErrorCode.NONE and request.generation >= 0 and request.producer is None:
                error = ErrorCode.ILLEGAL_GENERATION
            if not error and not self._has_room(request.group_id, request.client_host):
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if error is not ErrorCode.NONE:
                return _no_group(token, CommitResult(dict.fromkeys(request.offsets, error)))
            founding = partial(GroupMachine.commit, request=request, token=token, now_ms=now_ms)
            return self._found(request.group_id, request.client_host, now_ms, founding)
        return GroupEffects(machine, machine.commit(request, token, now_ms))

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
    ) -> tuple[ErrorCode, dict[TopicPartition, FetchedOffset]]:
        """OffsetFetch; None: all offsets."""
        machine = self.groups.get(group_id)
        if machine is not None:
            found = machine.fetch_offsets(partitions, require_stable=require_stable)
            return ErrorCode.NONE, found
        error = self._refusal(group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error, {}
        return error, dict.fromkeys(partitions or (), FetchedOffset(ErrorCode.NONE))

    def committed_count(self, group_id: str) -> int:
        """0 for an unknown group."""
        machine = self.groups.get(group_id)
        return 0 if machine is None else machine.committed_count

    def fetch_page(
        self, group_id: str, after: TopicPartition | None, size: int, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset] | None:
        """Up to ``size`` offsets after ``after``; None for an unknown group."""
        machine = self.groups.get(group_id)
        if machine is None:
            return None
        return machine.fetch_page(after, size, require_stable=require_stable)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], token: int, now_ms: int
    ) -> GroupEffects:
        machine = self.groups.get(group_id) if group_id else None
        if machine is None:
            error = self._refusal(group_id) or ErrorCode.GROUP_ID_NOT_FOUND
            return _no_group(token, DeleteOffsetsResult(error))
        effects = machine.delete_offsets(partitions, token, now_ms)
        self._forget_if_dead(machine)
        return GroupEffects(machine, effects)

    def transaction_completed(
        self, producer_id: int, partition: int, *, marker_offset: int, commit: bool
    ) -> None:
        """A marker has been written to this partition of ``__consumer_offsets``."""
        if self._is_loading(partition):
            # Groups that are still to come may have been read before the marker was written.
            marker = (producer_id, marker_offset, commit)
            self._markers.setdefault(partition, []).append(marker)
        self._complete(partition, producer_id, marker_offset, commit)

    def _complete(self, partition: int, producer_id: int, marker_offset: int, commit: bool) -> None:
        for name in list(self._in_transaction.get(producer_id, ())):
            if self.partition_for(name) != partition:
                continue
            machine = self.groups.get(name)
            if machine is not None:
                machine.transaction_completed(
                    producer_id, marker_offset=marker_offset, commit=commit
                )
            if machine is None or not machine.group.offsets.transactions.has_producer(producer_id):
                self._end_transaction(producer_id, name)

    def _note_transaction(self, producer_id: int, group_id: str) -> None:
        self._in_transaction.setdefault(producer_id, {})[group_id] = None

    def _end_transaction(self, producer_id: int, group_id: str) -> None:
        groups = self._in_transaction.get(producer_id, {})
        groups.pop(group_id, None)
        if not groups:
            self._in_transaction.pop(producer_id, None)

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> tuple[ErrorCode, list[GroupOverview]]:
        """ListGroups; during a load, an error and the groups known so far."""
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.is_loading else ErrorCode.NONE
        wanted_states = {name.lower() for name in states}
        wanted_types = {name.lower() for name in types}
        if wanted_types and CLASSIC not in wanted_types:
            return error, []
        overviews = [machine.overview() for machine in self.groups.values()]
        return error, [
            item for item in overviews if not wanted_states or item.state.lower() in wanted_states
        ]

    def describe_group(self, group_id: str) -> GroupDescription:
        """DescribeGroups; an unknown group is Dead, without an error."""
        machine = self.groups.get(group_id)
        if machine is not None:
            return machine.describe()
        error = self._refusal(group_id, may_be_empty=True)
        state = "" if error else GroupState.DEAD.value
        return GroupDescription(error, group_id, state)

    def delete_group(self, group_id: str, token: int, now_ms: int) -> GroupEffects:
        machine = self.groups.get(group_id)
        if machine is None:
            error = self._refusal(group_id, may_be_empty=True)
            return _no_group(token, error or ErrorCode.GROUP_ID_NOT_FOUND)
        effects = machine.delete(token, now_ms)
        self._forget_if_dead(machine)
        return GroupEffects(machine, effects)

    def expire(self, group_id: str, now_ms: int) -> GroupEffects:
        """Removes what has expired of a group, or the whole group."""
        return self._tidy(group_id, lambda machine: machine.expire(now_ms))

    def partitions_deleted(self, group_id: str, deleted: Deleted, now_ms: int) -> GroupEffects:
        return self._tidy(group_id, lambda m: m.partitions_deleted(deleted, now_ms))

    def _tidy(self, group_id: str, event: Callable[[GroupMachine], Effects]) -> GroupEffects:
        machine = self.groups.get(group_id)
        if machine is None:
            return GroupEffects(None, [])
        effects = event(machine)
        self._forget_if_dead(machine)
        return GroupEffects(machine, effects)
