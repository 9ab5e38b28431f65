"""Versions of clients from before Kafka 0.11: Produce 0 to 2, Fetch 0 to 3, ListOffsets 0."""

from typing import Any

from tests.parity.prepare import coordinator, records, topic
from tests.parity.rows import Row, Scenario, in_versions
from tests.parity.table.fetch import fetch
from tests.parity.table.produce import produce
from tests.support.message_sets import GZIP, LOG_APPEND_TIME, message, wrapper
from tests.support.wire import record_batch

OLD = (0, 1, 2)
SNAPPY, LZ4, ZSTD, UNKNOWN_CODEC = 2, 3, 4, 7
BATCH = record_batch([b"one", b"two"])


def old(name: str, data: bytes | None, version: int = 2, **more: Any) -> Row:
    return produce(name, data, version=version, topic_name=more.pop("topic_name", "old"), **more)


TWO = message(b"one", offset=0) + message(b"two", offset=1)
SETS = Scenario(
    "message sets",
    [
        topic("old", 2),
        coordinator("old"),
        *in_versions(OLD, lambda v: old("a message of format 0", message(b"x", magic=0), v)),
        *in_versions(OLD, lambda v: old("a message of format 1", message(b"x", magic=1), v)),
        *in_versions(OLD, lambda v: old("a record batch", BATCH, v)),
        *in_versions(OLD, lambda v: old("unknown topic", TWO, v, topic_name="old-none")),
        *in_versions(OLD, lambda v: old("unknown partition", TWO, v, index=2)),
        *in_versions(OLD, lambda v: old("acks 2", TWO, v, acks=2)),
        *in_versions(OLD, lambda v: old("acks 0", TWO, v, acks=0)),
        old("two messages", TWO),
        old("with a key", message(b"x", key=b"k")),
        old("null value", message(None)),
        old("empty value and key", message(b"", key=b"")),
        old("null records", None),
        old("no bytes", b""),
        old("five bytes", bytes(5)),
        old("a message cut by a byte", TWO[:-1]),
        old("a message cut in its head", TWO[:40]),
        old("one message without its last byte", message(b"x")[:-1]),
        old("other offsets", message(b"x", offset=7) + message(b"y", offset=3)),
        old("negative offset", message(b"x", offset=-5)),
        old("wrong checksum", message(b"x", crc=1)),
        old("a wrong checksum behind a right one", message(b"x") + message(b"y", crc=1)),
        old("size 0", message(b"x", size=0)),
        old("size 13", message(b"x", size=13)),
        old("negative size", message(b"x", size=-1)),
        old("size too large", message(b"x", size=1_000)),
        old("key longer than the message", message(b"x", key_size=1_000)),
        old("negative key size", message(b"x", key_size=-2)),
        old("value longer than the message", message(b"x", value_size=1_000)),
        old("format 3", message(b"x", magic=3)),
        old("format -1", message(b"x", magic=-1)),
        old("formats 0 and 1", message(b"x", magic=0) + message(b"y", magic=1)),
        old("time -1", message(b"x", timestamp=-1)),
        old("time of the year 3000", message(b"x", timestamp=32_503_680_000_000)),
        old("append time from a client", message(b"x", attributes=LOG_APPEND_TIME)),
        old("unused attribute bits", message(b"x", attributes=0x70)),
        old(
            "one good, one bad partition",
            None,
            topics=[
                {
                    "name": "old",
                    "partitionData": [
                        {"index": 0, "records": TWO},
                        {"index": 1, "records": message(b"x", crc=1)},
                    ],
                },
            ],
        ),
        # Last, since the offsets differ from here on.
        old("time -2", message(b"x", timestamp=-2)),
    ],
)
WRAPPERS = Scenario(
    "compressed message sets",
    [
        topic("old-wrapped"),
        *[
            old(name, data, topic_name="old-wrapped")
            for name, data in [
                ("two of format 1", wrapper(TWO, offset=1)),
                (
                    "two of format 0",
                    wrapper(
                        message(b"one", magic=0) + message(b"two", magic=0, offset=1),
                        magic=0,
                        offset=1,
                    ),
                ),
                ("offset 0", wrapper(TWO)),
                ("offset below the last", wrapper(TWO + message(b"three", offset=2), offset=1)),
                ("nothing in it", wrapper(b"")),
                ("null value", message(None, attributes=GZIP)),
                ("empty value", message(b"", attributes=GZIP)),
                ("no gzip", message(b"abc", attributes=GZIP)),
                ("no snappy", message(b"abc", attributes=SNAPPY)),
                ("no lz4", message(b"abc", attributes=LZ4)),
                ("zstd", message(b"abc", attributes=ZSTD)),
                ("unknown codec", message(b"abc", attributes=UNKNOWN_CODEC)),
                ("another message beside it", wrapper(TWO, offset=1) + message(b"x", offset=2)),
                ("two wrappers", wrapper(TWO, offset=1) + wrapper(TWO, offset=3)),
                ("compressed in compressed", wrapper(wrapper(TWO, offset=1), offset=1)),
                ("format 0 in format 1", wrapper(message(b"x", magic=0))),
                ("format 1 in format 0", wrapper(message(b"x"), magic=0)),
                ("wrong checksum in it", wrapper(message(b"x", crc=1))),
                ("wrong checksum", wrapper(TWO, offset=1, crc=1)),
                ("cut in it", wrapper(TWO[:-1], offset=1)),
                ("append time", wrapper(TWO, offset=1, attributes=GZIP | LOG_APPEND_TIME)),
                (
                    "other offsets in it",
                    wrapper(message(b"x", offset=5) + message(b"y", offset=9), offset=9),
                ),
            ]
        ],
    ],
)
KEYS = Scenario(
    "message sets for a compacted topic",
    [
        topic("old-compacted", configs={"cleanup.policy": "compact"}),
        old("without a key", message(b"x"), topic_name="old-compacted"),
        old("with a key", message(b"x", key=b"k"), topic_name="old-compacted"),
        old("a tombstone", message(None, key=b"k"), topic_name="old-compacted"),
        old("without a key in a wrapper", wrapper(message(b"x")), topic_name="old-compacted"),
        old("format 0 without a key", message(b"x", magic=0), topic_name="old-compacted"),
    ],
)
LIMITS = Scenario(
    "message sets and limits",
    [
        topic("old-limits", configs={"max.message.bytes": "200"}),
        old("larger than max.message.bytes", message(bytes(300)), topic_name="old-limits"),
        old("fits", message(bytes(100)), topic_name="old-limits"),
        topic("old-append-time", configs={"message.timestamp.type": "LogAppendTime"}),
        old("append time of the topic", message(b"x"), topic_name="old-append-time"),
        old("append time, format 0", message(b"x", magic=0), topic_name="old-append-time"),
    ],
)


def list_offsets(name: str, timestamp: int = -1, index: int = 0, **more: Any) -> Row:
    wanted = {
        "partitionIndex": index,
        "timestamp": timestamp,
        "maxNumOffsets": more.get("most", 1),
    }
    topics = [{"name": more.get("topic_name", "old-fetch"), "partitions": [wanted]}]
    return Row(name, "ListOffsets", 0, {"replicaId": -1, "topics": topics})


def place(index: int = 0, offset: int = 0, max_bytes: int = 1 << 20) -> dict[str, Any]:
    return {"partition": index, "fetchOffset": offset, "partitionMaxBytes": max_bytes}


FETCHES = Scenario(
    "old fetches",
    [
        topic("old-fetch", 2),
        records("old-fetch", 3),
        *[
            row
            for version in (0, 1, 2, 3)
            for row in (
                fetch("from the beginning", version=version, topic_name="old-fetch"),
                fetch("at the end", place(offset=3), version=version, topic_name="old-fetch"),
                fetch("above the end", place(offset=4), version=version, topic_name="old-fetch"),
                fetch("negative", place(offset=-1), version=version, topic_name="old-fetch"),
                fetch("unknown topic", version=version, topic_name="old-none"),
                fetch("unknown partition", place(2), version=version, topic_name="old-fetch"),
                fetch("replica 99", version=version, topic_name="old-fetch", replicaId=99),
            )
        ],
        fetch("max bytes 0", version=3, topic_name="old-fetch", maxBytes=0),
        fetch("partition max bytes 0", place(max_bytes=0), version=3, topic_name="old-fetch"),
        fetch("a partition twice", place(), place(), version=2, topic_name="old-fetch"),
        fetch("no topics", version=0, topics=[]),
        list_offsets("latest"),
        list_offsets("earliest", -2),
        list_offsets("several", -1, most=10),
        list_offsets("none", -1, most=0),
        list_offsets("a negative number", -1, most=-1),
        list_offsets("by time", 1),
        list_offsets("time -3", -3),
        list_offsets("unknown topic", topic_name="old-none"),
        list_offsets("unknown partition", index=9),
    ],
)
SWITCHES = Scenario(
    "down-conversion refused",
    [
        topic("old-refused", configs={"message.downconversion.enable": "false"}),
        records("old-refused", 3),
        *in_versions((0, 2, 3, 4), lambda v: fetch("records", version=v, topic_name="old-refused")),
        topic("old-zstd", configs={"compression.type": "zstd"}),
        records("old-zstd", 3),
        *in_versions((0, 3, 9, 10), lambda v: fetch("zstd", version=v, topic_name="old-zstd")),
        old("a message for a zstd topic", message(b"x"), topic_name="old-zstd"),
    ],
)


def commit(name: str, version: int, **more: Any) -> Row:
    partition = {"partitionIndex": 0, "committedOffset": 5, "committedMetadata": "m"}
    if version == 1:
        partition["commitTimestamp"] = -1
    fields: dict[str, Any] = {
        "groupId": more.get("group", "old-group"),
        "topics": [{"name": more.get("topic_name", "old-offsets"), "partitions": [partition]}],
    }
    if version > 0:
        fields |= {"generationIdOrMemberEpoch": -1, "memberId": ""}
    return Row(name, "OffsetCommit", version, fields)


def committed(name: str, version: int, **more: Any) -> Row:
    topics = [{"name": more.get("topic_name", "old-offsets"), "partitionIndexes": [0]}]
    fields = {"groupId": more.get("group", "old-group"), "topics": topics}
    return Row(name, "OffsetFetch", version, fields)


OFFSETS = Scenario(
    "old commits",
    [
        topic("old-offsets"),
        coordinator("old-group"),
        commit("a commit", 1),
        committed("what was committed", 1),
        commit("unknown topic", 1, topic_name="old-none"),
        commit("in ZooKeeper", 0),
        commit("in ZooKeeper, unknown topic", 0, topic_name="old-none"),
        committed("in ZooKeeper", 0),
        committed("in ZooKeeper, unknown topic", 0, topic_name="old-none"),
    ],
)
SCENARIOS = (SETS, WRAPPERS, KEYS, LIMITS, FETCHES, SWITCHES, OFFSETS)
