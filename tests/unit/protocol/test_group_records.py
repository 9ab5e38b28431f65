"""The records of ``__consumer_offsets``: Kafka's bytes, every version read, garbage refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrklog.protocol import DecodeError
from pyrklog.protocol.compiler import message_writer
from pyrklog.protocol.group_records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    UnknownKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from tests.unit.protocol.messages import messages


def test_an_offset_key_has_kafkas_bytes() -> None:
    # What Kafka 3.9 wrote for group "g", topic "t", partition 7.
    assert encode_offset_key(OffsetKey("g", "t", 7)) == bytes.fromhex("0001 000167 000174 00000007")


def test_an_offset_value_has_kafkas_bytes() -> None:
    value = OffsetValue(5, leader_epoch=2, metadata="m", commit_timestamp=1)
    expected = "0003 0000000000000005 00000002 00016d 0000000000000001"
    assert encode_offset_value(value) == bytes.fromhex(expected)


def test_an_offset_with_a_time_to_live_is_written_in_version_1() -> None:
    value = OffsetValue(5, leader_epoch=2, metadata="m", commit_timestamp=1, expire_timestamp=9)
    expected = "0001 0000000000000005 00016d 0000000000000001 0000000000000009"
    assert encode_offset_value(value) == bytes.fromhex(expected)
    assert decode_offset_value(encode_offset_value(value)) == OffsetValue(
        5, metadata="m", commit_timestamp=1, expire_timestamp=9
    )


def test_a_group_has_kafkas_bytes() -> None:
    member = MemberValue("a", None, "c", "/h", 300, 10, b"\x01", b"\x02\x03")
    value = GroupValue("consumer", 4, "range", "a", 77, [member])
    expected = (
        "0003 0008636f6e73756d6572 00000004 000572616e6765 000161 000000000000004d"
        " 00000001 000161 ffff 000163 00022f68 0000012c 0000000a 0000000101 000000020203"
    )
    assert encode_group_value(value) == bytes.fromhex(expected)
    assert encode_group_key(GroupKey("g")) == bytes.fromhex("0002 000167")


def test_an_empty_generation_has_neither_protocol_nor_leader() -> None:
    expected = "0003 0008636f6e73756d6572 00000005 ffff ffff 0000000000000001 00000000"
    assert encode_group_value(GroupValue("consumer", 5, None, None, 1)) == bytes.fromhex(expected)


@pytest.mark.parametrize("version", [0, 1])
def test_both_offset_keys_are_read(version: int) -> None:
    data = version.to_bytes(2, "big") + bytes.fromhex("000167 000174 00000007")
    assert decode_key(data) == OffsetKey("g", "t", 7)


@pytest.mark.parametrize("version", [3, 11, 99, -1])
def test_keys_of_other_parts_are_told_apart(version: int) -> None:
    assert decode_key(version.to_bytes(2, "big", signed=True) + b"x") == UnknownKey(version)


def test_a_member_of_version_0_rebalances_within_its_session() -> None:
    old = GroupValue("consumer", 1, "range", "a", members=[MemberValue("a", session_timeout_ms=10)])
    out = bytearray(b"\0\0")
    message_writer(GroupValue, 0, False)(out, old)
    [member] = decode_group_value(bytes(out)).members
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (10, 10)


def test_a_flexible_value_is_read_and_its_unknown_tags_skipped() -> None:
    fields = "0000000000000005 00000002 026d 0000000000000001"
    plain = bytes.fromhex(f"0004 {fields} 00")
    tagged = bytes.fromhex(f"0004 {fields} 01 05 02 abcd")
    expected = OffsetValue(5, leader_epoch=2, metadata="m", commit_timestamp=1)
    assert decode_offset_value(plain) == decode_offset_value(tagged) == expected


@pytest.mark.parametrize("version", range(5))
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_every_value_version_is_read_back(version: int, data: st.DataObject) -> None:
    for kind, decode in ((OffsetValue, decode_offset_value), (GroupValue, decode_group_value)):
        message = data.draw(messages(kind, version))
        out = bytearray(version.to_bytes(2, "big"))
        message_writer(kind, version, version >= 4)(out, message)
        if version == 0 and isinstance(message, GroupValue):
            for member in message.members:
                member.rebalance_timeout_ms = member.session_timeout_ms
        assert decode(bytes(out)) == message


@given(data=st.data())
def test_what_is_written_is_read_back(data: st.DataObject) -> None:
    offset_key = data.draw(messages(OffsetKey, 1))
    group_key = data.draw(messages(GroupKey, 2))
    group = data.draw(messages(GroupValue, 3))
    offset = data.draw(messages(OffsetValue, 3))
    assert isinstance(offset_key, OffsetKey)
    assert isinstance(group_key, GroupKey)
    assert isinstance(group, GroupValue)
    assert isinstance(offset, OffsetValue)
    assert decode_key(encode_offset_key(offset_key)) == offset_key
    assert decode_key(encode_group_key(group_key)) == group_key
    assert decode_group_value(encode_group_value(group)) == group
    assert decode_offset_value(encode_offset_value(offset)) == offset


@pytest.mark.parametrize("version", [-1, 5, 300])
def test_unknown_value_versions_are_refused(version: int) -> None:
    data = version.to_bytes(2, "big", signed=True) + bytes(60)
    for decode in (decode_offset_value, decode_group_value):
        with pytest.raises(DecodeError, match="unknown"):
            decode(data)


@given(data=st.binary(max_size=120))
def test_garbage_is_read_or_refused_but_never_crashes(data: bytes) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_value):
        try:
            decode(data)
        except DecodeError:
            continue


@given(data=st.data())
def test_a_cut_value_is_refused(data: st.DataObject) -> None:
    group = data.draw(messages(GroupValue, 3))
    assert isinstance(group, GroupValue)
    body = encode_group_value(group)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(DecodeError):
        decode_group_value(body[:cut])
