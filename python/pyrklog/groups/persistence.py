"""Groups and offsets as records of ``__consumer_offsets``, and codes of failed appends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyrklog.errors import ErrorCode
from pyrklog.groups.group import Group
from pyrklog.groups.messages import NO_TIMESTAMP, Offset, TopicPartition
from pyrklog.plane.internal_log import NewRecord
from pyrklog.protocol.group_records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)

REASON_HEADER = b"pyrklog.rebalance.reason"
"""Header of a generation's record: why the group rebalanced. Kafka's readers ignore it."""


def group_record(
    group: Group, assignments: Mapping[str, bytes], reason: str | None = None
) -> NewRecord:
    """The group's generation; members missing in ``assignments`` get an empty one. ``reason``: why
    the generation began, in its first record only."""
    protocol = group.protocol_name
    members = [
        MemberValue(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
            subscription=member.metadata(protocol or ""),
            assignment=assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    since_ms = group.state_since_ms
    value = GroupValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=protocol,
        leader=group.members.leader_id,
        current_state_timestamp=NO_TIMESTAMP if since_ms is None else since_ms,
        members=members,
    )
    headers = () if reason is None else ((REASON_HEADER, reason.encode(errors="replace")),)
    key = encode_group_key(GroupKey(group.group_id))
    return NewRecord(key, encode_group_value(value), headers)


def group_tombstone(group_id: str) -> NewRecord:
    return NewRecord(encode_group_key(GroupKey(group_id)), None)


def offset_records(group_id: str, offsets: Mapping[TopicPartition, Offset]) -> list[NewRecord]:
    """In order."""
    return [
        NewRecord(
            encode_offset_key(OffsetKey(group_id, *partition)),
            encode_offset_value(OffsetValue(*value)),
        )
        for partition, value in offsets.items()
    ]


def offset_tombstones(group_id: str, partitions: Iterable[TopicPartition]) -> list[NewRecord]:
    return [NewRecord(encode_offset_key(OffsetKey(group_id, *item)), None) for item in partitions]


_NOT_AVAILABLE = dict.fromkeys(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_MOVED = dict.fromkeys(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ),
    ErrorCode.NOT_COORDINATOR,
)
_TOO_LARGE = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_FETCH_SIZE,
)

_GROUP_ERRORS = {
    **_NOT_AVAILABLE,
    **_MOVED,
    # The partition moves to another log directory just now. Java's members end at this code in a
    # SyncGroup response.
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
}
_COMMIT_ERRORS = {
    **_NOT_AVAILABLE,
    **_MOVED,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
}


def group_error(error: ErrorCode) -> ErrorCode:
    """The code for a member whose group's record could not be written."""
    return _GROUP_ERRORS.get(error, error)


def commit_error(error: ErrorCode) -> ErrorCode:
    return _COMMIT_ERRORS.get(error, error)
