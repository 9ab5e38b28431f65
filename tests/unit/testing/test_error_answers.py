"""Answers with errors: each of a captured request names what the request names, in its version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyrklog.errors import ErrorCode
from pyrklog.plane.core_plane import api_table
from pyrklog.protocol.primitives import DecodeError
from pyrklog.protocol.registry import find_api
from pyrklog.testing import data_apis as data
from pyrklog.testing.error_answers import error_answer, with_error
from pyrklog.testing.frames import read_head
from tests.unit.testing.corpus import Captured, captured
from tests.unit.testing.test_frames import frame_of

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER
APIS = {
    "Produce": data.PRODUCE,
    "ProduceAt": data.PRODUCE_AT,
    "Fetch": data.FETCH,
    "ListOffsets": data.LIST_OFFSETS,
    "OffsetForLeaderEpoch": data.OFFSET_FOR_LEADER_EPOCH,
    "ReplicaStart": data.REPLICA_START,
    "ReplicaSegments": data.REPLICA_SEGMENTS,
}
ANSWERED = [one for one in captured() if one.api in APIS]


def split(one: Captured) -> tuple[int, int, bytes]:
    """Key, version and body."""
    frame = frame_of(one)
    head = read_head(bytearray(frame), 0)
    assert head is not None
    return head.api_key, head.api_version, frame[head.body_start :]


def named(message: Any) -> Iterator[tuple[object, int]]:
    """Topics and partitions of a request or answer."""
    for topic in message.topics:
        name = getattr(topic, "name", None) or getattr(topic, "topic", None) or topic.topic_id
        for one in topic.partitions:
            index = next(
                getattr(one, field)
                for field in ("index", "partition", "partition_index")
                if hasattr(one, field)
            )
            yield name, index


@pytest.mark.parametrize("one", ANSWERED, ids=str)
def test_requests_are_read_to_their_end_and_every_partition_has_the_error(one: Captured) -> None:
    key, version, body = split(one)
    api: Any = APIS[one.api]
    request = api.decode_request(body, version)
    assert api.encode_request(request, version) == body, "not all of it is understood"
    answer = error_answer(key, version, body, CODE)
    assert answer is not None
    response = api.decode_response(answer.body, version)
    if answer.is_put_off:
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return
    assert list(named(response)) == list(named(request))
    codes = {part.error_code for topic in response.topics for part in topic.partitions}
    assert codes == ({CODE} if list(named(request)) else set())


@pytest.mark.parametrize("epoch", [-1, 0, 1, 7])
@pytest.mark.parametrize("version", [7, 12, 13, 17])
def test_a_fetch_that_names_changes_only_is_asked_to_name_all(version: int, epoch: int) -> None:
    topic = data.FetchTopic("orders", bytes(15) + b"1", [data.FetchPartition(3)])
    request = data.FetchRequest(session_id=9, session_epoch=epoch, topics=[topic])
    answer = error_answer(1, version, data.FETCH.encode_request(request, version), CODE)
    assert answer is not None
    response = data.FETCH.decode_response(answer.body, version)
    assert answer.is_put_off is (epoch > 0)
    assert response.session_id == 0
    if epoch > 0:
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    else:
        assert [part.error_code for part in response.topics[0].partitions] == [CODE]


def test_every_other_api_is_answered_by_its_handler_or_changed() -> None:
    changed = []
    for row in api_table():
        if row.owner == "rust":
            if row.name not in APIS:
                changed.append(row.name)
            continue
        assert find_api(row.key).versions[1] >= row.max_version
    assert sorted(changed) == ["ApiVersions", "Metadata"]
    assert error_answer(3, 9, b"", CODE) is None
    assert error_answer(18, 3, b"", CODE) is None


@pytest.mark.parametrize("version", range(13))
def test_an_answer_of_metadata_gets_the_error_in_every_topic(version: int) -> None:
    partition = data.MetadataPartition(0, 0, 1, 5, [1], [1], [])
    known = data.MetadataResponse(
        brokers=[data.MetadataBroker(1, "localhost", 9092)],
        cluster_id="cluster",
        controller_id=1,
        topics=[data.MetadataTopic(0, "orders", partitions=[partition])],
    )
    body = data.METADATA.encode_response(known, version)
    found = data.METADATA.decode_response(with_error(3, version, body, CODE), version)
    assert [(one.name, one.error_code, one.partitions) for one in found.topics] == [
        ("orders", CODE, [])
    ]
    assert [(one.host, one.port) for one in found.brokers] == [("localhost", 9092)]


def test_an_answer_of_api_versions_gets_the_error_at_its_beginning() -> None:
    body = b"\x00\x00" + b"rest"
    assert with_error(18, 3, body, ErrorCode.UNSUPPORTED_VERSION) == b"\x00\x23rest"


@pytest.mark.parametrize("api_key", [0, 1, 2, 22, 23])
def test_a_malformed_request_has_no_answer(api_key: int) -> None:
    with pytest.raises(DecodeError):
        error_answer(api_key, 4, b"\x00", CODE)
