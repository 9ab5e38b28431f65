"""Any bytes in a KRaft metadata log: written values are read, and damage is named, by
the checksum."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from pyrklog.adoption.batches import BatchError, crc32c, read_values
from pyrklog.adoption.export import ExportedTopic, encode_bootstrap
from pyrklog.adoption.kraft import KraftMetadata, KraftPartition, replay
from pyrklog.protocol.primitives import DecodeError
from tests.faults.fuzzing import damaged, finds, run

NODE_ID, METADATA_LEVEL = 1, 9
DIRECTORY_ID = b"d" * 16
HEADER_BYTES, FRAME_BYTES, CRC_AT, CRC_FROM = 61, 12, 17, 21
BEGIN, ABORT = b"\x01\x17\x00\x00", b"\x01\x19\x00\x00"
"""Records that begin and abort a transaction."""


class Example(NamedTuple):
    """A file as written, as found, and its values."""

    written: bytes
    found: bytes
    is_mended: bool
    topics: list[ExportedTopic]
    following: int


Values = Callable[[bytes], list[bytes]]
Replay = Callable[[Iterable[bytes], KraftMetadata], None]


def values_of(data: bytes) -> list[bytes]:
    return [value.data for value in read_values(data, 0, torn_end=False)]


@st.composite
def examples(draw: Any) -> Example:
    names = draw(st.lists(st.text("ab.-_7", min_size=1, max_size=8), max_size=4, unique=True))
    topics = [
        ExportedTopic(
            name,
            bytes([number + 1]) * 16,
            {index: draw(st.integers(0, 2**31 - 1)) for index in range(draw(st.integers(0, 3)))},
            draw(st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=2)),
        )
        for number, name in enumerate(names)
    ]
    following = draw(st.integers(0, 2**63 - 1))
    written = encode_bootstrap(
        NODE_ID, topics, following, lambda _topic, _index: DIRECTORY_ID, METADATA_LEVEL
    )
    found = damaged(written, draw) if draw(st.booleans()) else written
    is_mended = found != written and draw(st.booleans())
    return Example(written, mended(found) if is_mended else found, is_mended, topics, following)


def mended(data: bytes) -> bytes:
    """One batch of all the bytes, with the right checksum."""
    if len(data) < HEADER_BYTES:
        return data
    length = struct.pack(">i", len(data) - FRAME_BYTES)
    crc = struct.pack(">I", crc32c(data[CRC_FROM:]))
    return data[:8] + length + data[12:CRC_AT] + crc + data[CRC_FROM:]


def check(example: Example, values: Values = values_of, apply: Replay = replay) -> None:
    """An intact file gives what was written; a damaged one an error or, with its old checksum, the
    same values."""
    wanted = values_of(example.written)
    try:
        found = values(example.found)
    except BatchError:
        assert example.found != example.written
        return
    if example.found == example.written:
        assert found == wanted
    if not example.is_mended:
        # Bytes outside the checksum (offsets, an end at a batch's end) change no value.
        assert found == wanted[: len(found)]
    state = KraftMetadata()
    try:
        removals = [b"\x01\x09\x00" + topic.topic_id + b"\x00" for topic in example.topics]
        apply([*found, BEGIN, *removals, ABORT], state)
    except DecodeError:
        assert example.is_mended
        return
    if found == wanted:
        _check_state(state, example)


def _check_state(state: KraftMetadata, example: Example) -> None:
    assert state.next_producer_id == example.following
    found = {topic.name: topic for topic in state.topics.values()}
    assert found.keys() == {topic.name for topic in example.topics}
    for topic in example.topics:
        replica = (NODE_ID,)
        assert found[topic.name].topic_id == topic.topic_id
        assert found[topic.name].partitions == {
            index: KraftPartition(replica, replica, epoch)
            for index, epoch in topic.leader_epochs.items()
        }
        assert state.options.get(topic.name, {}) == topic.options


def without_checksum(data: bytes) -> list[bytes]:
    """The injected bug: any checksum passes."""
    return values_of(mended(data))


def without_last(data: bytes) -> list[bytes]:
    """The injected bug: the last value is taken for a torn one."""
    return values_of(data)[:-1]


def without_transactions(values: Iterable[bytes], into: KraftMetadata) -> None:
    """The injected bug: an aborted transaction counts."""
    replay([value for value in values if value not in (BEGIN, ABORT)], into)


def test_metadata_is_read_as_written_or_refused() -> None:
    run(examples(), check)


@pytest.mark.parametrize("injected", [without_checksum, without_last])
def test_a_reader_with_a_bug_is_found(injected: Values) -> None:
    finds(examples(), lambda example: check(example, values=injected))


def test_bug_that_counts_aborted_transactions_is_found() -> None:
    finds(examples(), lambda example: check(example, apply=without_transactions))
