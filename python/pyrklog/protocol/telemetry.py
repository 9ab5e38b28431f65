"""GetTelemetrySubscriptions, PushTelemetry, ListClientMetricsResources (KIP-714, KIP-1000)."""

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import (
    NO_UUID,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Message,
    Str,
    Uuid,
    empty_list,
)


class GetTelemetrySubscriptionsRequest(Message):
    """An id of zeros asks for a new one."""

    client_instance_id: Uuid


class GetTelemetrySubscriptionsResponse(Message):
    """``requested_metrics`` are beginnings of names: none = nothing to push, ``*`` = everything."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = NO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = empty_list()
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: list[Str] = empty_list()


class PushTelemetryRequest(Message):
    """``metrics`` is OpenTelemetry's MetricsData, compressed as a whole."""

    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Bool
    compression_type: Int8
    metrics: Bytes


class PushTelemetryResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


class ListClientMetricsResourcesRequest(Message):
    """Empty."""


class ClientMetricsResource(Message):
    name: Str


class ListClientMetricsResourcesResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_metrics_resources: list[ClientMetricsResource] = empty_list()


GET_TELEMETRY_SUBSCRIPTIONS = Api(
    71,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    versions=(0, 0),
    flexible_since=0,
)
PUSH_TELEMETRY = Api(
    72, PushTelemetryRequest, PushTelemetryResponse, versions=(0, 0), flexible_since=0
)
LIST_CLIENT_METRICS_RESOURCES = Api(
    74,
    ListClientMetricsResourcesRequest,
    ListClientMetricsResourcesResponse,
    versions=(0, 0),
    flexible_since=0,
)
