"""Rows 1, 7, 12, 13: what ListOffsets and OffsetForLeaderEpoch tell.

Row 7 (franz-go's) is asked by the Java client and on the wire, row 12 (sarama's and franz-go's) by
librdkafka and aiokafka of batches made by hand: the Go clients are not installed.
"""

from __future__ import annotations

import asyncio
import gzip
import struct
from typing import NamedTuple

import aiokafka
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.acceptance.sites import Site
from tests.support import wire
from tests.support.clients import TIMEOUT_S
from tests.support.clock import START_MS
from tests.support.java_client import JavaConsumer, JavaMachine, JavaProducer, JavaThrew
from tests.support.knowing import told_by
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm

UNDEFINED = (-1, -1)
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75
OFFSET_FOR_LEADER_EPOCH = 23
GZIP = 1


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_row_01_offsets_for_times_are_the_first_at_or_after(
    site: Site, java: JavaMachine, topic: str, codec: str
) -> None:
    site.create(topic)
    stamps = [START_MS + 1_000 * step for step in (10, 30, 20, 40, 40, 35, 60)]
    values = [str(number) for number in range(len(stamps))]
    with JavaProducer(java, site.bootstrap, compression_type=codec) as producer:
        producer.send(topic, values[:3], stamps[:3])
        producer.send(topic, values[3:], stamps[3:], apart=True)
    times = [0, *range(START_MS, START_MS + 62_000, 1_000), START_MS + 59_999, START_MS + 60_001]
    wanted = [
        next(((offset, stamp) for offset, stamp in enumerate(stamps) if stamp >= time), None)
        for time in times
    ]
    with JavaConsumer(java, site.bootstrap, topic) as consumer:
        assert consumer.offsets_for_times(times) == wanted
    assert wanted[-1] is None


class Epochs(NamedTuple):
    """An answer of OffsetForLeaderEpoch."""

    error: int
    epoch: int
    end: int


def ask_epoch(address: str, topic: str, epoch: int, current: int = -1) -> Epochs:
    """Version 3, of partition 0. ``current``: the leader epoch that the client knows."""
    place = struct.pack(">iii", 0, current, epoch)
    body = struct.pack(">i", -1) + wire.array([wire.string(topic) + wire.array([place])])
    with wire.Connection(address) as connection:
        reply = wire.Reader(connection.request(OFFSET_FOR_LEADER_EPOCH, 3, body))
    reply.take(4)  # throttle time
    assert (reply.number("i"), reply.string(), reply.number("i")) == (1, topic, 1)
    error, partition = reply.number("h"), reply.number("i")
    assert partition == 0
    return Epochs(error, reply.number("i"), reply.number("q"))


def current_epoch(site: Site, topic: str) -> int:
    (found,) = (one for one in told_by(site.leader(topic)).topics if one.name == topic)
    return int(found.partitions[0].leader_epoch)


def test_row_07_offset_for_leader_epoch_past_and_future(
    site: Site, java: JavaMachine, topic: str
) -> None:
    """With three brokers the leader moves, so that there is a past."""
    site.create(topic)
    first = current_epoch(site, topic)
    with JavaProducer(java, site.bootstrap) as producer:
        producer.send(topic, ["a"] * 5, apart=True)
        if site.replicas > 1:
            leader = int(site.admin.list_topics(topic).topics[topic].partitions[0].leader)
            others = sorted({1, 2, 3} - {leader})
            java.move_leader(site.bootstrap, topic, [*others, leader])
            wait_until(lambda: current_epoch(site, topic) > first, "the leader does not move")
        producer.send(topic, ["b"] * 3, apart=True)
    now, address = current_epoch(site, topic), site.leader(topic)
    assert ask_epoch(address, topic, now) == (0, now, 8)
    assert ask_epoch(address, topic, now, current=now) == (0, now, 8)
    for future in (now + 1, now + 1_000, 2**31 - 1):
        assert ask_epoch(address, topic, future) == (0, *UNDEFINED)
    assert ask_epoch(address, topic, now, current=now + 1).error == UNKNOWN_LEADER_EPOCH
    if now > 0:
        assert ask_epoch(address, topic, now, current=now - 1).error == FENCED_LEADER_EPOCH
    if now > first:
        assert ask_epoch(address, topic, first) == (0, first, 5)
        read_past_the_end_of_an_epoch(site, java, topic, first)


def read_past_the_end_of_an_epoch(site: Site, java: JavaMachine, topic: str, epoch: int) -> None:
    """The Java client asks for the epoch's end before it reads (KIP-320)."""
    with JavaConsumer(java, site.bootstrap, topic) as consumer:
        consumer.seek(3, epoch)
        assert consumer.read(5)[0].offset == 3
        consumer.seek(7, epoch)
        assert consumer.read(3)[0].offset == 5, "the epoch's end"
    with JavaConsumer(java, site.bootstrap, topic, auto_offset_reset="none") as consumer:
        consumer.seek(7, epoch)
        with pytest.raises(JavaThrew) as caught:
            consumer.read(1)
        assert caught.value.kind == "LogTruncationException"


@pytest.mark.parametrize("codec", [0, GZIP], ids=["plain", "gzip"])
def test_row_12_time_queries_without_the_clients_max_timestamp(
    site: Site, java: JavaMachine, topic: str, codec: int
) -> None:
    """Some clients leave the batch's largest timestamp unset."""
    site.create(topic)
    with wire.Connection(site.leader(topic)) as connection:
        for number in range(4):
            records = wire.record(0, None, b"x") + wire.record(1, None, b"y")
            batch = wire.record_batch(
                [b"x", b"y"],
                attributes=codec,
                payload=gzip.compress(records) if codec else records,
                timestamp_ms=START_MS + 1_000 * number,
                max_timestamp_ms=-1,
            )
            assert wire.produce(connection, topic, batch) == wire.Produced(0, 2 * number)
    times = [START_MS, START_MS + 1, START_MS + 2_000, START_MS + 2_001]
    wanted = [0, 2, 4, 6]
    assert [ask_librdkafka(site, topic, time) for time in times] == wanted
    assert [asyncio.run(ask_aiokafka(site, topic, time)) for time in times] == wanted
    assert ask_librdkafka(site, topic, START_MS + 3_001) == -1
    assert java.list_offset(site.bootstrap, topic, "max") == (6, START_MS + 3_000)


def ask_librdkafka(site: Site, topic: str, time_ms: int) -> int:
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": "none"})
    place = TopicPartition(topic, 0, time_ms)
    (found,) = consumer.offsets_for_times([place], timeout=TIMEOUT_S)
    consumer.close()
    return int(found.offset)


async def ask_aiokafka(site: Site, topic: str, time_ms: int) -> int:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=site.bootstrap, group_id=None)
    place = aiokafka.TopicPartition(topic, 0)
    await consumer.start()
    try:
        found = await consumer.offsets_for_times({place: time_ms})
        return int(found[place].offset)
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_row_13_max_timestamp(site: Site, java: JavaMachine, topic: str, codec: str) -> None:
    site.create(topic)
    assert java.list_offset(site.bootstrap, topic, "max") == UNDEFINED
    with JavaProducer(java, site.bootstrap, compression_type=codec) as producer:
        stamps = [START_MS + 1_000 * step for step in (10, 50, 30)]
        producer.send(topic, ["a", "b", "c"], stamps)
        assert java.list_offset(site.bootstrap, topic, "max") == (1, START_MS + 50_000)
        producer.send(topic, ["d"], [START_MS + 20_000])
        assert java.list_offset(site.bootstrap, topic, "max") == (1, START_MS + 50_000)
        producer.send(topic, ["e", "f"], [START_MS + 70_000, START_MS + 60_000])
    assert java.list_offset(site.bootstrap, topic, "max") == (4, START_MS + 70_000)
