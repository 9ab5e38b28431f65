"""Requests of :class:`TestBroker` and :class:`TestCluster` themselves, which no fault meets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import TypeVar

from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.protocol.api import Api
from pyrklog.protocol.cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from pyrklog.protocol.elections import ELECT_LEADERS, ElectedTopic, ElectLeadersRequest
from pyrklog.protocol.fields import Message
from pyrklog.protocol.metadata import (
    METADATA,
    NO_LEADER,
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
)
from pyrklog.protocol.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pyrklog.protocol.topics import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from pyrklog.testing.faults import TOOLS_CLIENT_ID

PAUSE_S = 0.02
Address = tuple[str, int]
Req = TypeVar("Req", bound=Message)
Resp = TypeVar("Resp", bound=Message)


def ask(address: Address, api: Api[Req, Resp], request: Req, timeout_s: float) -> Resp:
    """In the newest version. Raises OSError."""
    with closing(BrokerConnection(address, timeout_s, TOOLS_CLIENT_ID)) as connection:
        return connection.ask(api, api.versions[1], request)


def create_topic(
    address: Address,
    name: str,
    *,
    partitions: int,
    replicas: int = -1,
    config: Mapping[str, str | int | bool] | None = None,
    timeout_s: float,
) -> None:
    """Raises ApiError, OSError. ``replicas`` -1: as many as the broker gives by default."""
    given: object = config
    if given is not None and not isinstance(given, Mapping):
        kind = type(given).__name__
        raise TypeError(f'config takes a mapping, such as {{"retention.ms": 1000}}, not a {kind}')
    options = [CreatableTopicConfig(key, setting(value)) for key, value in (config or {}).items()]
    topic = CreatableTopic(name, partitions, replicas, configs=options)
    request = CreateTopicsRequest([topic], round(timeout_s * 1000))
    for result in ask(address, CREATE_TOPICS, request, timeout_s).topics:
        _raise(result.error_code, f"topic {name}: {result.error_message or ''}")


def delete_topic(address: Address, name: str, *, timeout_s: float) -> None:
    """Also of one that is gone. Raises ApiError, OSError."""
    request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=round(timeout_s * 1000))
    for result in ask(address, DELETE_TOPICS, request, timeout_s).responses:
        if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            _raise(result.error_code, f"topic {name}: {result.error_message or ''}")


def setting(value: str | int | bool) -> str:
    """An option's value as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def address_of(bootstrap: str) -> Address:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def controller(addresses: Iterable[Address], timeout_s: float) -> Address:
    """The controller's address, as the first broker knows it that answers. Raises TimeoutError."""

    def find() -> Address | None:
        for address in addresses:
            try:
                found = ask(address, DESCRIBE_CLUSTER, DescribeClusterRequest(), timeout_s)
            except OSError:
                continue
            for one in found.brokers:
                if one.broker_id == found.controller_id:
                    return one.host, one.port
        return None

    return wait_until(find, timeout_s, "no broker knows a controller")


def knows(address: Address, brokers: set[int], timeout_s: float = 2.0) -> bool:
    """Whether a broker tells clients of all ``brokers`` and of a controller."""
    try:
        found = ask(address, DESCRIBE_CLUSTER, DescribeClusterRequest(), timeout_s)
    except OSError:
        return False
    numbers = {one.broker_id for one in found.brokers}
    return found.error_code == 0 and numbers >= brokers and found.controller_id in numbers


def wait_for_leaders(address: Address, topic: str, partitions: int, timeout_s: float) -> None:
    """Waits until a broker knows the leaders of all partitions. Raises TimeoutError, OSError."""

    def are_led() -> bool:
        request = MetadataRequest([MetadataRequestTopic(topic)])
        led = [
            one
            for found in ask(address, METADATA, request, timeout_s).topics
            for one in found.partitions
            if one.leader_id != NO_LEADER
        ]
        return len(led) >= partitions

    wait_until(are_led, timeout_s, f"the broker at {address[1]} knows no leaders of {topic}")


def partition(
    address: Address, topic: str, number: int, timeout_s: float
) -> MetadataPartition | None:
    """As one broker knows it; None where it does not. Raises OSError."""
    request = MetadataRequest([MetadataRequestTopic(topic)])
    for found in ask(address, METADATA, request, timeout_s).topics:
        for one in found.partitions:
            if one.partition_index == number:
                return one
    return None


def move_leader(
    addresses: Mapping[int, Address], topic: str, number: int, to: int, timeout_s: float
) -> None:
    """Makes a replica the preferred leader and elects it; returns when each broker of ``addresses``
    (those that run) knows it. Raises LookupError, ValueError where ``to`` is no replica in sync,
    ApiError, TimeoutError, OSError."""
    deadline = time.monotonic() + timeout_s
    places = list(addresses.values())
    found = partition(places[0], topic, number, timeout_s)
    if found is None:
        raise LookupError(f"there is no partition {number} of topic {topic}")
    if to not in found.isr_nodes:
        has = ", ".join(map(str, found.isr_nodes))
        raise ValueError(f"broker {to} is no replica in sync of {topic}-{number}: {has} are")
    at = controller(places, timeout_s)
    if found.replica_nodes[0] != to:
        order = [to, *(one for one in found.replica_nodes if one != to)]
        _reorder(at, topic, number, order, timeout_s)

    def leads() -> bool:
        known = _elect(at, topic, number, timeout_s)
        return known and all(_leads(one, topic, number, to, timeout_s) for one in places)

    otherwise = f"not every broker knows that broker {to} leads {topic}-{number}"
    wait_until(leads, deadline - time.monotonic(), otherwise)


def _reorder(at: Address, topic: str, number: int, replicas: list[int], timeout_s: float) -> None:
    asked = ReassignableTopic(topic, [ReassignablePartition(number, replicas)])
    request = AlterPartitionReassignmentsRequest(round(timeout_s * 1000), [asked])
    answer = ask(at, ALTER_PARTITION_REASSIGNMENTS, request, timeout_s)
    _raise(answer.error_code, answer.error_message or "")
    for result in answer.responses:
        for one in result.partitions:
            _raise(one.error_code, f"{topic}-{number}: {one.error_message or ''}")


def _elect(at: Address, topic: str, number: int, timeout_s: float) -> bool:
    """False while the preferred leader cannot be elected yet."""
    request = ElectLeadersRequest(
        topic_partitions=[ElectedTopic(topic, [number])], timeout_ms=round(timeout_s * 1000)
    )
    answer = ask(at, ELECT_LEADERS, request, timeout_s)
    _raise(answer.error_code, f"{topic}-{number}")
    codes = [
        one.error_code
        for result in answer.replica_election_results
        for one in result.partition_result
    ]
    if any(code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE for code in codes):
        return False
    for code in codes:
        if code != ErrorCode.ELECTION_NOT_NEEDED:
            _raise(code, f"{topic}-{number}")
    return True


def _leads(address: Address, topic: str, number: int, broker: int, timeout_s: float) -> bool:
    found = partition(address, topic, number, timeout_s)
    return found is not None and found.leader_id == broker


T = TypeVar("T")


def wait_until(find: Callable[[], T | None], timeout_s: float, otherwise: str) -> T:
    """Calls ``find`` until what it finds is true. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = find()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(PAUSE_S)


def _raise(code: int, what: str) -> None:
    if code:
        raise ApiError(ErrorCode(code), what)
