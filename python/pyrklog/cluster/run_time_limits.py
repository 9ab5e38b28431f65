"""Hands the plane the broker's options that change at run time and are no topic's."""

from __future__ import annotations

import ipaddress
import socket

import trio

from pyrklog.base.logs import get_logger
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.connection_quotas import OVERRIDES, connection_quotas
from pyrklog.config.option import LONG_MAX
from pyrklog.config.settings import from_options
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.seam import CleanerSettings

RESOLVING_SECONDS = 2.0
"""How long a change of options waits for the addresses of hosts."""

WINDOW_MS_MAX = 2**53

log = get_logger("metadata")


async def apply_limits(config: BrokerConfig, plane: Plane) -> None:
    plane.set_replication_rates(
        leader_bytes=_rate(config, "leader.replication.throttled.rate"),
        follower_bytes=_rate(config, "follower.replication.throttled.rate"),
    )
    plane.set_back_fill_rate(config.integer("pyrklog.expansion.rate"))
    plane.set_replication_window_ms(_window_ms(config, "replication.quota.window"))
    plane.set_move_rate(_rate(config, "replica.alter.log.dirs.io.max.bytes.per.second"))
    plane.set_move_window_ms(_window_ms(config, "alter.log.dirs.replication.quota.window"))
    plane.set_io_threads(config.integer("num.io.threads"))
    plane.set_recovery_threads_per_dir(config.integer("num.recovery.threads.per.data.dir"))
    plane.set_producer_id_expiration_ms(config.integer("producer.id.expiration.ms"))
    plane.set_transaction_verification(
        is_on=config.boolean("transaction.partition.verification.enable")
    )
    plane.set_cleaner(from_options(CleanerSettings, config))
    quotas = connection_quotas(config)
    of_hosts = {}
    for host, limit in quotas.max_of_hosts:
        for address in await _addresses(host):
            of_hosts[address] = limit
    plane.set_connection_quotas(quotas._replace(max_of_hosts=list(of_hosts.items())))


async def _addresses(host: str) -> list[str]:
    """All of a host; none, with a log line, where it is unknown."""
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass  # a name
    reason = "no answer from the name service"
    with trio.move_on_after(RESOLVING_SECONDS):
        try:
            found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            reason = str(error)
        else:
            return sorted({str(address[0]) for *_, address in found})
    log.warning("host_not_resolved", option=OVERRIDES, host=host, reason=reason)
    return []


def _window_ms(config: BrokerConfig, window: str) -> int:
    """As Kafka's ``Rate``: the newest sample, which still grows, does not count. ``window`` begins
    the names of the two options."""
    samples = config.integer(f"{window}.num")
    seconds = config.integer(f"{window}.size.seconds")
    return min(max(1, samples - 1) * seconds * 1000, WINDOW_MS_MAX)


def _rate(config: BrokerConfig, name: str) -> int | None:
    """Bytes a second; None at the default, which bounds nothing."""
    rate = config.integer(name)
    return None if rate == LONG_MAX else rate
