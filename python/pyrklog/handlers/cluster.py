"""DescribeCluster."""

from pyrklog.handlers.context import Context
from pyrklog.protocol.cluster import (
    ENDPOINT_BROKERS,
    ENDPOINT_CONTROLLERS,
    NO_CONTROLLER,
    OPERATIONS_NOT_ASKED,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from pyrklog.protocol.errors import ApiError, ErrorCode

CREATE, ALTER, DESCRIBE, CLUSTER_ACTION = 5, 7, 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 10, 11, 12
_OPERATIONS = (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS)
CLUSTER_OPERATIONS = sum(1 << operation for operation in (*_OPERATIONS, IDEMPOTENT_WRITE))
"""All operations on the cluster, as bits (KIP-430); without ACLs, everyone may do all."""


async def describe_cluster(
    context: Context, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Brokers have their endpoints of the listener that was asked."""
    if request.endpoint_type != ENDPOINT_BROKERS:
        raise _wrong_endpoint(request.endpoint_type)
    cluster = context.service.describe_cluster(context.session.listener)
    controller_is_live = any(one.id == cluster.controller_id for one in cluster.brokers)
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id if controller_is_live else NO_CONTROLLER,
        brokers=[
            DescribeClusterBroker(one.id, one.host, one.port, one.rack) for one in cluster.brokers
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else OPERATIONS_NOT_ASKED,
    )


def _wrong_endpoint(endpoint_type: int) -> ApiError:
    if endpoint_type == ENDPOINT_CONTROLLERS:
        return ApiError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This is a broker's endpoint, not a controller's."
        )
    return ApiError(
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Endpoint type {endpoint_type} is unknown."
    )
