"""Asks a cluster and this machine. Nothing here raises for what does not answer."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyrklog.cli.bootstrap import addresses
from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.cli.broker_healths import BrokerHealth, ask_healths
from pyrklog.cli.cluster_requests import ClusterRequests
from pyrklog.cli.cluster_views import is_plain
from pyrklog.cli.doctor.evidence import (
    Address,
    BrokerEvidence,
    Dialled,
    Evidence,
    NamedPlaces,
    Reached,
    ZooKeeperServer,
)
from pyrklog.cli.doctor.host import dial_error, dialled, is_local, local_dir, processes, reached
from pyrklog.cli.failures import CliError
from pyrklog.cli.in_parallel import in_parallel
from pyrklog.cli.options import Settings
from pyrklog.config.entry import OptionType
from pyrklog.observability.health_rules import BrokerState, ClusterState
from pyrklog.protocol.api_versions import API_VERSIONS, ApiVersionsRequest
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from pyrklog.protocol.health import BrokerHealthRequest
from pyrklog.protocol.log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from pyrklog.protocol.metadata import METADATA, MetadataRequest

ASK_TIMEOUT_S = 5.0
ZOOKEEPER_TIMEOUT_S = 2.0
ZOOKEEPERS_MAX = 9
SRVR_BYTES_MAX = 64 * 1024
_BROKER = 4
"""A resource type."""


def gather(settings: Settings, named: NamedPlaces, *, dials: bool = False) -> Evidence:
    """``dials``: also connects to each address that brokers tell, whatever they answer."""
    timeout_s = min(ASK_TIMEOUT_S, settings.timeout_s)
    found = in_parallel(lambda one: _reached(one, settings), _given(settings))
    state, unreached = _state(settings) if any(one.is_broker for one in found) else (None, None)
    brokers = {} if state is None else _brokers(settings, state, timeout_s)
    # The default directory is of no interest beside a broker that answers.
    is_wanted = named.is_given or state is None
    paths: dict[Path, int | None] = dict.fromkeys(named.log_dirs if is_wanted else ())
    paths |= {
        Path(place.log_dir): one.number
        for one in brokers.values()
        if one.is_local
        for place in one.log_dirs or ()
        if os.path.isdir(place.log_dir)
    }
    dirs = [local_dir(path, broker) for path, broker in paths.items()]
    return Evidence(
        found,
        state,
        unreached,
        None if is_plain(settings) else _unasked(settings),
        brokers,
        zookeepers(brokers, dev_ways(state)),
        dirs,
        processes(dirs),
        named,
        _dialled(state, timeout_s) if dials and state is not None else None,
    )


def _dialled(state: ClusterState, timeout_s: float) -> list[Dialled]:
    def dial(one: BrokerState) -> Dialled:
        return dialled(one.number, (one.host, one.port), timeout_s)

    return in_parallel(dial, state.brokers)


def _given(settings: Settings) -> list[Address]:
    return list(dict.fromkeys(addresses(settings.bootstrap)))


def _unasked(settings: Settings) -> str:
    protocol = settings.security_protocol
    return f"brokers tell this at a PLAINTEXT listener only (security.protocol={protocol})"


def _reached(address: Address, settings: Settings) -> Reached:
    one = reached(address, settings)
    if not one.is_broker or not is_plain(settings):
        return one
    told = _cluster_id(address, min(ASK_TIMEOUT_S, settings.timeout_s))
    return replace(one, cluster_id=told)


def _cluster_id(address: Address, timeout_s: float) -> str | None:
    try:
        with BrokerConnection(address, timeout_s) as connection:
            return connection.ask(METADATA, 7, MetadataRequest(topics=[])).cluster_id
    except (OSError, UnicodeError):
        return None


def _state(settings: Settings) -> tuple[ClusterState | None, str | None]:
    from pyrklog.cli.cluster_reading import read_state
    from pyrklog.cli.connection import Connection

    try:
        connection = Connection(settings)
        return read_state(
            connection, lambda one: len(one.isr) < len(one.replicas), log_dirs=True
        ), None
    except CliError as error:
        return None, error.what


def _brokers(
    settings: Settings, state: ClusterState, timeout_s: float
) -> dict[int, BrokerEvidence]:
    if not is_plain(settings):
        options = _options_by_librdkafka(settings, state)
        dialled = in_parallel(
            lambda one: dial_error((one.host, one.port), timeout_s), state.brokers
        )
        return {
            one.number: BrokerEvidence(
                one.number, is_local(one.host), error, options=options.get(one.number)
            )
            for one, error in zip(state.brokers, dialled, strict=True)
        }
    healths = ask_healths(state, timeout_s, BrokerHealthRequest(includes_clients=True))

    def ask(one: BrokerState) -> BrokerEvidence:
        return _broker(settings, one, healths.get(one.number), timeout_s)

    return {one.number: one for one in in_parallel(ask, state.brokers)}


def _broker(
    settings: Settings, broker: BrokerState, health: BrokerHealth | None, timeout_s: float
) -> BrokerEvidence:
    """Silence is told by the cluster's state."""
    if not broker.answers:
        return BrokerEvidence(broker.number, is_local(broker.host))
    address = (broker.host, broker.port)
    with ClusterRequests(settings) as requests:
        return BrokerEvidence(
            broker.number,
            is_local(broker.host),
            cluster_id=_cluster_id(address, timeout_s),
            health=health,
            log_dirs=_log_dirs(requests, address),
            options=_options(requests, address, broker.number),
            versions=_versions(address, timeout_s),
        )


def _log_dirs(requests: ClusterRequests, address: Address) -> list[DescribeLogDirsResult] | None:
    try:
        return requests.ask(address, DESCRIBE_LOG_DIRS, DescribeLogDirsRequest()).results or None
    except CliError:
        return None


def _options(
    requests: ClusterRequests, address: Address, number: int
) -> dict[str, str | None] | None:
    """By name; the values of sensitive ones, and of all passwords, are None."""
    request = DescribeConfigsRequest([DescribeConfigsResource(_BROKER, str(number), None)])
    try:
        told = requests.ask(address, DESCRIBE_CONFIGS, request)
    except CliError:
        return None
    found = {
        one.name: None if one.is_sensitive or one.config_type == OptionType.PASSWORD else one.value
        for result in told.results
        if result.error_code == 0
        for one in result.configs
    }
    return found or None


def _options_by_librdkafka(
    settings: Settings, state: ClusterState
) -> dict[int, Mapping[str, str | None]]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource

    from pyrklog.cli.connection import Connection

    found: dict[int, Mapping[str, str | None]] = {}
    try:
        admin = Connection(settings).admin
        resources = [ConfigResource(ConfigResource.Type.BROKER, str(n)) for n in state.alive]
        futures: dict[Any, Any] = {}
        for one in resources:  # of each broker itself
            futures |= admin.describe_configs([one], request_timeout=settings.timeout_s)
        for resource, future in futures.items():
            entries = future.result().values()
            found[int(resource.name)] = {
                one.name: None if one.is_sensitive else one.value for one in entries
            }
    except (CliError, KafkaException):
        return found
    return found


def _versions(address: Address, timeout_s: float) -> dict[int, tuple[int, int]] | None:
    try:
        with BrokerConnection(address, timeout_s) as connection:
            told = connection.ask(API_VERSIONS, 0, ApiVersionsRequest())
    except (OSError, UnicodeError):
        return None
    return {one.api_key: (one.min_version, one.max_version) for one in told.api_keys}


# --- ZooKeeper -----------------------------------------------------------------------------------


def dev_ways(state: ClusterState | None) -> Mapping[Address, Address]:
    """Of a cluster of ``pyrklog dev``: the server behind each address that brokers name."""
    from pyrklog.cli.dev_here import cluster_at, dev_clusters, zookeepers_behind

    if state is None:
        return {}
    cluster = cluster_at({one.address for one in state.brokers}, dev_clusters(os.environ))
    return {} if cluster is None else zookeepers_behind(cluster)


def zookeepers(
    brokers: Mapping[int, BrokerEvidence], ways: Mapping[Address, Address]
) -> list[ZooKeeperServer]:
    from pyrklog.config.zookeeper_connect import parse_connect
    from pyrklog.errors import ConfigError

    servers: dict[Address, None] = {}
    for one in brokers.values():
        connect = (one.options or {}).get("zookeeper.connect")
        try:
            servers |= dict.fromkeys(parse_connect(connect)[0] if connect else [])
        except ConfigError:
            continue  # the chroot's check shows it
    asked = list(servers)[:ZOOKEEPERS_MAX]
    found = zip(asked, in_parallel(zookeeper_server, asked), strict=True)
    return [
        replace(one, behind=f"{ways[at][0]}:{ways[at][1]}") if at in ways else one
        for at, one in found
    ]


def zookeeper_server(address: Address) -> ZooKeeperServer:
    """Asks with the four letters ``srvr``; a server that refuses them answers all the same."""
    where = f"{address[0]}:{address[1]}"
    try:
        with socket.create_connection(address, timeout=ZOOKEEPER_TIMEOUT_S) as connection:
            host, port = connection.getpeername()[:2]
            connection.sendall(b"srvr")
            answer = bytearray()
            while part := connection.recv(4096):
                answer += part
                if len(answer) > SRVR_BYTES_MAX:
                    break
    except (OSError, UnicodeError) as error:
        return ZooKeeperServer(where, str(getattr(error, "strerror", None) or error))
    behind = None if f"{host}:{port}" == where else f"{host}:{port}"
    for line in answer.decode(errors="replace").splitlines():
        name, _, mode = line.partition(": ")
        if name == "Mode" and mode.isalpha():
            return ZooKeeperServer(where, mode=mode, behind=behind)
    return ZooKeeperServer(where, behind=behind)
