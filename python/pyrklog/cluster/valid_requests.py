"""Refuses invalid control requests as a whole. Pure.

The data plane uses names as folders, and numbers as ports and list indexes; invalid ones must not
reach it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyrklog.base.hosts import PORT_MAX
from pyrklog.cluster.requests import ControlRequest, StopReplicaRequest, UpdateMetadataRequest
from pyrklog.cluster.topic_names import wrong_with_name
from pyrklog.plane.values import BrokerImage
from pyrklog.protocol.inter_broker import TopicPartitions


def wrong_with_request(request: ControlRequest) -> str | None:
    """Why the request is refused (INVALID_REQUEST), or None."""
    if isinstance(request, StopReplicaRequest):
        return _wrong_with_keys((item.topic, item.partition) for item in request.replicas)
    if isinstance(request, UpdateMetadataRequest):
        wrong = _wrong_with_brokers(request.brokers)
        if wrong is not None:
            return wrong
    return _wrong_with_topics(request.topics)


def _wrong_with_brokers(brokers: Sequence[BrokerImage]) -> str | None:
    if len({broker.id for broker in brokers}) < len(brokers):
        return "The request names a broker twice"
    for broker in brokers:
        wrong = wrong_with_broker(broker)
        if wrong is not None:
            return wrong
    return None


def wrong_with_broker(broker: BrokerImage) -> str | None:
    """Why there can be no such broker, or None."""
    if broker.id < 0:
        return f"{broker.id} is no broker"
    for listener, host, port in broker.endpoints:
        if not 0 <= port <= PORT_MAX:
            return f"Broker {broker.id} listens on no port: {listener}://{host}:{port}"
    return None


def _wrong_with_topics(topics: Sequence[TopicPartitions]) -> str | None:
    if len({topic.topic for topic in topics}) < len(topics):
        return "The request names a topic twice"
    for topic in topics:
        indexes = [info.partition for info in topic.partitions]
        if len(set(indexes)) < len(indexes):
            return f"The request names a partition of '{topic.topic}' twice"
        wrong = wrong_with_name(topic.topic) or _wrong_with_partitions(topic.topic, indexes)
        if wrong is not None:
            return wrong
    return None


def _wrong_with_keys(keys: Iterable[tuple[str, int]]) -> str | None:
    for name, partition in keys:
        wrong = wrong_with_name(name) or _wrong_with_partitions(name, [partition])
        if wrong is not None:
            return wrong
    return None


def _wrong_with_partitions(topic: str, indexes: Iterable[int]) -> str | None:
    for index in indexes:
        if index < 0:
            return f"'{topic}' has no partition {index}"
    return None
