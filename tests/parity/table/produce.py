"""Produce: topics, acks, batches that a broker must refuse, sequences of idempotent producers."""

import gzip
import struct
from typing import Any

from tests.parity.definitions import Counted, Raw
from tests.parity.prepare import coordinator, topic
from tests.parity.rows import Row, Scenario, in_versions
from tests.support.wire import record, record_batch, varint

TOPIC = "produce"
GOOD = record_batch([b"one", b"two"])
GZIP, SNAPPY, LZ4, ZSTD, UNKNOWN_CODEC = 1, 2, 3, 4, 5
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 8, 16, 32, 64


def partition(records: Any = GOOD, index: int = 0) -> dict[str, Any]:
    return {"index": index, "records": records}


def to(name: Any, *partitions: Any) -> dict[str, Any]:
    return {"name": name, "partitionData": list(partitions or [partition()])}


def produce(
    name: str,
    records: Any = GOOD,
    *,
    version: int = 7,
    acks: int = -1,
    index: int = 0,
    topic_name: Any = TOPIC,
    topics: Any = None,
    **row: Any,
) -> Row:
    found = [to(topic_name, partition(records, index))] if topics is None else topics
    fields = {"acks": acks, "timeoutMs": 5_000, "topicData": found}
    return Row(name, "Produce", version, fields, is_answered=acks != 0, **row)


def batch(name: str, version: int = 7, topic_name: str = TOPIC, **changes: Any) -> Row:
    """A batch of two records of which one thing is wrong."""
    return produce(
        name, record_batch([b"one", b"two"], **changes), version=version, topic_name=topic_name
    )


def compressed(codec: int, payload: bytes, **changes: Any) -> bytes:
    return record_batch([b"one", b"two"], attributes=codec, payload=payload, **changes)


def sequence(name: str, first: int, epoch: int = 0, producer_id: int = 77, count: int = 2) -> Row:
    """A batch of an idempotent producer."""
    values = [b"v"] * count
    return produce(
        name,
        record_batch(values, producer=(producer_id, epoch, first)),
        topic_name="produce-sequences",
    )


RECORD = record(0, None, b"one")
TOPICS = Scenario(
    "topics and acks",
    [
        topic(TOPIC, 2),
        coordinator("produce"),  # makes __consumer_offsets
        *in_versions((3, 5, 7, 8, 9, 10, 11), lambda v: produce("a good batch", version=v)),
        *in_versions(
            (3, 8, 11), lambda v: produce("unknown topic", version=v, topic_name="produce-none")
        ),
        *in_versions((3, 11), lambda v: produce("unknown partition", version=v, index=2)),
        produce("negative partition", index=-1),
        produce("largest partition", index=2**31 - 1),
        produce("empty topic name", topic_name=""),
        produce("topic name with a slash", topic_name="a/b"),
        produce("topic name of two dots", topic_name=".."),
        produce("topic name of 250 characters", topic_name="x" * 250),
        produce("topic name of 32,767 characters", topic_name="x" * 32_767),
        produce("an internal topic", topic_name="__consumer_offsets"),
        *in_versions((3, 11), lambda v: produce("acks 2", version=v, acks=2)),
        produce("acks -2", acks=-2),
        produce("acks 32767", acks=32_767),
        produce("acks 1", acks=1),
        produce("acks 0", acks=0),
        produce("acks 0, no topics", acks=0, topics=[]),
        produce("acks 0, unknown topic", acks=0, topic_name="produce-none"),
        produce("acks 0, bad checksum", record_batch([b"x"], crc=1), acks=0),
        produce("no topics", topics=[]),
        produce("a topic without partitions", topics=[{"name": TOPIC}]),
        produce("one good, one unknown", topics=[to(TOPIC), to("produce-none")]),
        produce(
            "one good, one bad partition",
            topics=[to(TOPIC, partition(), partition(record_batch([b"x"], crc=1), 1))],
        ),
    ],
)
BATCHES = Scenario(
    "batches",
    [
        topic(TOPIC + "-batches"),
        *[
            produce(name, records, version=version, topic_name=TOPIC + "-batches")
            for name, version, records in [
                ("null records", 7, None),
                ("null records", 9, None),
                ("no records", 7, b""),
                ("no records", 11, b""),
                ("ten bytes", 7, bytes(10)),
                ("61 zero bytes", 7, bytes(61)),
                ("a batch cut by a byte", 7, GOOD[:-1]),
                ("a batch and a byte", 7, GOOD + b"\0"),
                ("a batch and half a batch", 7, GOOD + GOOD[:40]),
                ("two batches", 7, GOOD + GOOD),
                ("magic 0", 7, record_batch([b"x"], magic=0)),
                ("magic 1", 7, record_batch([b"x"], magic=1)),
                ("magic 3", 7, record_batch([b"x"], magic=3)),
                ("magic -1", 7, record_batch([b"x"], magic=-1)),
                ("length too large", 7, record_batch([b"x"], length=1_000)),
                ("length too small", 7, record_batch([b"x"], length=49)),
                ("length below a header", 7, record_batch([b"x"], length=13)),
                ("length negative", 7, record_batch([b"x"], length=-1)),
                ("bad checksum", 7, record_batch([b"x"], crc=1)),
                ("bad checksum", 11, record_batch([b"x"], crc=1)),
                ("base offset 7", 7, record_batch([b"x"], base_offset=7)),
                ("base offset -1", 7, record_batch([b"x"], base_offset=-1)),
                ("no record", 7, record_batch([], count=0, last_offset_delta=0)),
                ("negative count", 7, record_batch([b"x"], count=-1)),
                ("count one too high", 7, record_batch([b"x"], count=2)),
                ("count huge", 7, record_batch([b"x"], count=2**31 - 1)),
                (
                    "last delta and count too high",
                    7,
                    record_batch([b"x"], count=2, last_offset_delta=1),
                ),
                (
                    "last delta and count too low",
                    7,
                    record_batch([b"x", b"y"], count=1, last_offset_delta=0),
                ),
                ("last delta negative", 7, record_batch([b"x"], last_offset_delta=-1)),
                ("last delta too high", 7, record_batch([b"x"], last_offset_delta=3)),
                ("control batch", 7, record_batch([b"x"], attributes=CONTROL)),
                (
                    "transactional batch without a transactional id",
                    7,
                    record_batch([b"x"], attributes=TRANSACTIONAL, producer=(5, 0, 0)),
                ),
                ("delete horizon", 7, record_batch([b"x"], attributes=DELETE_HORIZON)),
                ("unused attributes", 7, record_batch([b"x"], attributes=0x7F80)),
                ("time of the log's append", 7, record_batch([b"x"], attributes=LOG_APPEND_TIME)),
                ("producer id without a sequence", 7, record_batch([b"x"], producer=(5, 0, -1))),
                ("producer id without an epoch", 7, record_batch([b"x"], producer=(5, -1, 0))),
                ("sequence without a producer id", 7, record_batch([b"x"], producer=(-1, 0, 3))),
                ("negative producer id", 7, record_batch([b"x"], producer=(-2, 0, 0))),
                ("largest timestamp negative", 7, record_batch([b"x"], max_timestamp_ms=-5)),
                ("timestamps of -1", 7, record_batch([b"x"], timestamp_ms=-1)),
                ("timestamp of -2", 7, record_batch([b"x"], timestamp_ms=-2)),
            ]
        ],
    ],
)
RECORDS = Scenario(
    "records",
    [
        topic(TOPIC + "-records"),
        *[
            produce(name, records, version=version, topic_name=TOPIC + "-records")
            for name, version, records in [
                ("a byte after the records", 7, record_batch([b"x"], payload=RECORD + b"\0")),
                (
                    "a record's length too large",
                    7,
                    record_batch([b"x"], payload=varint(50) + RECORD[1:]),
                ),
                (
                    "a record's length too small",
                    7,
                    record_batch([b"x"], payload=varint(3) + RECORD[1:]),
                ),
                (
                    "a record's length negative",
                    7,
                    record_batch([b"x"], payload=varint(-1) + RECORD[1:]),
                ),
                ("a record's length without end", 7, record_batch([b"x"], payload=b"\xff" * 11)),
                (
                    "a value's length too large",
                    7,
                    record_batch(
                        [b"x"], payload=varint(7) + bytes(3) + varint(-1) + varint(99) + b"xx"
                    ),
                ),
                (
                    "a value's length negative",
                    7,
                    record_batch(
                        [b"x"], payload=varint(7) + bytes(3) + varint(-1) + varint(-7) + b"xx"
                    ),
                ),
                (
                    "negative count of headers",
                    7,
                    record_batch(
                        [b"x"], payload=varint(6) + bytes(3) + varint(-1) + varint(-1) + varint(-1)
                    ),
                ),
                (
                    "huge count of headers",
                    7,
                    record_batch(
                        [b"x"],
                        payload=varint(10) + bytes(3) + varint(-1) + varint(-1) + varint(2**31 - 1),
                    ),
                ),
                (
                    "a header without a key",
                    7,
                    record_batch(
                        [b"x"],
                        payload=varint(8)
                        + bytes(3)
                        + varint(-1)
                        + varint(-1)
                        + varint(1)
                        + varint(-1)
                        + varint(-1),
                    ),
                ),
                ("unknown codec", 7, compressed(UNKNOWN_CODEC, b"xx")),
                ("codec 7", 7, compressed(7, b"xx")),
                ("gzip", 7, compressed(GZIP, gzip.compress(RECORD + record(1, None, b"two")))),
                ("gzip of nothing", 7, compressed(GZIP, gzip.compress(b""))),
                (
                    "gzip of too many records",
                    7,
                    compressed(GZIP, gzip.compress(RECORD + record(1, None, b"2") + RECORD)),
                ),
                ("gzip of too few records", 7, compressed(GZIP, gzip.compress(RECORD))),
                ("gzip that is none", 7, compressed(GZIP, b"not gzip")),
                (
                    "gzip cut short",
                    7,
                    compressed(GZIP, gzip.compress(RECORD + record(1, None, b"two"))[:-9]),
                ),
                ("snappy that is none", 7, compressed(SNAPPY, b"not snappy")),
                ("lz4 that is none", 7, compressed(LZ4, b"not lz4")),
                ("zstd that is none", 7, compressed(ZSTD, b"not zstd")),
                ("zstd", 6, compressed(ZSTD, b"not zstd")),
                ("no bytes, with gzip", 7, compressed(GZIP, b"")),
                ("offset deltas from 1", 7, record_batch([b"x"], payload=record(1, None, b"x"))),
                ("equal offset deltas", 7, record_batch([b"x", b"y"], payload=RECORD + RECORD)),
            ]
        ],
    ],
)
OPTIONS = Scenario(
    "topic options",
    [
        topic("produce-small", configs={"max.message.bytes": "100"}),
        topic("produce-segment", configs={"segment.bytes": "200"}),
        topic("produce-compact", configs={"cleanup.policy": "compact"}),
        topic("produce-past", configs={"message.timestamp.before.max.ms": "1000"}),
        topic("produce-future", configs={"message.timestamp.after.max.ms": "1000"}),
        topic("produce-isr", configs={"min.insync.replicas": "2"}),
        topic("produce-gzip", configs={"compression.type": "gzip"}),
        produce("above max.message.bytes", record_batch([b"x" * 50]), topic_name="produce-small"),
        produce(
            "as large as max.message.bytes", record_batch([b"x" * 31]), topic_name="produce-small"
        ),
        produce("above segment.bytes", record_batch([b"x" * 300]), topic_name="produce-segment"),
        produce("compacted topic, no key", topic_name="produce-compact"),
        produce(
            "compacted topic, one key missing",
            record_batch([b"", b""], payload=record(0, b"k", b"v") + record(1, None, b"v")),
            topic_name="produce-compact",
        ),
        produce(
            "compacted topic, empty key",
            record_batch([b""], payload=record(0, b"", b"v")),
            topic_name="produce-compact",
        ),
        batch("too old", topic_name="produce-past", timestamp_ms=1),
        batch("too new", topic_name="produce-future", timestamp_ms=5_000_000_000_000),
        batch("too new", version=11, topic_name="produce-future", timestamp_ms=5_000_000_000_000),
        produce("too few in-sync replicas", topic_name="produce-isr"),
        produce("too few in-sync replicas, acks 1", acks=1, topic_name="produce-isr"),
        produce("recompressed", topic_name="produce-gzip"),
    ],
)
SEQUENCES = Scenario(
    "sequences",
    [
        topic("produce-sequences"),
        sequence("a new producer begins at 3", 3),
        sequence("continues", 5),
        sequence("the same again", 5),
        sequence("a gap", 9),
        sequence("part of an earlier batch", 6, count=1),
        sequence("negative", -2),
        sequence("six batches later: 1", 7),
        sequence("six batches later: 2", 9),
        sequence("six batches later: 3", 11),
        sequence("six batches later: 4", 13),
        sequence("six batches later: 5", 15),
        sequence("the last of five again", 7),
        sequence("older than five", 5),
        sequence("next epoch begins at 0", 0, epoch=1),
        sequence("old epoch", 17, epoch=0),
        sequence("epoch after next begins at 4", 4, epoch=2),
        sequence("wraps: the last but one", 2**31 - 2, producer_id=78, count=1),
        sequence("wraps: the last", 2**31 - 1, producer_id=78, count=1),
        sequence("wraps: zero", 0, producer_id=78, count=1),
        sequence("within a batch", 2**31 - 1, producer_id=79, count=3),
        sequence("after that", 2, producer_id=79),
    ],
)


def broken(name: str, version: int, fields: dict[str, Any], **row: Any) -> Row:
    return Row(name, "Produce", version, {"acks": 1, "timeoutMs": 1, **fields}, **row)


BROKEN = Scenario(
    "broken requests",
    [
        topic(TOPIC + "-broken"),
        *in_versions(
            (3, 8, 9, 11), lambda v: broken("huge count", v, {"topicData": Counted(2**31 - 2)})
        ),
        broken("count one too high", 7, {"topicData": Counted(2, [to(TOPIC)])}),
        broken("count one too low", 7, {"topicData": Counted(0, [to(TOPIC)])}),
        broken("null topics", 7, {"topicData": None}),
        broken("null topics", 11, {"topicData": None}),
        broken("count -2", 7, {"topicData": Counted(-2)}),
        broken("null topic name", 7, {"topicData": [to(None)]}),
        broken("null topic name", 9, {"topicData": [to(None)]}),
        broken("topic name not UTF-8", 7, {"topicData": [to(Raw(b"\0\2\xff\xfe"))]}),
        broken("name longer than the frame", 7, {"topicData": [to(Raw(b"\x7f\xffx"))]}),
        broken(
            "negative length of records",
            7,
            {"topicData": [to(TOPIC, partition(Raw(struct.pack(">i", -2))))]},
        ),
        broken(
            "records longer than the frame",
            7,
            {"topicData": [to(TOPIC, partition(Raw(struct.pack(">i", 2**30) + GOOD)))]},
        ),
        broken("a byte missing", 7, {"topicData": [to(TOPIC)]}, cut=1),
        broken("a byte too many", 7, {"topicData": [to(TOPIC + "-broken")]}, tail=b"\0"),
        broken("a byte too many", 9, {"topicData": [to(TOPIC + "-broken")]}, tail=b"\0"),
        broken(
            "unknown tagged field", 9, {"topicData": [to(TOPIC + "-broken")]}, tags={99: b"abc"}
        ),
        broken("empty body", 7, {}, body=b""),
        broken("half a body", 7, {}, body=b"\xff\xff\0"),
    ],
)
SCENARIOS = (TOPICS, BATCHES, RECORDS, OPTIONS, SEQUENCES, BROKEN)
