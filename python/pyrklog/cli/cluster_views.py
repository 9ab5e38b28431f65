"""Reads each broker's view of the cluster, and chooses one.

An isolated broker keeps its old view. So all brokers are asked; the one that most others take for
alive is believed. With encryption or authentication, which :mod:`.broker_connection` lacks,
:mod:`.cluster_reading` asks librdkafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pyrklog.base.problems import Problem
from pyrklog.cli.bootstrap import addresses
from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.cli.broker_healths import (
    ask_healths,
    away_of,
    leaving_of,
    signs_of,
    with_reassignments,
)
from pyrklog.cli.cluster_state import cause
from pyrklog.cli.failures import CliError
from pyrklog.cli.in_parallel import in_parallel
from pyrklog.cli.options import Settings
from pyrklog.observability.health_rules import (
    MIN_INSYNC,
    MIN_INSYNC_DEFAULT,
    BrokerState,
    ClusterState,
    LogDir,
    PartitionState,
)
from pyrklog.protocol.cluster import DESCRIBE_CLUSTER, NO_CONTROLLER, DescribeClusterRequest
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from pyrklog.protocol.metadata import METADATA, MetadataRequest, MetadataResponse

ASK_TIMEOUT_S = 3.0
_METADATA_VERSION = 7
_CONFIGS_VERSION = 1
_LOG_DIRS_VERSIONS = (4, 1)
"""Version 4 has the bytes of volumes."""
_TOPIC = 2
"""A resource type."""

Address = tuple[str, int]
Matters = Callable[[PartitionState], bool]


class BrokerView(NamedTuple):
    number: int | None
    address: Address
    metadata: MetadataResponse


def read_plain_state(
    settings: Settings, matters: Matters = lambda _: False, *, log_dirs: bool = False
) -> ClusterState:
    """Asks the cluster; with ``log_dirs`` also each broker for directories that take no records,
    for lost ZooKeeper sessions and for its own findings, and the controller for reassignments.

    ``matters`` selects partitions whose ``min.insync.replicas`` is read (others have 1): options of
    thousands of topics would be a large request.
    """
    view, silent = newest_view(settings)
    state = _state(view.metadata, silent)
    if log_dirs:
        timeout_s = _timeout_s(settings)
        healths = ask_healths(state, timeout_s)
        state = replace(
            state,
            log_dirs=unable_log_dirs(state, timeout_s),
            without_store=without_store(state, timeout_s),
            signs=signs_of(healths),
            away=away_of(healths),
            leaving=leaving_of(healths),
        )
        state = with_reassignments(state, timeout_s)
    asked = topics_of(state, matters)
    limits = min_insync_of(view.address, asked, _timeout_s(settings)) if asked else {}
    return with_limits(state, limits)


def is_plain(settings: Settings) -> bool:
    return settings.security_protocol == "plaintext"


def newest_view(settings: Settings) -> tuple[BrokerView, dict[int, str]]:
    """The believed view, and its silent brokers with reasons.

    Raises :class:`CliError` if no broker answers.
    """
    timeout_s = _timeout_s(settings)
    first, _ = _ask_all([(None, address) for address in addresses(settings.bootstrap)], timeout_s)
    if not first:
        what = f"no broker at {settings.bootstrap} answers"
        raise CliError(Problem.NO_BROKER, what, "check -b, and that the brokers run")
    known = {one.node_id: (one.host, one.port) for view in first for one in view.metadata.brokers}
    views, reasons = _ask_all(list(known.items()), timeout_s)
    # If no advertised address answers, the bootstrap brokers are believed.
    view = newest(views or first)
    answered = {one.number for one in views}
    named = {one.node_id for one in view.metadata.brokers}
    return view, {number: reasons.get(number, "no answer") for number in named - answered}


def refuse_unreachable(settings: Settings) -> None:
    timeout_s = _timeout_s(settings)
    given = addresses(settings.bootstrap)
    found, _ = _ask_all([(None, one) for one in given], timeout_s, MetadataRequest(topics=[]))
    told = {one.node_id: (one.host, one.port) for view in found for one in view.metadata.brokers}
    asked = {view.address for view in found}
    if not told or asked & set(told.values()):
        return
    reached, reasons = _ask_all(list(told.items()), timeout_s, MetadataRequest(topics=[]))
    if not reached:
        metadata = found[0].metadata
        unreached = {one.node_id: reasons.get(one.node_id, "no answer") for one in metadata.brokers}
        error = cause(_state(metadata, unreached), ())
        assert error is not None
        raise CliError(Problem.BROKER_AWAY, error.what, error.fix)


def newest(views: Sequence[BrokerView]) -> BrokerView:
    """The view of the broker that most take for alive; among several, the one with the newest
    leaders.

    Isolated brokers take only each other for alive.
    """
    alive = [{one.node_id for one in view.metadata.brokers} for view in views]

    def rank(view: BrokerView) -> tuple[int, int, bool]:
        metadata = view.metadata
        believers = sum(view.number in one for one in alive)
        epochs = sum(one.leader_epoch for topic in metadata.topics for one in topic.partitions)
        return believers, epochs, metadata.controller_id == view.number

    return max(views, key=rank)


def _ask_all(
    brokers: Sequence[tuple[int | None, Address]],
    timeout_s: float,
    request: MetadataRequest | None = None,
) -> tuple[list[BrokerView], dict[int | None, str]]:
    reasons: dict[int | None, str] = {}

    def ask(broker: tuple[int | None, Address]) -> BrokerView | None:
        number, address = broker
        try:
            with BrokerConnection(address, timeout_s) as asked:
                told = asked.ask(METADATA, _METADATA_VERSION, request or MetadataRequest())
                return BrokerView(number, address, told)
        except (OSError, UnicodeError) as error:
            reasons[number] = getattr(error, "strerror", None) or str(error)
            return None

    return [view for view in in_parallel(ask, brokers) if view is not None], reasons


def unable_log_dirs(state: ClusterState, timeout_s: float) -> list[LogDir]:
    """Log directories of answering brokers that take no records.

    A failed one has KAFKA_STORAGE_ERROR, a full one no usable bytes (version 4, KIP-827). Without
    an answer a broker has none.
    """

    def ask(broker: BrokerState) -> list[LogDir]:
        # Partitions would make the answer large.
        request = DescribeLogDirsRequest([])
        for version in _LOG_DIRS_VERSIONS:
            try:
                with BrokerConnection((broker.host, broker.port), timeout_s) as asked:
                    found = asked.ask(DESCRIBE_LOG_DIRS, version, request)
            except (OSError, UnicodeError):
                continue
            return [
                LogDir(broker.number, one.log_dir, one.error_code != 0)
                for one in found.results
                if one.error_code == ErrorCode.KAFKA_STORAGE_ERROR or one.usable_bytes == 0
            ]
        return []

    asked = [one for one in state.brokers if one.answers]
    return [one for found in in_parallel(ask, asked) for one in found]


def without_store(state: ClusterState, timeout_s: float) -> list[int]:
    """Brokers that answer without reaching ZooKeeper.

    Such a broker names no controller in DescribeCluster, but the last one in Metadata. Between two
    controllers neither names one. DescribeCluster is asked last again: a broker that learns of a
    new controller in between names that one.
    """

    def has_lost_it(broker: BrokerState) -> bool:
        try:
            with BrokerConnection((broker.host, broker.port), timeout_s) as asked:
                return (
                    names_none(asked)
                    and asked.ask(METADATA, _METADATA_VERSION, nothing).controller_id >= 0
                    and names_none(asked)
                )
        except (OSError, UnicodeError):
            return False  # Kafka before 2.8 has no such request

    def names_none(asked: BrokerConnection) -> bool:
        found = asked.ask(DESCRIBE_CLUSTER, 0, DescribeClusterRequest())
        return not found.error_code and found.controller_id == NO_CONTROLLER

    nothing = MetadataRequest(topics=[])
    answering = [one for one in state.brokers if one.answers]
    lost = in_parallel(has_lost_it, answering)
    return [broker.number for broker, is_lost in zip(answering, lost, strict=True) if is_lost]


def _state(metadata: MetadataResponse, silent: Mapping[int, str]) -> ClusterState:
    brokers = [
        BrokerState(
            one.node_id,
            one.host,
            one.port,
            one.rack,
            one.node_id not in silent,
            silent.get(one.node_id),
        )
        for one in sorted(metadata.brokers, key=lambda one: one.node_id)
    ]
    partitions = [
        PartitionState(
            topic.name, one.partition_index, one.leader_id, one.replica_nodes, one.isr_nodes
        )
        for topic in sorted(metadata.topics, key=lambda topic: topic.name)
        for one in sorted(topic.partitions, key=lambda one: one.partition_index)
    ]
    return ClusterState(metadata.cluster_id, brokers, metadata.controller_id, partitions)


def topics_of(state: ClusterState, matters: Matters) -> list[str]:
    return list(dict.fromkeys(one.topic for one in state.partitions if matters(one)))


def with_limits(state: ClusterState, limits: Mapping[str, int]) -> ClusterState:
    partitions = [
        replace(one, min_insync=limits.get(one.topic, MIN_INSYNC_DEFAULT))
        for one in state.partitions
    ]
    return replace(state, partitions=partitions)


def min_insync_of(address: Address, topics: Sequence[str], timeout_s: float) -> dict[str, int]:
    request = DescribeConfigsRequest(
        [DescribeConfigsResource(_TOPIC, name, [MIN_INSYNC]) for name in topics]
    )
    try:
        with BrokerConnection(address, timeout_s) as broker:
            found = broker.ask(DESCRIBE_CONFIGS, _CONFIGS_VERSION, request)
    except OSError as error:
        host, port = address
        raise CliError(Problem.BROKER_AWAY, f"{host}:{port}: {error}") from None
    return {
        one.resource_name: min_insync(
            {"name": entry.name, "value": entry.value} for entry in one.configs
        )
        for one in found.results
        if one.error_code == 0
    }


def min_insync(entries: Iterable[Mapping[str, Any]]) -> int:
    """The option's value; Kafka's default if unknown."""
    for entry in entries:
        if entry["name"] == MIN_INSYNC and entry["value"] is not None:
            return int(entry["value"])
    return MIN_INSYNC_DEFAULT


def _timeout_s(settings: Settings) -> float:
    return min(ASK_TIMEOUT_S, settings.timeout_s)
