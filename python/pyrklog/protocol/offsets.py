"""OffsetCommit, OffsetFetch (several groups: KIP-709), OffsetDelete (KIP-496).

Later: leader epochs (KIP-320), ``require_stable`` (KIP-447).
"""

from typing import Annotated

from pyrklog.protocol.api import NEVER_FLEXIBLE, Api
from pyrklog.protocol.fields import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    Str,
    empty_list,
    nullable,
    since,
    until,
)
from pyrklog.protocol.groups import NO_GENERATION, NO_MEMBER_ID

NO_RETENTION = -1
NO_OFFSET = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1


class OffsetCommitRequestPartition(Message):
    """``committed_metadata`` is the client's own note; ``commit_timestamp`` is not used."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(6)] = NO_LEADER_EPOCH
    commit_timestamp: Annotated[Int64, since(1, until=1)] = NO_TIMESTAMP
    committed_metadata: Str | None = None


class OffsetCommitRequestTopic(Message):
    name: Str
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Message):
    """Generation -1 without a member id: an administrator or a standalone consumer commits."""

    group_id: Str
    generation_id_or_member_epoch: Annotated[Int32, since(1)] = NO_GENERATION
    member_id: Annotated[Str, since(1)] = NO_MEMBER_ID
    group_instance_id: Annotated[Str | None, since(7)] = None
    retention_time_ms: Annotated[Int64, since(2, until=4)] = NO_RETENTION
    topics: list[OffsetCommitRequestTopic] = empty_list()


class OffsetCommitResponsePartition(Message):
    partition_index: Int32
    error_code: Int16


class OffsetCommitResponseTopic(Message):
    name: Str
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(Message):
    """An error of the group is repeated on each partition."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: list[OffsetCommitResponseTopic] = empty_list()


class OffsetFetchRequestTopic(Message):
    name: Str
    partition_indexes: list[Int32]


class OffsetFetchRequestGroup(Message):
    """``topics`` null: all."""

    group_id: Str
    member_id: Annotated[Str | None, since(9)] = None
    member_epoch: Annotated[Int32, since(9)] = -1
    topics: list[OffsetFetchRequestTopic] | None = None


class OffsetFetchRequest(Message):
    """One group before version 8, ``groups`` since."""

    group_id: Annotated[Str, until(7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, until(7), nullable(2)] = empty_list()
    groups: Annotated[list[OffsetFetchRequestGroup], since(8)] = empty_list()
    require_stable: Annotated[Bool, since(7)] = False


class OffsetFetchResponsePartition(Message):
    """``committed_offset`` -1: none."""

    partition_index: Int32
    committed_offset: Int64 = NO_OFFSET
    committed_leader_epoch: Annotated[Int32, since(5)] = NO_LEADER_EPOCH
    metadata: Str | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Message):
    name: Str
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponseGroup(Message):
    group_id: Str
    topics: list[OffsetFetchResponseTopic] = empty_list()
    error_code: Int16 = 0


class OffsetFetchResponse(Message):
    """Version 1 repeats an error of the group on each partition."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], until(7)] = empty_list()
    error_code: Annotated[Int16, since(2, until=7)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], since(8)] = empty_list()


class OffsetDeleteRequestPartition(Message):
    partition_index: Int32


class OffsetDeleteRequestTopic(Message):
    name: Str
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Message):
    group_id: Str
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteResponsePartition(Message):
    partition_index: Int32
    error_code: Int16


class OffsetDeleteResponseTopic(Message):
    name: Str
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(Message):
    """``error_code`` is the group's; no topics with it."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = empty_list()


OFFSET_COMMIT = Api(8, OffsetCommitRequest, OffsetCommitResponse, versions=(0, 9), flexible_since=8)
OFFSET_FETCH = Api(9, OffsetFetchRequest, OffsetFetchResponse, versions=(0, 9), flexible_since=6)
OFFSET_DELETE = Api(
    47, OffsetDeleteRequest, OffsetDeleteResponse, versions=(0, 0), flexible_since=NEVER_FLEXIBLE
)
