from pyrklog.handlers.context import Context
from pyrklog.protocol.errors import ApiError, ErrorCode
from pyrklog.protocol.producer_ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pyrklog.transactions.messages import InitRequest, ProducerEpoch

FENCED_SINCE = 4
"""The first version whose clients know PRODUCER_FENCED (KIP-588)."""


async def init_producer_id(
    context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Without a transactional id: a new producer id with epoch 0, whatever the producer had before;
    the client restarts its sequences. With one, its coordinator raises the epoch."""
    if request.transactional_id is not None and not request.transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
    no_id = request.producer_id == NO_PRODUCER_ID
    no_epoch = request.producer_epoch == NO_PRODUCER_EPOCH
    if no_id != no_epoch:
        raise ApiError(ErrorCode.INVALID_REQUEST, "A producer id and its epoch go together.")
    if request.transactional_id is None:
        producer_id = await context.service.next_producer_id()
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    known = None if no_id else ProducerEpoch(request.producer_id, request.producer_epoch)
    result = await context.transactions.coordinator.init_producer_id(
        InitRequest(
            request.transactional_id,
            request.transaction_timeout_ms,
            known,
            context.session.host,
        )
    )
    error = result.error
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(
        error_code=error, producer_id=result.producer_id, producer_epoch=result.epoch
    )
