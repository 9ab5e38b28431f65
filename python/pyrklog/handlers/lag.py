from pyrklog.handlers.context import Context
from pyrklog.protocol.lag import (
    GroupLagRequest,
    GroupLagResponse,
    PartitionOffsetsRequest,
    PartitionOffsetsResponse,
)


async def group_lag(context: Context, request: GroupLagRequest) -> GroupLagResponse:
    return await context.service.group_lag(request, context.session.host)


async def partition_offsets(
    context: Context, request: PartitionOffsetsRequest
) -> PartitionOffsetsResponse:
    return await context.service.partition_offsets(request, context.session.host)
