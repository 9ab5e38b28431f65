"""InitProducerId (KIP-98, KIP-360, KIP-588)."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Int16, Int32, Int64, Message, Str, since

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class InitProducerIdRequest(Message):
    """Without a transactional id: a new id for an idempotent producer."""

    transactional_id: Str | None = None
    transaction_timeout_ms: Int32 = 60_000
    producer_id: Annotated[Int64, since(3)] = NO_PRODUCER_ID
    producer_epoch: Annotated[Int16, since(3)] = NO_PRODUCER_EPOCH


class InitProducerIdResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = NO_PRODUCER_ID
    producer_epoch: Int16 = NO_PRODUCER_EPOCH


INIT_PRODUCER_ID = Api(
    22, InitProducerIdRequest, InitProducerIdResponse, versions=(0, 5), flexible_since=2
)
