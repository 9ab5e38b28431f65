"""Answers BrokerHealth, within its bounds."""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog import __version__
from pyrklog.base.client_places import NoPlaceError
from pyrklog.base.clock_reading import now_ms
from pyrklog.handlers.client_table import SeenClient
from pyrklog.observability.health_rules import Reason, level_of
from pyrklog.observability.observer import BrokerObserver
from pyrklog.observability.sources import Sources
from pyrklog.protocol.errors import ApiError, ErrorCode
from pyrklog.protocol.health import (
    CLIENTS_MAX,
    NO_BROKER,
    PARTITIONS_MAX,
    REASONS_MAX,
    AwayBroker,
    BrokerHealthRequest,
    BrokerHealthResponse,
    ClientRefusal,
    ClientVersion,
    HealthClient,
    HealthReason,
)

TEXT_MAX = 2000
"""Characters of a sentence; paths may be long."""


async def answer(
    observer: BrokerObserver, sources: Sources, request: BrokerHealthRequest, address: str
) -> BrokerHealthResponse:
    """Raises THROTTLING_QUOTA_EXCEEDED while too many requests wait, of this address or of all."""
    image = sources.metadata.image
    found = BrokerHealthResponse(
        broker=sources.metadata.node_id,
        cluster_id=sources.cluster_id,
        version=__version__,
        stage=sources.stage(),
        controller_id=image.controller_id,
    )
    own = observer.own()
    found.reasons, found.left_out = told(own), _beyond(own)
    restarted = None if request.restarted == NO_BROKER else request.restarted
    if request.includes_cluster or restarted is not None:
        try:
            examined = await observer.examined(restarted, address)
        except NoPlaceError:
            text = "As many requests for health wait already as the broker keeps; come again."
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text) from None
        alive = examined.state.alive
        if restarted is not None and restarted not in alive:
            found.error_code = ErrorCode.BROKER_ID_NOT_REGISTERED
            found.error_message = f"no broker {restarted} is alive"
        elif examined.restart is not None:
            found.restart_level = level_of(examined.restart.reasons)
            found.restart_reasons = told(examined.restart.reasons)
        if request.includes_cluster:
            found.brokers, found.partition_count = alive, len(examined.state.partitions)
            found.cluster_reasons = told(examined.reasons)
            found.left_out += _beyond(examined.reasons)
    away = observer.brokers_away()
    found.away = [AwayBroker(one, round(seconds * 1000)) for one, seconds in away.items()] or None
    if request.includes_clients:
        table = sources.clients
        known = table.clients()
        found.clients = [_client(one) for one in known[:CLIENTS_MAX]]
        found.clients_left_out = table.forgotten + len(known) - len(found.clients)
    found.clock_ms = now_ms()
    return found


def told(reasons: Sequence[Reason]) -> list[HealthReason]:
    """The first ones, which are the worst, and the names of their first partitions."""
    found: list[HealthReason] = []
    room = PARTITIONS_MAX
    for one in reasons[:REASONS_MAX]:
        names = list(one.partitions[:room])
        room -= len(names)
        found.append(
            HealthReason(
                kind=one.kind,
                severity=one.severity,
                what=one.what[:TEXT_MAX],
                broker=NO_BROKER if one.broker is None else one.broker,
                fix=one.fix,
                partition_count=len(one.partitions),
                partitions=names,
            )
        )
    return found


def _client(one: SeenClient) -> HealthClient:
    return HealthClient(
        client_id=one.client_id,
        host=one.host,
        software_name=one.software[0],
        software_version=one.software[1],
        first_seen_ms=one.first_seen_ms,
        last_seen_ms=one.last_seen_ms,
        oldest=[ClientVersion(api, version) for api, version in sorted(one.oldest.items())],
        refused=[ClientRefusal(what, count) for what, count in one.refused.items()],
    )


def _beyond(reasons: Sequence[Reason]) -> int:
    return max(0, len(reasons) - REASONS_MAX)
