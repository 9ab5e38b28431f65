"""A whole broker and senseless control requests, from any sender."""

from pathlib import Path
from typing import Any

import pytest

from pyrklog.errors import ErrorCode
from pyrklog.protocol import inter_broker as wire
from pyrklog.protocol.api import Api
from pyrklog.testing.fake_plane import FakeRequest
from tests.unit.broker.harness import running_broker

FAR_EPOCH = 1000


def metadata(port: int) -> wire.UpdateMetadataRequest:
    endpoint = wire.UpdateMetadataEndpoint(port, "here", "PLAINTEXT", 0)
    broker = wire.UpdateMetadataBroker(7, [endpoint], None)
    return wire.UpdateMetadataRequest(7, controller_epoch=FAR_EPOCH, live_brokers=[broker])


def lead(topic: str, partition: int) -> wire.LeaderAndIsrRequest:
    state = wire.PartitionInfo(partition, FAR_EPOCH, 1, 0, (1,), 0, (1,))
    topic_state = wire.TopicPartitions(topic, b"9" * 16, [state])
    return wire.LeaderAndIsrRequest(7, controller_epoch=FAR_EPOCH, topic_states=[topic_state])


def stop(topic: str, partition: int) -> wire.StopReplicaRequest:
    state = wire.StopReplicaPartitionState(partition, 0, True)
    topic_state = wire.StopReplicaTopicState(topic, [state])
    return wire.StopReplicaRequest(7, controller_epoch=FAR_EPOCH, topic_states=[topic_state])


@pytest.mark.parametrize(
    ("api", "message"),
    [
        (wire.UPDATE_METADATA, metadata(70_000)),
        (wire.LEADER_AND_ISR, lead("../../outside", 0)),
        (wire.LEADER_AND_ISR, lead("t", -1)),
        (wire.STOP_REPLICA, stop("../../outside", 0)),
    ],
)
async def test_broker_refuses_bad_control_requests_and_serves_on(
    tmp_path: Path, api: Api[Any, Any], message: Any
) -> None:
    version = api.versions[1]
    async with running_broker(tmp_path) as running:
        await running.created("before")
        body = api.encode_request(message, version)
        running.plane.request(FakeRequest(1, api.key, version, body))  # type: ignore[arg-type]
        await running.plane.wait_until(lambda: 1 in running.plane.replies)
        answer = api.decode_response(running.plane.replies[1], version)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        await running.created("after")
        assert set(running.plane.topics) == {"before", "after"}
    assert running.exit_code == 0
