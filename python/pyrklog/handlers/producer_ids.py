from pyrklog.handlers.context import Context
from pyrklog.handlers.transactions import refusal
from pyrklog.protocol.errors import ApiError, ErrorCode
from pyrklog.protocol.producer_ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)


async def init_producer_id(
    context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A new producer id with epoch 0, whatever the producer had before.

    Kafka does the same without a transactional id: the client restarts its sequences. A
    transactional id gets an error that no client retries, since this broker does not coordinate
    transactions.
    """
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
        raise refusal(context, request.transactional_id)
    no_id = request.producer_id == NO_PRODUCER_ID
    no_epoch = request.producer_epoch == NO_PRODUCER_EPOCH
    if no_id != no_epoch:
        raise ApiError(ErrorCode.INVALID_REQUEST, "A producer id and its epoch go together.")
    producer_id = await context.service.next_producer_id()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
