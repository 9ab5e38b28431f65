"""ListPartitionReassignments."""

from pyrklog.handlers.context import Context
from pyrklog.protocol.errors import ApiError, ErrorCode
from pyrklog.protocol.reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def list_partition_reassignments(
    context: Context, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """What is on the move: nothing, since this broker reassigns no partitions."""
    cluster = context.service.describe_cluster(context.session.listener)
    if cluster.controller_id != context.service.node_id:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    return ListPartitionReassignmentsResponse()


def list_partition_reassignments_error(
    _request: ListPartitionReassignmentsRequest, code: ErrorCode, message: str | None
) -> ListPartitionReassignmentsResponse:
    """No list, and why."""
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message)
