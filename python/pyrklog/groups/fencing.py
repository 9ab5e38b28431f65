"""Checks a request's member id, instance id and generation."""

from __future__ import annotations

from pyrklog.errors import ErrorCode
from pyrklog.groups.group import Group


def check_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """FENCED_INSTANCE_ID if another member has taken over the instance id (KIP-345)."""
    if instance_id is not None:
        current = group.members.ids_by_instance.get(instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if group.members.get(member_id) is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def check_generation(
    group: Group, generation: int, member_id: str, instance_id: str | None
) -> ErrorCode:
    """NONE for a member of the current generation."""
    error = check_member(group, member_id, instance_id)
    if error is ErrorCode.NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error
