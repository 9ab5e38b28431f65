from __future__ import annotations

from pyrklog.cluster.requests import (
    NO_TOPIC_ID,
)
from pyrklog.cluster.to_controller import (
    allocated_message,
    alter_partition_request,
    altered_message,
    left_message,
)
from pyrklog.handlers.context import Context
from pyrklog.protocol import to_controller as wire


async def alter_partition(
    context: Context, message: wire.AlterPartitionRequest
) -> wire.AlterPartitionResponse:
    """Other ISRs for partitions that the asking broker leads."""
    ids: dict[str, bytes] = {}

    def id_of(name: str) -> bytes:
        topic = context.service.topic(name)
        return ids.setdefault(name, topic.topic_id if topic is not None else NO_TOPIC_ID)

    request = alter_partition_request(message, context.api_version, id_of)
    response = await context.controller.alter_partitions(request)
    return altered_message(response, ((topic_id, name) for name, topic_id in ids.items()))


async def controlled_shutdown(
    context: Context, message: wire.ControlledShutdownRequest
) -> wire.ControlledShutdownResponse:
    """Others lead the asking broker's partitions."""
    response = await context.controller.shut_down(message.broker_id, message.broker_epoch)
    return left_message(response)


async def allocate_producer_ids(
    context: Context, message: wire.AllocateProducerIdsRequest
) -> wire.AllocateProducerIdsResponse:
    response = await context.controller.allocate_producer_ids(
        message.broker_id, message.broker_epoch
    )
    return allocated_message(response)
