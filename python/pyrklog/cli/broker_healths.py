"""What brokers tell about themselves (BrokerHealth), and the controller about reassignments.

Only our brokers are asked for their health, as another kind logs an error and closes the
connection: an option that only ours have tells them apart.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from pyrklog.base.clock_reading import ClockReading, now_ms
from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.cli.in_parallel import in_parallel
from pyrklog.observability.health_rules import (
    SEVERITIES,
    BrokerState,
    ClusterState,
    Reason,
    told_of,
)
from pyrklog.observability.health_signs import doubled_controllers, peer_clocks
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.health import (
    BROKER_HEALTH,
    NO_BROKER,
    BrokerHealthRequest,
    BrokerHealthResponse,
    HealthReason,
)
from pyrklog.protocol.reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
)

OF_OURS = "pyrklog.data.dir"
RETRY_PAUSE_S = 0.2
_BROKER = 4
"""A resource type."""
_CONFIGS_VERSION = 1


class BrokerHealth(NamedTuple):
    response: BrokerHealthResponse
    clock: ClockReading
    """The broker's, read from here."""

    @property
    def reasons(self) -> list[Reason]:
        return [_reason(one) for one in self.response.reasons]


def ask_health(
    broker: BrokerState, timeout_s: float, request: BrokerHealthRequest
) -> BrokerHealth | None:
    """None for a broker that does not tell: another kind, an older one, one that is silent, or that
    refuses for as long because others ask too much."""
    try:
        with BrokerConnection((broker.host, broker.port), timeout_s) as connection:
            if not is_ours(connection, broker.number):
                return None
            deadline = time.monotonic() + timeout_s
            while True:
                before_ms = now_ms()
                found = connection.ask(BROKER_HEALTH, 0, request)
                clock = ClockReading(before_ms, found.clock_ms, now_ms())
                if found.error_code != ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                    return BrokerHealth(found, clock)
                if time.monotonic() > deadline:
                    return None
                # Others ask it for as much as it answers.
                time.sleep(RETRY_PAUSE_S)
    except (OSError, UnicodeError):
        return None


def is_ours(connection: BrokerConnection, number: int) -> bool:
    """Raises OSError."""
    asked = DescribeConfigsRequest([DescribeConfigsResource(_BROKER, str(number), [OF_OURS])])
    told = connection.ask(DESCRIBE_CONFIGS, _CONFIGS_VERSION, asked)
    return any(entry.name == OF_OURS for one in told.results for entry in one.configs)


def ask_healths(
    state: ClusterState, timeout_s: float, request: BrokerHealthRequest | None = None
) -> dict[int, BrokerHealth]:
    """Of the brokers that tell."""
    answering = [one for one in state.brokers if one.answers]
    asked = request or BrokerHealthRequest()
    found = in_parallel(lambda broker: ask_health(broker, timeout_s, asked), answering)
    return {
        broker.number: health
        for broker, health in zip(answering, found, strict=True)
        if health is not None
    }


def ask_clients(state: ClusterState, timeout_s: float) -> dict[int, BrokerHealthResponse]:
    """Of the brokers that tell which clients they have met."""
    found = ask_healths(state, timeout_s, BrokerHealthRequest(includes_clients=True))
    return {
        number: one.response for number, one in found.items() if one.response.clients is not None
    }


def signs_of(healths: Mapping[int, BrokerHealth]) -> list[Reason]:
    """Findings that need all brokers or are their own."""
    claims = [n for n, one in healths.items() if one.response.controller_id == n]
    own = [reason for _, one in sorted(healths.items()) for reason in told_of(one.reasons)]
    clocks = {number: one.clock for number, one in healths.items()}
    return [*doubled_controllers(claims), *own, *peer_clocks(clocks)]


def away_of(healths: Mapping[int, BrokerHealth]) -> dict[int, float]:
    """For how many seconds brokers have been away: one that started later has seen less."""
    found: dict[int, float] = {}
    for health in healths.values():
        for one in health.response.away or ():
            found[one.broker] = max(found.get(one.broker, 0.0), one.away_ms / 1000)
    return found


def leaving_of(healths: Mapping[int, BrokerHealth]) -> list[int]:
    """Brokers that are ending."""
    return [number for number, one in sorted(healths.items()) if one.response.stage == "ending"]


def with_reassignments(state: ClusterState, timeout_s: float) -> ClusterState:
    """Tells the partitions that are not whole which replicas are being added to them."""
    if all(len(one.isr) >= len(one.replicas) for one in state.partitions):
        return state
    adding = _adding(state, timeout_s)
    if not adding:
        return state
    partitions = [
        replace(one, adding=adding.get((one.topic, one.index), ())) for one in state.partitions
    ]
    return replace(state, partitions=partitions)


def _adding(state: ClusterState, timeout_s: float) -> dict[tuple[str, int], list[int]]:
    for broker in state.brokers:
        if broker.number != state.controller or not broker.answers:
            continue
        try:
            with BrokerConnection((broker.host, broker.port), timeout_s) as connection:
                request = ListPartitionReassignmentsRequest(int(timeout_s * 1000))
                found = connection.ask(LIST_PARTITION_REASSIGNMENTS, 0, request)
        except (OSError, UnicodeError):
            return {}  # Kafka before 2.4 has no such request
        return {
            (topic.name, one.partition_index): one.adding_replicas
            for topic in found.topics
            for one in topic.partitions
        }
    return {}


def _reason(told: HealthReason) -> Reason:
    """A severity of a later version counts as the worst."""
    severity = next((one for one in SEVERITIES if one == told.severity), SEVERITIES[0])
    broker = None if told.broker == NO_BROKER else told.broker
    return Reason(told.kind, severity, told.what, broker, told.partitions, told.fix)
