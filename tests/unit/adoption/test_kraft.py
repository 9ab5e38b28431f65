"""Metadata records: the resulting state, and broken records."""

import struct

import pytest

from pyrklog.adoption.batches import read_values
from pyrklog.adoption.export import ExportedTopic, encode_bootstrap
from pyrklog.adoption.kraft import ALL_BROKERS, KraftMetadata, KraftPartition, replay
from pyrklog.protocol.primitives import DecodeError

A, B, DIR = b"a" * 16, b"b" * 16, b"d" * 16
OURS = [
    ExportedTopic("t", A, {0: 4, 1: 5}, {"retention.ms": "7"}),
    ExportedTopic("u", B, {0: 0}, {}),
]
BEGIN, END, ABORT = b"\x01\x17\x00\x00", b"\x01\x18\x00\x00", b"\x01\x19\x00\x00"
REMOVE_B = b"\x01\x09\x00" + B + b"\x00"


def records(topics: list[ExportedTopic] = OURS, following: int = 3000) -> list[bytes]:
    data = encode_bootstrap(1, topics, following, lambda _topic, _index: DIR, 9)
    return [value.data for value in read_values(data, 0, torn_end=False)]


def state(values: list[bytes]) -> KraftMetadata:
    found = KraftMetadata()
    replay(values, found)
    return found


def test_exported_metadata_reads_back() -> None:
    found = state(records())
    assert {t.name: (t.topic_id, t.partitions) for t in found.topics.values()} == {
        "t": (A, {0: KraftPartition((1,), (1,), 4), 1: KraftPartition((1,), (1,), 5)}),
        "u": (B, {0: KraftPartition((1,), (1,), 0)}),
    }
    assert found.options == {"t": {"retention.ms": "7"}}
    assert found.next_producer_id == 3000
    assert found.left_out == {}


def test_a_topic_that_was_removed_is_gone() -> None:
    assert state([*records(), REMOVE_B]).by_name().keys() == {"t"}


def test_a_transaction_counts_when_it_ends() -> None:
    assert state([*records(), BEGIN, REMOVE_B]).by_name().keys() == {"t", "u"}
    assert state([*records(), BEGIN, REMOVE_B, ABORT]).by_name().keys() == {"t", "u"}
    assert state([*records(), BEGIN, REMOVE_B, END]).by_name().keys() == {"t"}


def change(*fields: bytes) -> bytes:
    head = b"\x01\x05\x00" + struct.pack(">i", 1) + A + bytes([len(fields)])
    return head + b"".join(fields)


def test_changes_of_a_partition() -> None:
    new_isr = b"\x00\x09\x03" + struct.pack(">ii", 1, 2)
    new_leader = b"\x01\x04" + struct.pack(">i", 2)
    partition = state([*records(), change(new_isr, new_leader)]).topics[A].partitions[1]
    assert (partition.isr, partition.leader_epoch) == ((1, 2), 6)
    same_leader = b"\x01\x04" + struct.pack(">i", -2)
    partition = state([*records(), change(same_leader)]).topics[A].partitions[1]
    assert partition.leader_epoch == 5


def test_options_of_topics_and_brokers_end_with_null() -> None:
    head = b"\x01\x04\x00"
    cleared = head + b"\x02\x02t\x0dretention.ms\x00\x00"
    of_a_broker = head + b"\x04\x021\x0dretention.ms\x027\x00"
    of_all = head + b"\x04\x01\x0dretention.ms\x028\x00"
    ended = head + b"\x04\x01\x0dretention.ms\x00\x00"
    of_a_group = head + b"\x20\x02g\x0dretention.ms\x027\x00"
    rule = b"\x01\x12\x00"
    found = state([*records(), cleared, of_a_broker, of_all, of_a_group, rule])
    assert found.options == {"t": {}}
    assert found.broker_options == {"1": {"retention.ms": "7"}, ALL_BROKERS: {"retention.ms": "8"}}
    assert found.left_out == {"group option": 1, "access rule": 1}
    assert state([*records(), of_all, ended]).broker_options == {ALL_BROKERS: {}}


def test_exported_broker_options_read_back() -> None:
    options = {ALL_BROKERS: {"log.retention.ms": "-1"}, "1": {"log.segment.bytes": "9"}}
    data = encode_bootstrap(1, OURS, 0, lambda _topic, _index: DIR, 9, options)
    found = state([value.data for value in read_values(data, 0, torn_end=False)])
    assert found.broker_options == options
    assert found.options == {"t": {"retention.ms": "7"}}


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (b"", "ends too early"),
        (b"\x02\x09\x00" + A, "frame version 2"),
        (b"\x01\x03\x07", "version 7, known up to 2"),
        (b"\x01\x09\x00" + A[:9], "ends within an id"),
        (b"\x01\x03\x01" + bytes(4) + A + b"\xff\xff\xff\xff\x0f", "4294967294 numbers announced"),
        (b"\x01\x03\x01" + bytes(4) + b"z" * 16 + b"\x01" * 4 + bytes(12), "never made"),
        (b"\x01\x05\x00" + struct.pack(">i", 9) + A + b"\x00", "partition 9 that was never made"),
        (b"\x01\x0f\x00" + bytes(3), "ends too early"),
    ],
)
def test_broken_records_are_named(value: bytes, what: str) -> None:
    with pytest.raises(DecodeError, match=what):
        state([*records(), value])


def test_every_cut_of_every_record_is_an_error_or_a_state() -> None:
    for value in records():
        for cut in range(len(value)):
            try:
                state([*records(), value[:cut]])
            except DecodeError:
                continue
