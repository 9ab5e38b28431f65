"""How the brokers bear the copies: what a throttle that follows them looks at.

Of pyrklog's brokers only: their findings (BrokerHealth), and how long disks let wait (``/metrics``,
where this machine reaches it). The latency is that of ListOffsets at partitions they lead.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pyrklog.balance.model import PartitionKey, Placement
from pyrklog.balance.throttle import Signs
from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.cli.broker_healths import ask_health, is_ours
from pyrklog.cli.cluster_requests import Address
from pyrklog.cli.in_parallel import in_parallel
from pyrklog.config.http_place import ABOVE_KAFKA, LOOPBACK, NAME, OFF, parse_address
from pyrklog.observability.health_rules import BrokerState
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from pyrklog.protocol.health import BrokerHealthRequest
from pyrklog.protocol.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

ASK_TIMEOUT_S = 2.0
PROBES = 3
"""Requests whose fastest answer is the latency of a broker, so that one hiccup is none."""
METRICS_BYTES_MAX = 4 * 1024 * 1024
_WAITS = (
    "pyrklog_reader_queue_oldest_wait_seconds",
    "pyrklog_reader_queue_stalled_seconds",
    "pyrklog_produce_muted_oldest_wait_seconds",
)
_BROKER = 4
_CONFIGS_VERSION = 1
_ANY_REPLICA = -2
"""As a replica id: followers answer, too."""
_LIST_OFFSETS_VERSION = 1


class Source(NamedTuple):
    """A broker that gives replicas; ``probe`` is a partition of which it has one."""

    number: int
    address: Address
    probe: PartitionKey | None


def sources(
    addresses: Mapping[int, Address],
    leaders: Mapping[PartitionKey, int],
    plan: Collection[PartitionKey],
    givers: Placement | None = None,
) -> list[Source]:
    """The leaders of the plan's partitions; of those that are back-filled, which ``givers`` has
    with their replicas, the followers, too."""
    probes: dict[int, PartitionKey] = {}
    for key in sorted(plan):
        leader = leaders.get(key, -1)
        if leader in addresses:
            probes.setdefault(leader, key)
    for key, replicas in sorted((givers or {}).items()):
        for broker in replicas:
            if broker in addresses:
                probes.setdefault(broker, key)
    return [Source(number, addresses[number], probe) for number, probe in sorted(probes.items())]


def all_ours(addresses: Mapping[int, Address]) -> bool:
    """Whether every broker that answers is one of pyrklog's. One that is silent is slow, and the
    more reason to follow the others."""

    def ask(broker: tuple[int, Address]) -> bool | None:
        try:
            with BrokerConnection(broker[1], ASK_TIMEOUT_S) as connection:
                return is_ours(connection, broker[0])
        except (OSError, UnicodeError):
            return None

    told = in_parallel(ask, list(addresses.items()))
    return True in told and False not in told


def read(found: Sequence[Source], behind: int = 0) -> Signs:
    """The worst of all sources. A silent one tells nothing, and is behind soon."""
    told = in_parallel(_of_source, list(found))
    latencies = [one.latency_ms for one in told if one.latency_ms is not None]
    waits = [one.disk_wait_s for one in told if one.disk_wait_s is not None]
    findings = sorted({kind for one in told for kind in one.findings})
    return Signs(max(latencies, default=None), max(waits, default=None), findings, behind)


def _of_source(source: Source) -> Signs:
    state = BrokerState(source.number, *source.address)
    health = ask_health(state, ASK_TIMEOUT_S, BrokerHealthRequest())
    findings = [one.kind for one in health.reasons] if health is not None else []
    return Signs(_latency_ms(source), _disk_wait_s(source), findings)


def _latency_ms(source: Source) -> float | None:
    if source.probe is None:
        return None
    topic, index = source.probe
    asked = [ListOffsetsTopic(topic, [ListOffsetsPartition(index)])]
    request = ListOffsetsRequest(_ANY_REPLICA, topics=asked)
    best: float | None = None
    try:
        with BrokerConnection(source.address, ASK_TIMEOUT_S) as connection:
            for _ in range(PROBES):
                started = time.monotonic()
                connection.ask(LIST_OFFSETS, _LIST_OFFSETS_VERSION, request)
                passed_ms = (time.monotonic() - started) * 1000
                best = passed_ms if best is None else min(best, passed_ms)
    except TimeoutError:
        return ASK_TIMEOUT_S * 1000
    except (OSError, UnicodeError):
        return best
    return best


def _disk_wait_s(source: Source) -> float | None:
    place = _http_place(source)
    if place is None:
        return None
    connection = http.client.HTTPConnection(*place, timeout=ASK_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read(METRICS_BYTES_MAX).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return longest_wait(text) if answer.status == http.client.OK else None


def longest_wait(text: str) -> float | None:
    """The longest wait for a disk that a page of metrics tells; None: it tells none."""
    waits = []
    for line in text.splitlines():
        name = line.split("{", 1)[0].split(" ", 1)[0]
        if name in _WAITS:
            try:
                waits.append(float(line.rsplit("}", 1)[-1].split()[-1]))
            except (ValueError, IndexError):
                continue
    return max(waits, default=None)


def _http_place(source: Source) -> tuple[str, int] | None:
    """A broker's options send us to its own host only."""
    asked = DescribeConfigsRequest([DescribeConfigsResource(_BROKER, str(source.number), [NAME])])
    try:
        with BrokerConnection(source.address, ASK_TIMEOUT_S) as connection:
            told = connection.ask(DESCRIBE_CONFIGS, _CONFIGS_VERSION, asked)
    except (OSError, UnicodeError):
        return None
    values = [entry.value for one in told.results for entry in one.configs if entry.name == NAME]
    given = (values[0] or "").strip() if values else OFF
    if given.lower() == OFF:
        return None
    host, port = source.address
    place = parse_address(given) if given else (LOOPBACK, port + ABOVE_KAFKA)
    if place is None or not place[1]:
        return None
    is_loopback = place[0].startswith("127.") or place[0] in ("localhost", "::1")
    is_here = host.startswith("127.") or host in ("localhost", "::1")
    if is_loopback and not is_here:
        return None
    return (place[0] if is_loopback else host), place[1]
