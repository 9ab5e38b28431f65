"""Hand-written bytes, as from a hostile or newer peer."""

import struct
from typing import Any

import pytest

from pyrklog.protocol import DecodeError, EncodeError, ErrorCode
from pyrklog.protocol.api import Api
from pyrklog.protocol.cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from pyrklog.protocol.fields import Int32, Message, Str, empty_list
from pyrklog.protocol.group_admin import DESCRIBE_GROUPS, DescribeGroupsRequest
from pyrklog.protocol.offsets import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestTopic
from pyrklog.protocol.primitives import read_unsigned_varint, write_unsigned_varint
from pyrklog.protocol.producer_ids import INIT_PRODUCER_ID, InitProducerIdRequest
from pyrklog.protocol.registry import API_KEYS, find_api
from pyrklog.protocol.topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    Cursor,
    DescribeTopicPartitionsRequest,
)
from pyrklog.protocol.topics import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)


class Pair(Message):
    """Two fields of fixed width around a variable one."""

    first: Int32
    name: Str
    numbers: list[Int32] = empty_list()


PAIR = Api(999, Pair, Pair, versions=(0, 1), flexible_since=1)


def test_the_layout_of_a_plain_version() -> None:
    body = PAIR.encode_request(Pair(1, "né", [2, 3]), 0)
    assert body == struct.pack(">ih3siii", 1, 3, "né".encode(), 2, 2, 3)


def test_the_layout_of_a_flexible_version() -> None:
    body = PAIR.encode_request(Pair(1, "né", [2, 3]), 1)
    assert body == struct.pack(">ib3sbiib", 1, 4, "né".encode(), 3, 2, 3, 0)


def test_unknown_tagged_fields_are_skipped() -> None:
    body = PAIR.encode_request(Pair(1, "a"), 1)[:-1] + b"\x02\x05\x03abc\x07\x00"
    assert PAIR.decode_request(body, 1) == Pair(1, "a")


def test_a_tagged_field_is_written_only_where_it_differs_from_its_default() -> None:
    plain = CreateTopicsResponse(topics=[CreatableTopicResult("t")])
    denied = CreateTopicsResponse(topics=[CreatableTopicResult("t", topic_config_error_code=29)])
    short, long = (CREATE_TOPICS.encode_response(m, 7) for m in (plain, denied))
    assert len(long) == len(short) + 4
    assert CREATE_TOPICS.decode_response(long, 7) == denied


@pytest.mark.parametrize("tail", [b"\x01\x00\x05abc", b"\xff\xff\xff\xff\x0f", b"\x01\x00\x01\x00"])
def test_lying_tagged_fields_are_refused(tail: bytes) -> None:
    body = CREATE_TOPICS.encode_response(
        CreateTopicsResponse(topics=[CreatableTopicResult("t")]), 7
    )
    with pytest.raises(DecodeError):
        CREATE_TOPICS.decode_response(body[:-2] + tail + b"\x00", 7)


@pytest.mark.parametrize("count", [3, 2**20, 2**31 - 1])
def test_a_lying_count_is_refused_before_anything_is_allocated(count: int) -> None:
    plain = struct.pack(">ih1si", 1, 1, b"a", count) + bytes(8)
    with pytest.raises(DecodeError, match="elements announced"):
        PAIR.decode_request(plain, 0)


def test_all_arrays_of_a_request_share_one_bound() -> None:
    states = [DescribeGroupsRequest([""] * count) for count in (100, 101)]
    bodies = [DESCRIBE_GROUPS.encode_request(state, 0) for state in states]
    decoded = DESCRIBE_GROUPS.decode_request(bodies[0], 0, elements_max=100)
    assert len(decoded.groups) == 100
    with pytest.raises(DecodeError, match="more elements"):
        DESCRIBE_GROUPS.decode_request(bodies[1], 0, elements_max=100)
    assert len(DESCRIBE_GROUPS.decode_request(bodies[1], 0).groups) == 101, "no bound is left"
    topics = [OffsetFetchRequestTopic("t", [0] * 9) for _ in range(10)]
    nested = OFFSET_FETCH.encode_request(OffsetFetchRequest("g", topics), 1)
    assert OFFSET_FETCH.decode_request(nested, 1, elements_max=100).group_id == "g"
    with pytest.raises(DecodeError, match="more elements"):
        OFFSET_FETCH.decode_request(nested, 1, elements_max=99)


@pytest.mark.parametrize("length", [-1, -2, -32768])
def test_null_and_negative_strings_are_refused_where_a_string_is_required(length: int) -> None:
    with pytest.raises(DecodeError):
        PAIR.decode_request(struct.pack(">ihi", 1, length, 0), 0)


def test_invalid_utf8_is_refused() -> None:
    with pytest.raises(DecodeError, match="UTF-8"):
        PAIR.decode_request(struct.pack(">ih2si", 1, 2, b"\xc3\x28", 0), 0)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**28, 2**32 - 1])
def test_variable_length_integers(value: int) -> None:
    out = bytearray()
    write_unsigned_varint(out, value)
    assert read_unsigned_varint(bytes(out), 0) == (value, len(out))


@pytest.mark.parametrize("data", [b"\xff" * 5 + b"\x01", b"\xff\xff\xff\xff\x7f"])
def test_variable_length_integers_of_more_than_32_bits_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="32 bits"):
        read_unsigned_varint(data, 0)


@pytest.mark.parametrize(
    "pair", [Pair(2**31, "a"), Pair(1, "x" * 32768), Pair(1, "\ud800"), Pair(1, "a", [-(2**40)])]
)
@pytest.mark.parametrize("version", [0, 1])
def test_values_that_do_not_fit_are_not_written(pair: Pair, version: int) -> None:
    with pytest.raises(EncodeError):
        PAIR.encode_request(pair, version)


@pytest.mark.parametrize("version", [-1, 2])
def test_versions_that_are_not_served_are_refused(version: int) -> None:
    with pytest.raises(DecodeError, match="not served"):
        PAIR.decode_request(b"", version)
    with pytest.raises(EncodeError, match="not served"):
        PAIR.encode_request(Pair(1, "a"), version)


def test_a_field_that_an_older_version_lacks_reads_as_its_default() -> None:
    asked = InitProducerIdRequest("t", 5, producer_id=7, producer_epoch=3)
    body = INIT_PRODUCER_ID.encode_request(asked, 2)
    assert INIT_PRODUCER_ID.decode_request(body, 2) == InitProducerIdRequest("t", 5)


def test_null_is_refused_in_versions_without_null() -> None:
    by_id = DeleteTopicsResponse(responses=[DeletableTopicResult(None)])
    assert DELETE_TOPICS.encode_response(by_id, 6)
    with pytest.raises(EncodeError, match="null"):
        DELETE_TOPICS.encode_response(by_id, 5)


def test_a_message_that_may_be_null_stands_behind_a_byte() -> None:
    first, next_page = (
        DescribeTopicPartitionsRequest([], 7, cursor) for cursor in (None, Cursor("t", 2))
    )
    api = DESCRIBE_TOPIC_PARTITIONS
    assert api.encode_request(first, 0) == b"\x01\0\0\0\x07\xff\0"
    body = b"\x01\0\0\0\x07\x01\x02t\0\0\0\x02\0\0"
    assert api.encode_request(next_page, 0) == body
    assert api.decode_request(body, 0) == next_page
    assert api.decode_request(b"\x01\0\0\0\x07\x80\0", 0) == first, "any negative number"
    with pytest.raises(DecodeError, match="too early"):
        api.decode_request(body[:5], 0)


def test_lists_of_two_messages_are_never_shared() -> None:
    body = DELETE_TOPICS.encode_request(DeleteTopicsRequest(topic_names=["a"]), 5)
    one, two = (DELETE_TOPICS.decode_request(body, 5) for _ in range(2))
    one.topics.append(None)  # type: ignore[arg-type]
    assert two.topics == []


def test_an_api_that_is_flexible_from_the_start() -> None:
    assert DESCRIBE_CLUSTER.encode_request(DescribeClusterRequest(True), 0) == b"\x01\x00"


def test_the_registry_knows_each_api_by_its_key() -> None:
    assert [find_api(key).key for key in API_KEYS] == list(API_KEYS)
    with pytest.raises(KeyError):
        find_api(0)


def test_error_codes_are_kafkas() -> None:
    from kafka import errors as theirs

    classes: list[Any] = [cls for cls in vars(theirs).values() if hasattr(cls, "errno")]
    numbers = {cls.errno: cls.retriable for cls in classes if isinstance(cls.errno, int)}
    assert {code.value for code in ErrorCode} == set(range(-1, 128))
    # Kafka's table calls a corrupt message retriable; kafka-python does not.
    differing = {n for n, retriable in numbers.items() if ErrorCode(n).retriable != retriable}
    assert differing == {ErrorCode.CORRUPT_MESSAGE}
    assert ErrorCode.NOT_CONTROLLER.retriable
    assert all(code.message.endswith(".") for code in ErrorCode)
