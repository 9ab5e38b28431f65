"""OffsetCommit, OffsetFetch, OffsetDelete: the offsets that groups keep with the broker.

Leader epochs came with KIP-320, ``require_stable`` with KIP-447, several groups in one fetch with
KIP-709, deletion with KIP-496.
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
NO_LEADER_EPOCH = -1


class OffsetCommitRequestPartition(Message):
    """An offset to keep; ``committed_metadata`` is the client's own note."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(6)] = NO_LEADER_EPOCH
    committed_metadata: Str | None = None


class OffsetCommitRequestTopic(Message):
    """A topic and its partitions."""

    name: Str
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Message):
    """Generation -1 without a member id is an administrator's or a standalone consumer's commit."""

    group_id: Str
    generation_id_or_member_epoch: Int32 = NO_GENERATION
    member_id: Str = NO_MEMBER_ID
    group_instance_id: Annotated[Str | None, since(7)] = None
    retention_time_ms: Annotated[Int64, since(2, until=4)] = NO_RETENTION
    topics: list[OffsetCommitRequestTopic] = empty_list()


class OffsetCommitResponsePartition(Message):
    """What became of one offset."""

    partition_index: Int32
    error_code: Int16


class OffsetCommitResponseTopic(Message):
    """A topic and its partitions."""

    name: Str
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(Message):
    """No error of its own: it is repeated on each partition."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: list[OffsetCommitResponseTopic] = empty_list()


class OffsetFetchRequestTopic(Message):
    """Partitions asked for."""

    name: Str
    partition_indexes: list[Int32]


class OffsetFetchRequestGroup(Message):
    """A group and what is asked of it; null topics = all that it has."""

    group_id: Str
    member_id: Annotated[Str | None, since(9)] = None
    member_epoch: Annotated[Int32, since(9)] = -1
    topics: list[OffsetFetchRequestTopic] | None = None


class OffsetFetchRequest(Message):
    """One group before version 8, ``groups`` from then on."""

    group_id: Annotated[Str, until(7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, until(7), nullable(2)] = empty_list()
    groups: Annotated[list[OffsetFetchRequestGroup], since(8)] = empty_list()
    require_stable: Annotated[Bool, since(7)] = False


class OffsetFetchResponsePartition(Message):
    """A committed offset, -1 where there is none."""

    partition_index: Int32
    committed_offset: Int64 = NO_OFFSET
    committed_leader_epoch: Annotated[Int32, since(5)] = NO_LEADER_EPOCH
    metadata: Str | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Message):
    """A topic and its partitions."""

    name: Str
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponseGroup(Message):
    """The offsets of one group."""

    group_id: Str
    topics: list[OffsetFetchResponseTopic] = empty_list()
    error_code: Int16 = 0


class OffsetFetchResponse(Message):
    """Version 1 has no error of its own: it is repeated on each partition."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], until(7)] = empty_list()
    error_code: Annotated[Int16, since(2, until=7)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], since(8)] = empty_list()


class OffsetDeleteRequestPartition(Message):
    """A partition whose offset shall be forgotten."""

    partition_index: Int32


class OffsetDeleteRequestTopic(Message):
    """A topic and its partitions."""

    name: Str
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Message):
    """Offsets of one group to forget."""

    group_id: Str
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteResponsePartition(Message):
    """What became of one offset."""

    partition_index: Int32
    error_code: Int16


class OffsetDeleteResponseTopic(Message):
    """A topic and its partitions."""

    name: Str
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(Message):
    """``error_code`` is the group's; no topics with it."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = empty_list()


OFFSET_COMMIT = Api(
    8, "OffsetCommit", OffsetCommitRequest, OffsetCommitResponse, versions=(2, 9), flexible_since=8
)
OFFSET_FETCH = Api(
    9, "OffsetFetch", OffsetFetchRequest, OffsetFetchResponse, versions=(1, 9), flexible_since=6
)
OFFSET_DELETE = Api(
    47,
    "OffsetDelete",
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    versions=(0, 0),
    flexible_since=NEVER_FLEXIBLE,
)
