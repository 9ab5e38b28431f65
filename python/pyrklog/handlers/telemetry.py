"""Client metrics (KIP-714): GetTelemetrySubscriptions, PushTelemetry, ListClientMetricsResources.

Clients learn codes only: these answers have no messages.
"""

from pyrklog.handlers.context import Context
from pyrklog.protocol.errors import ApiError
from pyrklog.protocol.telemetry import (
    ClientMetricsResource,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    ListClientMetricsResourcesRequest,
    ListClientMetricsResourcesResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from pyrklog.telemetry.client_metrics import ACCEPTED_CODECS, Client, Push


def get_telemetry_subscriptions_now(
    context: Context, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Sums are asked for as they are, not as differences: a push that is lost costs nothing, and a
    client may go on at another broker."""
    client_metrics = context.service.client_metrics
    try:
        granted = client_metrics.subscribe(request.client_instance_id, _client(context))
    except ApiError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=granted.instance_id,
        subscription_id=granted.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=granted.terms.interval_ms,
        telemetry_max_bytes=client_metrics.max_bytes,
        delta_temporality=False,
        requested_metrics=list(granted.terms.metrics),
    )


def push_telemetry_now(context: Context, request: PushTelemetryRequest) -> PushTelemetryResponse:
    push = Push(
        request.client_instance_id,
        request.subscription_id,
        request.terminating,
        request.compression_type,
        request.metrics,
    )
    try:
        context.service.client_metrics.push(push, _client(context))
    except ApiError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()


def list_client_metrics_resources_now(
    context: Context, _request: ListClientMetricsResourcesRequest
) -> ListClientMetricsResourcesResponse:
    names = context.service.client_metrics.resources
    return ListClientMetricsResourcesResponse(
        client_metrics_resources=[ClientMetricsResource(name) for name in names]
    )


def _client(context: Context) -> Client:
    session = context.session
    return Client(
        session.client_id,
        session.software_name,
        session.software_version,
        context.client_host.removeprefix("/"),
        session.port,
    )
