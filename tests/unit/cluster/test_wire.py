"""The controller's requests survive encoding and decoding."""

import pytest
from msgspec.structs import replace

from pyrklog.cluster import wire
from pyrklog.cluster.requests import (
    EPOCH_DURING_DELETE,
    ControlRequest,
    ControlResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplica,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from pyrklog.errors import ErrorCode
from pyrklog.plane.values import BrokerImage
from pyrklog.protocol import DecodeError
from pyrklog.protocol.inter_broker import LEADER_AND_ISR, PartitionInfo, TopicPartitions
from pyrklog.protocol.inter_broker import StopReplicaResponse as StopReplicaMessage

BROKERS = {
    1: BrokerImage(1, "r1", [("INTERNAL", "a", 9093), ("PLAINTEXT", "b", 9092)]),
    2: BrokerImage(2, None, [("INTERNAL", "c", 9093)]),
}
LED = PartitionInfo(
    partition=3,
    controller_epoch=4,
    leader=1,
    leader_epoch=7,
    isr=(1, 2),
    partition_epoch=9,
    replicas=(1, 2, 5),
    adding=(5,),
    removing=(2,),
    offline=(),
    is_new=True,
    recovery_state=1,
    eligible=(5, 2),
)
TOLD = replace(LED, adding=(), removing=(), is_new=False, recovery_state=0, offline=(5,))
A, B = bytes([1] * 16), bytes([2] * 16)
LEAD = LeaderAndIsrRequest(
    6,
    4,
    77,
    [
        TopicPartitions("a", A, [LED, replace(LED, partition=4, leader=9)]),
        TopicPartitions("b", B, [LED]),
    ],
)
TELL = UpdateMetadataRequest(6, 4, 77, [TopicPartitions("a", A, [TOLD])], list(BROKERS.values()))
TELL_ALL = TELL._replace(topics=[*TELL.topics, TopicPartitions("b", B, [])], number=3, is_full=True)
STOP = StopReplicaRequest(
    6,
    4,
    77,
    [
        StopReplica("a", 3, 7, False, A),
        StopReplica("a", 4, EPOCH_DURING_DELETE, True, A),
        StopReplica("b", 0, -1, False),
    ],
)


def encoded(request_: ControlRequest, response: ControlResponse) -> bytes:
    api = wire.api_of(request_)
    return api.encode_response(wire.response_message(request_, response), api.versions[1])


@pytest.mark.parametrize("request_", [LEAD, TELL, TELL_ALL, STOP])
def test_a_request_arrives_as_it_was_sent(request_: ControlRequest) -> None:
    body = wire.encode_request(request_, BROKERS, "INTERNAL")
    api = wire.api_of(request_)
    assert wire.request_of(api.decode_request(body, api.versions[1])) == request_


def test_leaders_are_named_with_the_listener_for_brokers() -> None:
    body = wire.encode_request(LEAD, BROKERS, "INTERNAL")
    message = LEADER_AND_ISR.decode_request(body, 7)
    found = [(item.broker_id, item.host_name, item.port) for item in message.live_leaders]
    assert found == [(1, "a", 9093)], "9 does not live"


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (
            LEAD,
            LeaderAndIsrResponse(
                ErrorCode.NONE,
                {
                    ("a", 3): ErrorCode.NONE,
                    ("a", 4): ErrorCode.STALE_CONTROLLER_EPOCH,
                    ("b", 3): ErrorCode.KAFKA_STORAGE_ERROR,
                },
            ),
        ),
        (LEAD, LeaderAndIsrResponse(ErrorCode.STALE_BROKER_EPOCH, {})),
        (TELL, ErrorCode.NONE),
        (TELL, ErrorCode.STALE_CONTROLLER_EPOCH),
        (STOP, StopReplicaResponse(ErrorCode.NONE, {("a", 4): ErrorCode.FENCED_LEADER_EPOCH})),
    ],
    ids=["led", "refused", "told", "stale", "stopped"],
)
def test_an_answer_arrives_as_it_was_sent(
    request_: ControlRequest, response: ControlResponse
) -> None:
    body = encoded(request_, response)
    assert wire.decode_response(request_, body) == response


def test_an_error_of_a_later_kafka_is_an_error() -> None:
    message = StopReplicaMessage(12_345)
    body = wire.api_of(STOP).encode_response(message, 4)
    unknown = StopReplicaResponse(ErrorCode.UNKNOWN_SERVER_ERROR, {})
    assert wire.decode_response(STOP, body) == unknown


def test_a_topic_that_was_not_asked_for_is_left_out() -> None:
    errors = {("a", 3): ErrorCode.NONE, ("b", 3): ErrorCode.NONE}
    body = encoded(LEAD, LeaderAndIsrResponse(ErrorCode.NONE, errors))
    asked = LEAD._replace(topics=LEAD.topics[:1])
    heard = wire.decode_response(asked, body)
    assert heard == LeaderAndIsrResponse(ErrorCode.NONE, {("a", 3): ErrorCode.NONE})


@pytest.mark.parametrize("request_", [LEAD, TELL, STOP], ids=lambda one: type(one).__name__)
def test_a_torn_request_is_refused(request_: ControlRequest) -> None:
    body = wire.encode_request(request_, BROKERS, "INTERNAL")
    api = wire.api_of(request_)
    with pytest.raises(DecodeError):
        api.decode_request(body[:-3], api.versions[1])
