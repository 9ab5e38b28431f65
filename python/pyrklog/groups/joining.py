"""JoinGroup of new, pending and known members."""

from __future__ import annotations

from pyrklog.coordinators.memory_pool import text_bytes
from pyrklog.errors import ErrorCode
from pyrklog.groups import fencing, rebalance, static_members
from pyrklog.groups.effects import Timer
from pyrklog.groups.group import Group
from pyrklog.groups.member import Member, distinct, protocols_bytes
from pyrklog.groups.memory import MEMBER_BYTES, PENDING_BYTES
from pyrklog.groups.messages import NO_MEMBER_ID, JoinRequest, JoinResult
from pyrklog.groups.states import GroupState
from pyrklog.groups.transition import Transition

MEMBER_ID_BYTES_MAX = 0x7FFF
"""The longest string of the protocol and of the group's record."""

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Longest wait of a new member: its client has no id yet, and may be gone."""


def join(transition: Transition, request: JoinRequest, token: int) -> None:
    """The next generation answers, unless something is wrong."""
    group = transition.group
    if group.state is GroupState.DEAD:
        result = JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
        transition.reply(token, result)
        return
    if not _has_room(group, request.member_id):
        _turn_away(transition, request, token)
    elif not group.accepts_protocols(request.protocol_type, tuple(request.protocols)):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        transition.reply(token, JoinResult(error, request.member_id))
    elif not _has_memory(group, request):
        # Clients search the coordinator and retry.
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        transition.reply(token, JoinResult(error, request.member_id))
    elif not request.member_id:
        _join_new(transition, request, token)
    else:
        _join_known(transition, request, token)
    rebalance.complete_if_all_joined(transition)


def _has_room(group: Group, member_id: str) -> bool:
    """Whether another member may join. During a rebalance the joined members count: the last ones
    of a too large group are turned away."""
    limit = group.settings.members_max
    member = group.members.get(member_id)
    match group.state:
        case GroupState.EMPTY:
            return True
        case GroupState.PREPARING:
            has_joined = member is not None and member.awaiting_join is not None
            return has_joined or group.members.awaiting_count < limit
        case _:
            return member is not None or len(group.members) < limit


def _has_memory(group: Group, request: JoinRequest) -> bool:
    """Whether the member has memory. A known one may use the group's reserve."""
    known_id = request.member_id
    if not known_id and request.instance_id is not None:
        known_id = group.members.ids_by_instance.get(request.instance_id) or ""
    protocols = protocols_bytes(distinct(request.protocols))
    member = group.members.get(known_id)
    if member is not None:
        more_bytes = protocols - protocols_bytes(member.protocols)
        return group.memory.has_room_to_grow(more_bytes, member.client_host)
    if known_id and known_id not in group.pending_ids:
        return True  # it is refused anyway
    ids = 2 * text_bytes(request.client_id) + 2 * text_bytes(request.instance_id or "")
    more_bytes = MEMBER_BYTES + ids + protocols + group.members.reserve_for_one_more
    more_bytes += group.memory.unfounded_bytes
    if not len(group.members):
        more_bytes += group.protocol_type_bytes_more(request.protocol_type)
    if known_id:
        more_bytes -= PENDING_BYTES + text_bytes(known_id)
    return group.memory.has_room(more_bytes, request.client_host)


def _turn_away(transition: Transition, request: JoinRequest, token: int) -> None:
    member = transition.group.members.get(request.member_id)
    if member is not None:
        transition.remove_member(member)
    elif request.member_id in transition.group.pending_ids:
        transition.remove_pending_id(request.member_id)
    transition.reply(token, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID))


def _join_new(transition: Transition, request: JoinRequest, token: int) -> None:
    group = transition.group
    instance_id = request.instance_id
    prefix = request.client_id if instance_id is None else instance_id
    member_id = f"{prefix}-{request.fresh_id}"
    if len(member_id.encode()) > MEMBER_ID_BYTES_MAX:
        transition.reply(token, JoinResult(ErrorCode.INVALID_REQUEST, NO_MEMBER_ID))
    elif instance_id is not None:
        old_id = group.members.ids_by_instance.get(instance_id)
        if old_id is not None:
            static_members.replace(transition, request, token, old_id, member_id)
        else:
            _add(transition, request, token, member_id)
    elif request.member_id_required:
        # The member counts once its id comes back: a lost answer leaves no member without a client
        # (KIP-394).
        group.add_pending_id(member_id, request.client_host)
        transition.set_timer(Timer.PENDING_MEMBER, request.session_timeout_ms, member_id)
        transition.reply(token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(transition, request, token, member_id)


def _join_known(transition: Transition, request: JoinRequest, token: int) -> None:
    group = transition.group
    member_id = request.member_id
    if member_id in group.pending_ids and request.instance_id is None:
        transition.remove_pending_id(member_id)
        _add(transition, request, token, member_id)
        return
    error = fencing.check_member(group, member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        transition.reply(token, JoinResult(error, member_id))
        return
    member = group.members[member_id]
    reason = _reason_to_rebalance(group, member, request)
    if reason is None:
        # Its answer was lost, or it asks again: the generation continues.
        transition.reply(token, rebalance.current_generation(transition, member))
        return
    group.members.update_member(
        member,
        request.protocols,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
    )
    transition.park_join(member, token)
    rebalance.prepare_if_possible(transition, reason)


def _reason_to_rebalance(group: Group, member: Member, request: JoinRequest) -> str | None:
    client = f"client reason: {request.reason or 'not provided'}"
    if group.state is GroupState.PREPARING:
        return f"member {member.member_id} joins; {client}"
    if group.state is GroupState.STABLE and group.members.is_leader(member.member_id):
        # The leader may know of changes such as more partitions of a topic.
        return f"leader {member.member_id} joins again; {client}"
    if not member.has_exactly(request.protocols):
        return f"member {member.member_id} joins with other metadata; {client}"
    return None


def _add(transition: Transition, request: JoinRequest, token: int, member_id: str) -> None:
    group = transition.group
    member = Member(
        member_id,
        request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
    )
    member.is_new = True
    if not len(group.members):
        group.set_protocol_type(request.protocol_type)
    if group.state is GroupState.PREPARING and group.generation == 0:
        group.member_added_in_delay = True
    group.members.add(member)
    transition.park_join(member, token)
    transition.set_timer(Timer.SESSION, NEW_MEMBER_JOIN_TIMEOUT_MS, member_id)
    kind = "static member" if member.instance_id is not None else "member"
    client = f"client reason: {request.reason or 'not provided'}"
    rebalance.prepare_if_possible(transition, f"new {kind} {member_id}; {client}")
