"""Invariants of a group's state, checked after every transition.

A check costs as much as its transition. Heartbeats and commits change neither members nor state:
nothing is checked. A JoinGroup checks its member. A change of state visits all members anyway and
checks everything.
"""

from __future__ import annotations

from collections import Counter

from pyrklog.groups.group import Group
from pyrklog.groups.member import Member
from pyrklog.groups.states import GroupState

_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING
_COMPLETING = GroupState.COMPLETING
_DEAD = GroupState.DEAD
_HAS_PROTOCOL = (_COMPLETING, GroupState.STABLE)
_JOINS_WAIT = (_PREPARING, GroupState.STABLE)


class InvariantError(Exception):
    """A group's state contradicts itself: a bug. The driver sets the group aside."""


def check(group: Group) -> None:
    """Checks changes since the last check. Raises :class:`InvariantError`."""
    if group.state is not group.checked_state:
        check_whole(group)
        return
    members = group.members
    touched_ids = members.touched_ids
    if touched_ids:
        members.touched_ids = set()
        if group.state is not _DEAD:
            problem = _count_problem(group) or _id_problem(group, touched_ids)
            if problem is not None:
                raise _error(group, problem)


def check_whole(group: Group) -> None:
    """Checks everything. Raises :class:`InvariantError`.

    A dead group passes: it keeps its members.
    """
    group.members.touched_ids = set()
    group.checked_state = group.state
    if group.state is not _DEAD:
        problem = _count_problem(group) or _whole_problem(group)
        if problem is not None:
            raise _error(group, problem)
        group.checked_generation = group.generation


def _error(group: Group, problem: str) -> InvariantError:
    state = f"{group.state.value}, generation {group.generation}, {len(group.members)} members"
    return InvariantError(f"group {group.group_id!r} ({state}): {problem}")


def _count_problem(group: Group) -> str | None:
    """Checks whose cost is independent of the number of members."""
    members, state, memory = group.members, group.state, group.memory
    count = len(members)
    if count == 0:
        if members.leader_id is not None:
            return "it has a leader, but no members"
        if state in _HAS_PROTOCOL:
            return "it has no members"
    elif members.leader_id not in members:
        return "its leader is not a member"
    elif state is _EMPTY:
        return "it has members"
    if not 0 <= members.awaiting_count <= count:
        return "the number of parked JoinGroups is out of range"
    if group.generation < group.checked_generation:
        return f"the generation fell from {group.checked_generation}"
    if state is _PREPARING:
        if group.pending_syncs:
            return "it awaits SyncGroups"
    else:
        if state in _HAS_PROTOCOL:
            if members.protocol_counts[group.protocol_name or ""] != count:
                return "not all members support the chosen protocol"
        elif group.pending_syncs:
            return "it awaits SyncGroups"
        if group.initial_delay is not None:
            return "its initial delay runs"
    if not 0 <= memory.reserved_bytes <= memory.used_bytes:
        return "its reserved memory is out of range"
    return None


def _id_problem(group: Group, member_ids: set[str]) -> str | None:
    members = group.members
    for member_id in member_ids:
        member = members.get(member_id)
        if member is not None:
            problem = _member_problem(group, member_id, member)
            if problem is not None:
                return problem
        elif member_id in group.pending_syncs:
            return f"it awaits a SyncGroup of {member_id}, which is not a member"
    return None


def _whole_problem(group: Group) -> str | None:
    members, pending_ids = group.members, group.pending_ids
    # The others break no rule for a single member: most of a thousand need no call each.
    unusual = [
        (member_id, member)
        for member_id, member in members.items()
        if member.awaiting_join is not None
        or member.awaiting_sync is not None
        or member.instance_id is not None
        or member.member_id != member_id
        or member_id in pending_ids
    ]
    joins = static = 0
    for member_id, member in unusual:
        problem = _member_problem(group, member_id, member)
        if problem is not None:
            return problem
        joins += member.awaiting_join is not None
        static += member.instance_id is not None
    if joins != members.awaiting_count:
        return "the number of parked JoinGroups is miscounted"
    if static != len(members.ids_by_instance):
        return "an instance id has no member"
    names = [name for member in members.values() for name, _ in member.protocols]
    if Counter(names) != members.protocol_counts:
        return "the members of a protocol are miscounted"
    if not group.pending_syncs <= members.keys():
        return "it awaits a SyncGroup of a client that is not a member"
    return None


def _member_problem(group: Group, member_id: str, member: Member) -> str | None:
    if member.member_id != member_id:
        return f"member {member.member_id} is filed as {member_id}"
    if member_id in group.pending_ids:
        return f"member {member_id} is pending as well"
    instance_id = member.instance_id
    if instance_id is not None and group.members.ids_by_instance.get(instance_id) != member_id:
        return f"instance id {instance_id} does not name member {member_id}"
    # A Stable group lets a static member wait until its new id has been written.
    if member.awaiting_join is not None and group.state not in _JOINS_WAIT:
        return f"the JoinGroup of {member_id} waits"
    if member.awaiting_sync is not None and group.state is not _COMPLETING:
        return f"the SyncGroup of {member_id} waits"
    return None
