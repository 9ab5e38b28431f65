"""Brokers' requests to the controller survive encoding, in every version."""

import pytest

from pyrklog.cluster import to_controller
from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownResponse,
    IsrChange,
    IsrChangeResult,
)
from pyrklog.errors import ErrorCode
from pyrklog.protocol import to_controller as wire
from pyrklog.protocol.to_controller import ALTER_PARTITION, CONTROLLED_SHUTDOWN

A, B = b"a" * 16, b"b" * 16
REQUEST = AlterPartitionRequest(
    1,
    99,
    [
        IsrChange(A, 0, 5, 8, [(1, 99), (2, -1)], 0),
        IsrChange(A, 3, 6, 9, [(1, 99)], 1),
        IsrChange(B, 0, 1, 2, [(1, 99), (3, 77)], 0),
    ],
)
RESPONSE = AlterPartitionResponse(
    ErrorCode.NONE,
    [
        IsrChangeResult(A, 0, ErrorCode.NONE, 1, 5, (1, 2), 0, 9),
        IsrChangeResult(A, 3, ErrorCode.INELIGIBLE_REPLICA),
        IsrChangeResult(B, 0, ErrorCode.NONE, 1, 1, (1,), 1, 3, (3,)),
    ],
)


def test_a_request_of_the_version_that_we_send() -> None:
    body = ALTER_PARTITION.encode_request(to_controller.alter_partition_message(REQUEST), 3)
    message = ALTER_PARTITION.decode_request(body, 3)
    assert to_controller.alter_partition_request(message, 3, lambda name: b"") == REQUEST


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_versions_have_no_epochs_and_some_no_ids(version: int) -> None:
    item = wire.AlterPartitionPartition(0, leader_epoch=5, new_isr=[1, 2], partition_epoch=8)
    sent = wire.AlterPartitionRequest(1, 99, [wire.AlterPartitionTopic("a", A, [item])])
    body = ALTER_PARTITION.encode_request(sent, version)
    message = ALTER_PARTITION.decode_request(body, version)
    found = to_controller.alter_partition_request(message, version, {"a": A}.__getitem__)
    assert found.changes == [IsrChange(A, 0, 5, 8, [(1, -1), (2, -1)], 0)]
    answer = to_controller.altered_message(RESPONSE, [(A, "a"), (B, "b")])
    body = ALTER_PARTITION.encode_response(answer, version)
    decoded = ALTER_PARTITION.decode_response(body, version)
    assert [item.partition_index for item in decoded.topics[0].partitions] == [0, 3]
    if version < to_controller.TOPIC_IDS_SINCE:
        assert [topic.topic_name for topic in decoded.topics] == ["a", "b"]


def test_alter_partition_answer_round_trips() -> None:
    body = ALTER_PARTITION.encode_response(to_controller.altered_message(RESPONSE), 3)
    message = ALTER_PARTITION.decode_response(body, 3)
    assert to_controller.altered_response(message) == RESPONSE
    refused = AlterPartitionResponse(ErrorCode.NOT_CONTROLLER, [])
    body = ALTER_PARTITION.encode_response(to_controller.altered_message(refused), 3)
    message = ALTER_PARTITION.decode_response(body, 3)
    assert to_controller.altered_response(message) == refused


def test_controlled_shutdown_answer_round_trips() -> None:
    answer = ControlledShutdownResponse(ErrorCode.NONE, [("t", 0), ("u", 3)])
    body = CONTROLLED_SHUTDOWN.encode_response(to_controller.left_message(answer), 3)
    message = CONTROLLED_SHUTDOWN.decode_response(body, 3)
    assert to_controller.left_response(message) == answer
