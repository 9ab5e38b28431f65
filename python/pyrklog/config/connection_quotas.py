"""Limits of connections, from the options of a broker and of its listeners (KIP-402, KIP-612).

Kafka's ``ConnectionQuotas``. Rust reads the values by field names (rust/bridge/src/config.rs).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyrklog.config.broker import BrokerConfig
from pyrklog.config.connection_overrides import parse_overrides
from pyrklog.config.option import INT_MAX

PER_IP = "max.connections.per.ip"
OVERRIDES = "max.connections.per.ip.overrides"
MAX = "max.connections"
CREATION_RATE = "max.connection.creation.rate"


class ListenerQuota(NamedTuple):
    """Limits of one listener."""

    name: str
    max: int
    max_per_second: int


class ConnectionQuotas(NamedTuple):
    """Limits of the whole broker, and of its parts."""

    max: int
    max_per_host: int
    max_of_hosts: Sequence[tuple[str, int]]
    """Of hosts with a limit of their own: (name or address, limit)."""
    max_per_second: int
    of_listeners: Sequence[ListenerQuota]


def wrong_with_connections(config: BrokerConfig) -> str | None:
    """Kafka's sentence about options that do not go together, or None."""
    if config.integer(PER_IP) == 0 and not config.string(OVERRIDES):
        return f"{PER_IP} can be set to zero only if {OVERRIDES} property is set."
    return None


def wrong_with_changed_limits(before: BrokerConfig, after: BrokerConfig) -> str | None:
    """Kafka's sentence about a run-time change to 0, after which nobody could connect, or None
    (``ListenerConnectionQuota.validateReconfiguration``).

    Kafka looks at the limits of listeners that exist and whose limits change.
    """
    for endpoint in after.listeners.bound:
        limits = [_limit(after, endpoint.name, name) for name in (MAX, CREATION_RATE)]
        if limits == [_limit(before, endpoint.name, name) for name in (MAX, CREATION_RATE)]:
            continue
        for name, limit in zip((MAX, CREATION_RATE), limits, strict=True):
            if limit <= 0:
                return f"Invalid {name} {limit}"
    return None


def _limit(config: BrokerConfig, listener: str, name: str) -> int:
    own = config.of_listener(listener, name)
    return own if isinstance(own, int) else config.integer(name)


def connection_quotas(config: BrokerConfig) -> ConnectionQuotas:
    per_ip = config.integer(PER_IP)
    if wrong_with_connections(config) is not None:
        # Two changes, each of which was right, leave it: nobody could connect to change it back.
        per_ip = INT_MAX
    of_listeners = []
    for endpoint in config.listeners.bound:
        most = config.of_listener(endpoint.name, MAX)
        rate = config.of_listener(endpoint.name, CREATION_RATE)
        if isinstance(most, int) or isinstance(rate, int):
            of_listeners.append(
                ListenerQuota(
                    endpoint.name,
                    most if isinstance(most, int) else INT_MAX,
                    rate if isinstance(rate, int) else INT_MAX,
                )
            )
    return ConnectionQuotas(
        max=config.integer(MAX),
        max_per_host=per_ip,
        max_of_hosts=parse_overrides(config.string(OVERRIDES) or ""),
        max_per_second=config.integer(CREATION_RATE),
        of_listeners=of_listeners,
    )
