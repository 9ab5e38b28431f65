"""The codecs for answers with errors, against what the broker itself answers, in every version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyrklog.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pyrklog.testing import TestBroker, admin
from pyrklog.testing import data_apis as data
from tests.support import wire

VERSIONS = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in (
        data.PRODUCE,
        data.FETCH,
        data.LIST_OFFSETS,
        data.OFFSET_FOR_LEADER_EPOCH,
        data.METADATA,
    )
    for version in range(api.versions[0], api.versions[1] + 1)
]
LATEST = -1


@pytest.fixture(scope="module")
def connection(broker: TestBroker) -> Iterator[wire.Connection]:
    with wire.Connection(broker.bootstrap) as opened:
        yield opened


@pytest.fixture(scope="module")
def stored(broker: TestBroker, connection: wire.Connection) -> str:
    """A topic with a record."""
    name = "codecs"
    admin.create_topic(broker.address, name, partitions=1, timeout_s=10)
    assert wire.produce(connection, name, wire.record_batch([b"x"])).error == 0
    return name


def request_of(api: Any, version: int, topic: str, topic_id: bytes) -> Any:
    if api is data.PRODUCE:
        records = wire.record_batch([b"x"]) if version >= 3 else wire.OLD_SET
        return data.ProduceRequest(
            timeout_ms=5000, topics=[data.ProduceTopic(topic, [data.ProducePartition(0, records)])]
        )
    if api is data.FETCH:
        partition = data.FetchPartition(0, partition_max_bytes=1000)
        topics = [data.FetchTopic(topic, topic_id, [partition])]
        return data.FetchRequest(max_bytes=1000, session_epoch=0, topics=topics)
    if api is data.LIST_OFFSETS:
        asked = ListOffsetsPartition(0, timestamp=LATEST)
        return ListOffsetsRequest(topics=[ListOffsetsTopic(topic, [asked])])
    if api is data.OFFSET_FOR_LEADER_EPOCH:
        epochs = [data.EpochPartition(0, leader_epoch=0)]
        return data.OffsetForLeaderEpochRequest(topics=[data.EpochTopic(topic, epochs)])
    return data.MetadataRequest([data.MetadataRequestTopic(name=topic)])


def ask(connection: wire.Connection, api: Any, version: int, request: Any) -> bytes:
    flexible = version >= api.flexible_since
    body = api.encode_request(request, version)
    return connection.request(api.key, version, body, flexible=flexible)


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_an_answer_is_understood_and_made_byte_by_byte(
    connection: wire.Connection, stored: str, api: Any, version: int
) -> None:
    newest = data.METADATA.versions[1]
    request = request_of(data.METADATA, newest, stored, b"")
    known = data.METADATA.decode_response(
        ask(connection, data.METADATA, newest, request), newest
    ).topics[0]
    body = ask(connection, api, version, request_of(api, version, stored, known.topic_id))
    response = api.decode_response(body, version)
    assert api.encode_response(response, version) == body
    [topic] = response.topics
    assert [partition.error_code for partition in topic.partitions] == [0]
