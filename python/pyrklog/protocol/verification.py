"""Requests of our own tools, which Kafka has not: what each broker knows of itself alone.

Their keys lie far above Kafka's, and ApiVersions does not tell of them. A broker that does not
serve them (Apache's) closes the connection.
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
    """A digest of the whole batches in ``[start_offset, end_offset)`` of the replica of the broker
    that is asked; an empty range asks for its offsets only. The batch with which their sizes reach
    ``max_bytes`` is the last one."""

    topic: Str
    partition_index: Int32
    start_offset: Int64
    end_offset: Int64
    max_bytes: Int32


class DigestedBatch(Message):
    """``crc`` is the CRC-32C of the bytes that are there, whatever the batch says of itself."""

    base_offset: Int64
    last_offset: Int64
    leader_epoch: Int32
    crc: UInt32


class ReplicaDigestResponse(Message):
    """``next_offset`` is where to go on: the range's end when all of it is in the digest.

    ``damaged_offset`` is where the first batch that is damaged begins, -1 for none; a broker that
    cannot find the next batch stops there. ``first`` has the first batch of the digest, if there
    is one. The digest is described in rust/storage/src/replica_digest.rs.
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


class StateChangesRequest(Message):
    """A piece of the broker's state-change log: of the file that is written, or of the ``older``
    one, from a position in bytes on."""

    older: Bool
    position: Int64
    max_bytes: Int32


class StateChangesResponse(Message):
    """``data`` is empty at the file's end, and where there is none. ``file_id`` tells files apart:
    the one that was written may be the older one by now."""

    error_code: Int16 = 0
    file_id: Int64 = 0
    data: Bytes = b""


REPLICA_DIGEST = Api(
    20_001,
    "ReplicaDigest",
    ReplicaDigestRequest,
    ReplicaDigestResponse,
    versions=(0, 0),
    flexible_since=0,
)

STATE_CHANGES = Api(
    20_002,
    "StateChanges",
    StateChangesRequest,
    StateChangesResponse,
    versions=(0, 0),
    flexible_since=0,
)
