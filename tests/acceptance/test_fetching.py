"""Rows 11, 22, 25, 31, 34: what Fetch returns.

Rows 25 and 34 (franz-go's) are driven by librdkafka, aiokafka and Java, row 22 and the topic id of
row 34 on the wire: only there is to be seen what an answer omits. The Go clients are not installed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from pyrklog.testing import TestBroker
from pyrklog.testing.broker import free_port
from tests.acceptance.sites import OPTIONS, Site
from tests.support import wire
from tests.support.clients import CLIENTS, TIMEOUT_S, AioKafka, Client, Confluent, Record
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, leaders, produce
from tests.support.java_client import JavaConsumer, JavaMachine, JavaProducer
from tests.support.knowing import leaders_of, wait_until_each
from tests.support.proxy import CapturingProxy
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.jvm

UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_ID = 3, 6, 100
WITH_SESSION, WITH_RACK, WITH_TOPIC_ID = 7, 11, 13
NO_SESSION = (0, -1)
NEW_SESSION = (0, 0)


def consumer_of(site: Site, **options: object) -> Any:
    """librdkafka's, to assign by hand."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    return Consumer({"bootstrap.servers": site.bootstrap, "group.id": "none", **named})


# --- row 11 --------------------------------------------------------------------------------------


def test_row_11_a_batch_larger_than_the_fetch_limit_is_returned(
    site: Site, java: JavaMachine, topic: str
) -> None:
    site.create(topic)
    value = "0123456789abcdef" * 60_000  # just below the default max.message.bytes
    Confluent().produce(site.bootstrap, topic, [Record(b"k", value.encode()), Record(None, b"s")])
    limits = {"fetch_message_max_bytes": 1_000, "fetch_max_bytes": 1_000}
    consumer = consumer_of(site, **limits, message_max_bytes=1_000)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [consumer.poll(TIMEOUT_S).value() for _ in range(2)] == [value.encode(), b"s"]
    consumer.close()
    small: dict[str, Any] = {"max_partition_fetch_bytes": 1_000, "fetch_max_bytes": 1_000}
    with JavaConsumer(java, site.bootstrap, topic, **small) as other:
        assert [record.value for record in other.read(2)] == [value, "s"]


# --- row 22 --------------------------------------------------------------------------------------


def fetch_in_session(
    connection: wire.Connection,
    session: tuple[int, int],
    topic: str,
    offsets: Mapping[int, int],
    *,
    version: int = WITH_RACK,
    rack: str = "",
) -> tuple[int, dict[int, tuple[int, int, int]]]:
    """Fetch version 7 or 11: the session's id; by partition error, bytes of records and the replica
    that the leader prefers."""
    has_rack = version == WITH_RACK
    epoch = struct.pack(">i", -1) * has_rack
    limits = [(struct.pack(">i", p) + epoch, offset) for p, offset in offsets.items()]
    places = [start + struct.pack(">qqi", offset, -1, 1 << 20) for start, offset in limits]
    topics = wire.array([wire.string(topic) + wire.array(places)] if places else [])
    body = struct.pack(">iiiibii", -1, 0, 0, 1 << 20, 0, *session) + topics + wire.array([])
    body += wire.string(rack) * has_rack
    reply = wire.Reader(connection.request(wire.FETCH, version, body))
    reply.take(4)  # throttle time
    assert reply.number("h") == 0
    session_id = reply.number("i")
    found: dict[int, tuple[int, int, int]] = {}
    for _ in reply.array():
        assert reply.string() == topic
        for _ in reply.array():
            partition, error = reply.number("i"), reply.number("h")
            reply.take(24)  # high watermark, last stable offset, log start
            for _ in reply.array():
                reply.take(16)  # an aborted transaction
            preferred = reply.number("i") if has_rack else -1
            found[partition] = (error, len(reply.blob() or b""), preferred)
    assert reply.at == len(reply.data)
    return session_id, found


def test_row_22_fetch_sessions_omit_the_unchanged_and_no_error(site: Site, topic: str) -> None:
    site.create(topic, 2)
    absent = 7
    missing = {absent: (UNKNOWN_TOPIC_OR_PARTITION, 0, -1)}
    with wire.Connection(site.leader(topic)) as connection:
        mine = next(p for p in (0, 1) if site.leader(topic, p) == site.leader(topic))
        batch = wire.record_batch([b"v"])
        assert wire.produce(connection, topic, batch, partition=mine).error == 0
        session, found = fetch_in_session(connection, NEW_SESSION, topic, {mine: 0, absent: 0})
        assert session > 0
        assert found == {**missing, mine: (0, len(batch), -1)}
        _, found = fetch_in_session(connection, (session, 1), topic, {mine: 1})
        assert found == missing
        _, found = fetch_in_session(connection, (session, 2), topic, {})
        assert found == missing, "the error is told in each answer"
        assert wire.produce(connection, topic, batch, partition=mine).error == 0
        wait_until(
            lambda: wire.fetch(connection, topic, 1, partition=mine).records, "it is not committed"
        )
        _, found = fetch_in_session(connection, (session, 3), topic, {})
        assert found == {**missing, mine: (0, len(batch), -1)}


def test_row_22_fetch_sessions_tell_each_time_who_leads_no_more(
    cluster: BrokerCluster, topic: str
) -> None:
    admin = create(cluster, topic, 3, 3, options={"min.insync.replicas": "2"})
    produce(cluster, topic, 3, [b"v"])
    led = leaders(admin, topic)
    mine, other = 0, 1
    assert led[mine] != led[other]
    refused = (NOT_LEADER_OR_FOLLOWER, 0, -1)

    def fetch(epoch: int, session: int, offsets: Mapping[int, int]) -> tuple[int, Any]:
        """By the last version that only leaders serve."""
        return fetch_in_session(connection, (session, epoch), topic, offsets, version=WITH_SESSION)

    with wire.Connection(cluster.brokers[led[mine]].bootstrap) as connection:
        session, found = fetch(0, 0, {mine: 0, other: 0})
        assert session > 0
        assert found[mine][0] == 0
        assert found[mine][1] > 0
        assert found[other] == refused
        _, found = fetch(1, session, {mine: 1})
        assert found == {other: refused}, "the first time at the new offset"
        _, found = fetch(2, session, {})
        assert found == {other: refused}, "said once more"
        cluster.brokers[led[other]].kill()
        wait_until(lambda: leaders(admin, topic)[other] not in (led[other], -1), "nobody leads it")
        produce(cluster, topic, 3, [b"w"])
        _, found = fetch(3, session, {})
        assert found[mine][0] == 0
        assert found[mine][1] > 0
        if leaders(admin, topic)[other] == led[mine]:
            assert found[other][0] == 0
            assert found[other][1] > 0, "it leads it now"
        else:
            assert found[other] == refused


def test_row_22_fetch_sessions_name_the_preferred_replica_each_time(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    """The hint is no change either, and without it the client reads from the leader for ever."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    racks = {1: "a", 2: "b", 3: "c"}
    # No broker dies here: a session that a busy machine ends would move the leader.
    options = {"replica.selector.class": selector, "zookeeper.session.timeout.ms": 18_000}
    cluster = new_cluster(racks=racks, **options).start()
    admin = create(cluster, topic, 1, 3)
    produce(cluster, topic, 1, [b"v"])
    leader = leaders(admin, topic)[0]
    near = next(number for number in racks if number != leader)
    hint = {0: (0, 0, near)}
    with wire.Connection(cluster.brokers[leader].bootstrap) as connection:
        session, found = fetch_in_session(connection, NEW_SESSION, topic, {0: 0}, rack=racks[near])
        assert found == hint
        for epoch in (1, 2, 3):
            _, found = fetch_in_session(connection, (session, epoch), topic, {}, rack=racks[near])
            assert found == hint


# --- row 25 --------------------------------------------------------------------------------------


def test_row_25_the_first_offset_is_consumable_under_retention(site: Site, topic: str) -> None:
    """While segments are deleted, what ListOffsets calls the first offset is there to be read."""
    site.create(topic, segment_bytes="50000", retention_bytes="100000", file_delete_delay_ms="0")
    consumer = consumer_of(site, auto_offset_reset="error", enable_partition_eof=True)
    place = TopicPartition(topic, 0)
    seen: list[int] = []

    def moves_on() -> bool:
        Confluent().produce(site.bootstrap, topic, [Record(None, bytes(5_000))] * 8)
        first, _ = consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)
        consumer.assign([TopicPartition(topic, 0, first)])
        message = consumer.poll(TIMEOUT_S)
        # Between the two requests retention may have moved the log's start.
        if message.error() is None:
            assert message.offset() == first
            seen.append(first)
        else:
            assert consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)[0] > first
        return len(set(seen)) >= 4

    wait_until(moves_on, lambda: f"the first offsets are {seen}")
    first = min(set(seen) - {0})
    assert first > 0
    # Of the last batch, which is the last to be deleted: the first ones may go at any time.
    _, end = consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)
    consumer.close()
    assert AioKafka().consume(site.bootstrap, topic, 1, start=end - 8)[0].value == bytes(5_000)


# --- row 31 --------------------------------------------------------------------------------------


def test_row_31_fetch_version_11_parses(site: Site, topic: str) -> None:
    """All its fields, and nothing behind them: ``fetch_in_session`` checks that."""
    site.create(topic)
    batch = wire.record_batch([b"a", b"b"])
    with wire.Connection(site.leader(topic)) as connection:
        assert wire.produce(connection, topic, batch).error == 0
        _, found = fetch_in_session(connection, NO_SESSION, topic, {0: 0}, rack="a rack")
        assert found == {0: (0, len(batch), -1)}
        _, found = fetch_in_session(connection, NO_SESSION, topic, {0: 1})
        assert found == {0: (0, len(batch), -1)}


def test_row_31_aiokafka_fetches_by_version_11(
    new_broker: Callable[..., TestBroker], topic: str
) -> None:
    port = free_port()
    options = {**OPTIONS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    broker = new_broker(options=options).start()
    records = [Record(b"k", b"v", (("h", b"1"),))] * 3
    with CapturingProxy(broker.bootstrap, port) as proxy:
        address = f"127.0.0.1:{port}"
        AioKafka().produce(address, topic, records, codec="lz4")
        assert AioKafka().consume(address, topic, 3) == records
    assert {f.version for f in proxy.frames if f.api_key == wire.FETCH} == {WITH_RACK}


# --- row 34 --------------------------------------------------------------------------------------


def fetch_by_id(address: str, topic_id: bytes) -> int:
    """Fetch version 13 of partition 0: its error code."""
    place = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, 1 << 20) + b"\0"
    body = struct.pack(">iiiibii", -1, 0, 0, 1 << 20, 0, *NO_SESSION)
    body += b"\2" + topic_id + b"\2" + place + b"\0" + b"\1" + b"\1" + b"\0"
    with wire.Connection(address) as connection:
        reply = wire.Reader(connection.request(wire.FETCH, WITH_TOPIC_ID, body, flexible=True))
    reply.take(4)  # throttle time
    assert reply.number("h") == 0
    reply.take(4)  # session
    assert reply.take(1) == b"\2"
    assert reply.take(16) == topic_id
    assert reply.take(1) == b"\2"
    assert reply.number("i") == 0
    return reply.number("h")


def topic_id(admin: AdminClient, topic: str) -> bytes:
    from confluent_kafka import TopicCollection

    found = admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S).topic_id
    most, least = found.get_most_significant_bits(), found.get_least_significant_bits()
    return struct.pack(">qq", most, least)


def recreate(site: Site, topic: str) -> None:
    site.admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    # Else a broker that is late would still tell of the one before.
    wait_until_each(
        site.bootstrap, lambda told: not leaders_of(told, topic), f"{topic} is still there"
    )
    site.create(topic)


def test_row_34_the_id_of_a_recreated_topic_is_unknown(site: Site, topic: str) -> None:
    site.create(topic)
    before = topic_id(site.admin, topic)
    wait_until(lambda: fetch_by_id(site.leader(topic), before) == 0, "it has no leader")
    recreate(site, topic)
    after = topic_id(site.admin, topic)
    assert before != after
    assert UUID(bytes=after).int
    wait_until(lambda: fetch_by_id(site.leader(topic), after) == 0, "it has no leader")
    assert fetch_by_id(site.leader(topic), before) == UNKNOWN_TOPIC_ID


def test_row_34_java_goes_on_with_a_recreated_topic(
    site: Site, java: JavaMachine, topic: str
) -> None:
    """Fetch 13 and later name a topic by id: the consumer must learn the new one."""
    site.create(topic)
    Confluent().produce(site.bootstrap, topic, [Record(None, b"old")] * 3)
    with JavaConsumer(java, site.bootstrap, topic) as consumer:
        assert {record.value for record in consumer.read(3)} == {"old"}
        recreate(site, topic)
        Confluent().produce(site.bootstrap, topic, [Record(None, b"new")] * 5)
        assert {record.value for record in consumer.read(1)} == {"new"}


def test_row_34_librdkafka_goes_on_with_a_recreated_topic(site: Site, topic: str) -> None:
    site.create(topic)
    Confluent().produce(site.bootstrap, topic, [Record(None, b"old")] * 3)
    consumer = consumer_of(
        site, auto_offset_reset="earliest", topic_metadata_refresh_interval_ms=500
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert {consumer.poll(TIMEOUT_S).value() for _ in range(3)} == {b"old"}
    recreate(site, topic)
    Confluent().produce(site.bootstrap, topic, [Record(None, b"new")])
    values: list[bytes] = []

    def has_read() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.append(message.value())
        return bool(values)

    wait_until(has_read, "the consumer stalls", PATIENCE_S)
    assert values == [b"new"]
    consumer.close()


# --- a fetch from the middle of a batch ----------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_fetch_in_mid_batch_skips_nothing(
    site: Site, java: JavaMachine, topic: str, client: Client, codec: str
) -> None:
    """From peers' sweeps: the batch that contains the offset is returned."""
    site.create(topic)
    with JavaProducer(java, site.bootstrap, compression_type=codec, linger_ms=5_000) as producer:
        for start in (0, 20):
            producer.send(topic, [str(number) for number in range(start, start + 20)])
    batches = wire.fetch_batches(site.leader(topic), topic)
    assert [batch.record_count for batch in batches] == [20, 20]
    for start in (7, 19, 20, 33):
        found = client.consume(site.bootstrap, topic, 40 - start, start=start)
        assert [record.value for record in found] == [b"%d" % n for n in range(start, 40)]
    with JavaConsumer(java, site.bootstrap, topic) as consumer:
        consumer.seek(7)
        assert [record.offset for record in consumer.read(33)] == list(range(7, 40))
