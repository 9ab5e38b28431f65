from pyrklog.handlers.context import Context
from pyrklog.plane.seam import DigestRange
from pyrklog.protocol.errors import ApiError, ErrorCode
from pyrklog.protocol.verification import (
    DigestedBatch,
    ReplicaDigestRequest,
    ReplicaDigestResponse,
    StateChangesRequest,
    StateChangesResponse,
)

DIGEST_BYTES_MAX = 32 * 2**20
"""Of one request, so that others come in between; asking for more is allowed."""
PIECE_BYTES_MAX = 2**20


async def replica_digest(context: Context, request: ReplicaDigestRequest) -> ReplicaDigestResponse:
    """A digest of this broker's own replica, leader or follower."""
    if request.max_bytes <= 0 or request.start_offset < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    max_bytes = min(request.max_bytes, DIGEST_BYTES_MAX)
    asked = DigestRange(request.start_offset, request.end_offset, max_bytes)
    found = await context.service.replica_digest(request.topic, request.partition_index, asked)
    return ReplicaDigestResponse(
        error_code=found.error,
        leader_epoch=found.leader_epoch,
        log_start_offset=found.log_start_offset,
        high_watermark=found.high_watermark,
        log_end_offset=found.log_end_offset,
        next_offset=found.next_offset,
        digest=found.digest,
        batch_count=found.batches,
        damaged_offset=found.damaged_offset,
        first=[] if found.first is None else [DigestedBatch(*found.first)],
        compacted_end=found.compacted_end,
    )


async def state_changes(context: Context, request: StateChangesRequest) -> StateChangesResponse:
    if request.max_bytes <= 0 or request.position < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    try:
        found = await context.service.state_changes(
            older=request.older,
            position=request.position,
            max_bytes=min(request.max_bytes, PIECE_BYTES_MAX),
        )
    except OSError:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from None
    return StateChangesResponse(file_id=found.file_id, data=found.data)
