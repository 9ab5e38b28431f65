"""DescribeCluster (KIP-700, KIP-919)."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Bool, Int8, Int16, Int32, Message, Str, empty_list, since

NO_CONTROLLER = -1
OPERATIONS_NOT_ASKED = -(2**31)
ENDPOINT_BROKERS = 1
ENDPOINT_CONTROLLERS = 2


class DescribeClusterRequest(Message):
    """``endpoint_type``: 1 brokers, 2 controllers."""

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, since(1)] = ENDPOINT_BROKERS


class DescribeClusterBroker(Message):
    """An endpoint of a live broker, of the listener asked."""

    broker_id: Int32
    host: Str
    port: Int32
    rack: Str | None = None


class DescribeClusterResponse(Message):
    """``cluster_authorized_operations`` is a bit set, or -2^31 if not asked for."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = None
    endpoint_type: Annotated[Int8, since(1)] = ENDPOINT_BROKERS
    cluster_id: Str = ""
    controller_id: Int32 = NO_CONTROLLER
    brokers: list[DescribeClusterBroker] = empty_list()
    cluster_authorized_operations: Int32 = OPERATIONS_NOT_ASKED


DESCRIBE_CLUSTER = Api(
    60, DescribeClusterRequest, DescribeClusterResponse, versions=(0, 1), flexible_since=0
)
