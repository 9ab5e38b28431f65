import pytest

from pyrklog.cluster.requests import (
    ControlRequest,
    LeaderAndIsrRequest,
    StopReplica,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from pyrklog.cluster.valid_requests import wrong_with_request
from pyrklog.plane.values import BrokerImage
from pyrklog.protocol.inter_broker import PartitionInfo, TopicPartitions


def topic(name: str, *partitions: int) -> TopicPartitions:
    infos = [
        PartitionInfo(index, 1, 1, 0, (1,), 0, (1,), (), (), (), False, 0) for index in partitions
    ]
    return TopicPartitions(name, b"1" * 16, infos)


def broker(number: int, port: int = 9092) -> BrokerImage:
    return BrokerImage(number, None, [("PLAINTEXT", "here", port)])


def lead(*topics: TopicPartitions) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(1, 1, 1, topics)


def metadata(*brokers: BrokerImage) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(1, 1, 1, [topic("t", 0)], brokers)


def stop(name: str, partition: int) -> StopReplicaRequest:
    return StopReplicaRequest(1, 1, 1, [StopReplica(name, partition, 0, True)])


@pytest.mark.parametrize(
    "request_",
    [
        lead(topic("t", 0, 1), topic("u", 7)),
        lead(),
        metadata(broker(1), broker(2, 65535)),
        metadata(),
        stop("t", 0),
    ],
)
def test_valid_control_requests_are_accepted(request_: ControlRequest) -> None:
    assert wrong_with_request(request_) is None


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (lead(topic("../../etc", 0)), "other than ASCII"),
        (lead(topic("", 0)), "empty"),
        (lead(topic("x" * 250, 0)), "longer"),
        (lead(topic("t", -1)), "no partition -1"),
        (lead(topic("t", 0, 0)), "partition of 't' twice"),
        (lead(topic("t", 0), topic("t", 1)), "topic twice"),
        (metadata(broker(1, 70_000)), "no port"),
        (metadata(broker(1, -1)), "no port"),
        (metadata(broker(-1)), "no broker"),
        (metadata(broker(1), broker(1)), "broker twice"),
        (stop("a/b", 0), "other than ASCII"),
        (stop("t", -2), "no partition -2"),
    ],
)
def test_invalid_control_requests_are_refused(request_: ControlRequest, why: str) -> None:
    assert why in (wrong_with_request(request_) or "")
