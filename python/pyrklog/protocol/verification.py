"""Requests of our own tools, about one broker's own knowledge.

Their keys are far above Kafka's; ApiVersions omits them. A broker that does not serve them
(Apache's) closes the connection.
"""

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import (
    Bool,
    Bytes,
    Int16,
    Int32,
    Int64,
    Message,
    Str,
    UInt32,
    empty_list,
)

NO_OFFSET = -1


class ReplicaDigestRequest(Message):
    """A digest of the whole batches in ``[start_offset, end_offset)`` of the asked broker's
    replica; an empty range asks for its offsets only. The digest ends with the batch that brings it
    to ``max_bytes``."""

    topic: Str
    partition_index: Int32
    start_offset: Int64
    end_offset: Int64
    max_bytes: Int32


class DigestedBatch(Message):
    """``crc`` is the CRC-32C of the bytes found, whatever the batch's own field says."""

    base_offset: Int64
    last_offset: Int64
    leader_epoch: Int32
    crc: UInt32


class ReplicaDigestResponse(Message):
    """``next_offset`` is where to continue: the range's end when the digest covers all of it.

    ``damaged_offset`` is where the first damaged batch begins, -1 for none; a broker that cannot
    find the next batch stops there. ``first`` has the digest's first batch, if any. Below
    ``compacted_end`` the replica is compacted, so that others may have other batches. The digest is
    described in rust/storage/src/replica_digest.rs.
    """

    error_code: Int16 = 0
    leader_epoch: Int32 = -1
    log_start_offset: Int64 = NO_OFFSET
    high_watermark: Int64 = NO_OFFSET
    log_end_offset: Int64 = NO_OFFSET
    next_offset: Int64 = NO_OFFSET
    digest: Int64 = 0
    batch_count: Int64 = 0
    damaged_offset: Int64 = NO_OFFSET
    first: list[DigestedBatch] = empty_list()
    compacted_end: Int64 = NO_OFFSET


class StateChangesRequest(Message):
    """A piece of the broker's state-change log, from a position in bytes: of the current file or
    the ``older`` one."""

    older: Bool
    position: Int64
    max_bytes: Int32


class StateChangesResponse(Message):
    """``data`` is empty at the file's end, and without a file. ``file_id`` tells files apart, since
    the current one may become the older one."""

    error_code: Int16 = 0
    file_id: Int64 = 0
    data: Bytes = b""


REPLICA_DIGEST = Api(
    20_001, ReplicaDigestRequest, ReplicaDigestResponse, versions=(0, 0), flexible_since=0
)

STATE_CHANGES = Api(
    20_002, StateChangesRequest, StateChangesResponse, versions=(0, 0), flexible_since=0
)
