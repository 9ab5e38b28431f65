"""Rows 3, 4, 10, 18, 32, 33, 38, and the largest message: what Produce takes and refuses.

Row 4 (sarama's) is driven by librdkafka: the Go clients are not installed. Rows 33 and 38 are on
the wire, since no client sends such batches; the codes are those of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import kafka
import pytest
from aiokafka import errors as aiokafka_errors
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from pyrklog.testing.broker import free_port
from tests.acceptance.sites import ONE, MakeSite, Site
from tests.support.clients import (
    CLIENTS,
    CODECS,
    TIMEOUT_S,
    AioKafka,
    Client,
    Confluent,
    KafkaPython,
    Record,
)
from tests.support.clock import START_MS
from tests.support.java_client import JavaConsumer, JavaMachine, JavaProducer, JavaThrew
from tests.support.waiting import wait_until
from tests.support.watching_proxy import LosesAnswers, WatchingProxy
from tests.support.wire import (
    OLD_SET,
    PRODUCE,
    Connection,
    batch_headers,
    fetch,
    fetch_batches,
    produce,
    record,
    record_batch,
    varint,
)

pytestmark = pytest.mark.jvm

CORRUPT_MESSAGE, INVALID_RECORD = 2, 87
GZIP = 1
CONTROL = 1 << 5
CODEC_BITS = 0b111


@pytest.mark.parametrize("own_site", [ONE], indirect=True)
@pytest.mark.parametrize("lost", [(1,), (3,), (2, 4, 5)], ids=["first", "third", "three"])
def test_row_03_a_retried_batch_returns_the_original_offset(
    own_site: MakeSite, java: JavaMachine, topic: str, lost: tuple[int, ...]
) -> None:
    """The broker appends, its answer is lost, and the Java client sends the batch once more."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    own = own_site(**{"advertised.listeners": f"PLAINTEXT://{address}"})
    watch = LosesAnswers(PRODUCE, *lost)
    values = [str(number) for number in range(8)]
    with WatchingProxy(own.brokers[0].bootstrap, port, watch, early=True):
        Site(address, 1).create(topic)
        options = {"acks": "all", "enable_idempotence": "true", "retry_backoff_ms": 10}
        with JavaProducer(java, address, **options) as producer:
            assert producer.send(topic, values, apart=True) == list(range(8))
        assert watch.seen == len(values) + len(lost)
        with JavaConsumer(java, address, topic) as consumer:
            assert [record.value for record in consumer.read(8)] == values
            assert consumer.seek_to("End") == 8, "a batch is there twice"


def test_row_04_five_in_flight_stay_in_order(site: Site, topic: str) -> None:
    site.create(topic)
    producer = Producer(
        {
            "bootstrap.servers": site.bootstrap,
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": 5,
            "linger.ms": 0,
            "batch.num.messages": 3,
        }
    )
    errors: set[Any] = set()
    for number in range(5_000):
        producer.produce(
            topic, b"%d" % number, partition=0, on_delivery=lambda error, _: errors.add(error)
        )
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == {None}
    values = [record.value for record in Confluent().consume(site.bootstrap, topic, 5_000)]
    assert values == [b"%d" % number for number in range(5_000)]


def test_row_04_lost_answers_with_five_in_flight_are_no_error(
    own_site: MakeSite, topic: str
) -> None:
    """librdkafka repeats up to five batches at once; with three brokers the leader is restarted."""
    own = own_site()
    site = own.site
    site.create(topic)
    errors: set[Any] = set()
    producer = Producer(
        {
            "bootstrap.servers": site.bootstrap,
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": 5,
            "linger.ms": 0,
            "batch.num.messages": 3,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    count = 3_000
    for number in range(count):
        producer.produce(
            topic, b"%d" % number, partition=0, on_delivery=lambda error, _: errors.add(error)
        )
        producer.poll(0)
        if number in (count // 3, 2 * count // 3):
            own.restart()
    assert producer.flush(2 * TIMEOUT_S) == 0
    assert errors == {None}
    values = [record.value for record in Confluent().consume(site.bootstrap, topic, count)]
    assert values == [b"%d" % number for number in range(count)]


def test_row_10_an_auto_created_topic_accepts_the_first_produce(
    site: Site, java: JavaMachine, topic: str
) -> None:
    for number in range(5):
        with JavaProducer(java, site.bootstrap) as producer:
            assert producer.send(f"{topic}-{number}", ["first", "second"]) == [0, 1]


def test_row_18_an_idle_producer_goes_on_after_its_state_expired(
    own_site: MakeSite, topic: str
) -> None:
    """A log forgets expired producers at the latest when it is opened."""
    own = own_site(**{"producer.id.expiration.ms": 1})
    own.site.create(topic)
    settings = {"bootstrap.servers": own.site.bootstrap, "enable.idempotence": True}
    errors: list[Any] = []
    producer = Producer({**settings, "log_level": 0})
    for number in range(3):
        producer.produce(
            topic, b"%d" % number, partition=0, on_delivery=lambda error, _: errors.append(error)
        )
        assert producer.flush(2 * TIMEOUT_S) == 0
        own.restart()
    assert errors == [None] * 3
    own.site.wait_until_led(topic)
    found = Confluent().consume(own.site.bootstrap, topic, 3)
    assert [record.value for record in found] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_row_32_compression_survives_negotiation(
    site: Site, topic: str, client: Client, codec: str
) -> None:
    """librdkafka silently stops compressing if a broker's advertised versions do not suit it."""
    site.create(topic)
    records = [Record(b"k", b"compressible " * 50, timestamp_ms=START_MS)] * 30
    client.produce(site.bootstrap, topic, records, codec=codec)
    batches = fetch_batches(site.leader(topic), topic)
    assert sum(batch.record_count for batch in batches) == len(records)
    assert {batch.attributes & CODEC_BITS for batch in batches} == {CODECS.index(codec)}


# --- batches that no client sends ----------------------------------------------------------------


GOOD = record_batch([b"good"])
THREE = [b"a", b"b", b"c"]

WRONG_CHECKSUM = {
    "a wrong CRC": record_batch([b"x"], crc=1),
    "a flipped bit": GOOD[:-1] + bytes([GOOD[-1] ^ 1]),
}

BAD = {
    "no batch": (b"", INVALID_RECORD),
    "two batches": (GOOD + GOOD, INVALID_RECORD),
    "a batch cut short": (GOOD[:-1], INVALID_RECORD),
    "a header cut short": (GOOD[:40], INVALID_RECORD),
    "a length that is negative": (record_batch([b"x"], length=-1), CORRUPT_MESSAGE),
    "a length that is too small": (record_batch([b"x"], length=20), CORRUPT_MESSAGE),
    "a length that is too large": (record_batch([b"x"], length=5_000), INVALID_RECORD),
    "an unknown format": (record_batch([b"x"], magic=3), CORRUPT_MESSAGE),
    "an old format": (OLD_SET, INVALID_RECORD),
    "more records announced": (record_batch(THREE, count=4), INVALID_RECORD),
    "fewer records announced": (record_batch(THREE, count=2), INVALID_RECORD),
    "no records announced": (record_batch([], count=0, last_offset_delta=0), INVALID_RECORD),
    "a delta that lies": (record_batch(THREE, last_offset_delta=7), INVALID_RECORD),
    "a delta that is negative": (record_batch(THREE, last_offset_delta=-1), INVALID_RECORD),
    "a count that is huge": (record_batch([b"x"], count=0x7FFFFFFF), INVALID_RECORD),
    "count and delta that are huge": (
        record_batch([b"x"], count=0x7FFFFFFF, last_offset_delta=0x7FFFFFFE),
        INVALID_RECORD,
    ),
    "a control batch": (record_batch([b"x"], attributes=CONTROL), INVALID_RECORD),
    "bytes after the records": (
        record_batch([b"x"], payload=record(0, None, b"x") + b"\x00"),
        INVALID_RECORD,
    ),
    "a record that is longer than its batch": (
        record_batch([b"x"], payload=varint(500) + record(0, None, b"x")[1:]),
        INVALID_RECORD,
    ),
    "a header count that lies": (
        record_batch([b"x"], payload=record(0, None, b"x")[:-1] + varint(1_000_000)),
        INVALID_RECORD,
    ),
    "compressed garbage": (record_batch([b"x"], attributes=GZIP, payload=b"garbage"), None),
    "an unknown codec": (record_batch([b"x"], attributes=7), None),
    "a producer without a sequence": (record_batch([b"x"], producer=(7, 0, -1)), None),
}


@pytest.fixture
def connection(site: Site, topic: str) -> Iterator[Connection]:
    """To the leader of the topic's partition."""
    site.create(topic)
    with Connection(site.leader(topic)) as one:
        yield one


def check_that_it_lives(connection: Connection, topic: str) -> None:
    """The connection takes a batch, and nothing is in the log but that."""
    assert produce(connection, topic, GOOD).base_offset == 0
    (header,) = batch_headers(fetch(connection, topic, 0).records)
    assert header.record_count == 1


@pytest.mark.parametrize("name", BAD)
def test_row_33_an_invalid_batch_is_refused_as_by_kafka(
    connection: Connection, topic: str, name: str
) -> None:
    batch, code = BAD[name]
    answer = produce(connection, topic, batch)
    assert answer.base_offset == -1
    if code is not None:
        assert answer.error == code
    assert answer.error != 0
    check_that_it_lives(connection, topic)


@pytest.mark.parametrize("name", WRONG_CHECKSUM)
def test_row_38_a_bad_crc_is_corrupt_and_the_connection_lives(
    connection: Connection, topic: str, name: str
) -> None:
    for _ in range(3):
        answer = produce(connection, topic, WRONG_CHECKSUM[name])
        assert (answer.error, answer.base_offset) == (CORRUPT_MESSAGE, -1)
    check_that_it_lives(connection, topic)


# --- from peers' sweeps --------------------------------------------------------------------------


def refused_by_librdkafka(site: Site, topic: str, size: int) -> bool:
    errors: list[int | None] = []
    producer = Producer({"bootstrap.servers": site.bootstrap})
    producer.produce(
        topic, bytes(size), on_delivery=lambda error, _: errors.append(error and error.code())
    )
    assert producer.flush(TIMEOUT_S) == 0
    assert errors in ([None], [KafkaError.MSG_SIZE_TOO_LARGE])
    return errors != [None]


def refused_by_java(java: JavaMachine, site: Site, topic: str, size: int) -> bool:
    with JavaProducer(java, site.bootstrap) as producer:
        try:
            producer.send(topic, ["x" * size])
        except JavaThrew as thrown:
            if thrown.kind == "RecordTooLargeException":
                return True
            raise
    return False


def refused_by(client: Client, error: type[Exception], site: Site, topic: str, size: int) -> bool:
    try:
        client.produce(site.bootstrap, topic, [Record(None, bytes(size))])
    except error:
        return True
    return False


def test_max_message_bytes_is_enforced(site: Site, java: JavaMachine, topic: str) -> None:
    """Of the topic, for each client, and anew when it is changed."""
    site.create(topic, max_message_bytes="10000")
    kafka_python, aiokafka = KafkaPython(), AioKafka()
    refused: list[Callable[[int], bool]] = [
        lambda size: refused_by_librdkafka(site, topic, size),
        lambda size: refused_by_java(java, site, topic, size),
        lambda size: refused_by(
            kafka_python, kafka.errors.MessageSizeTooLargeError, site, topic, size
        ),
        lambda size: refused_by(
            aiokafka, aiokafka_errors.MessageSizeTooLargeError, site, topic, size
        ),
    ]
    for is_refused in refused:
        assert [is_refused(size) for size in (9_000, 11_000, 100)] == [False, True, False]
    larger = ConfigEntry("max.message.bytes", "20000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[larger])
    site.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    wait_until(lambda: not refused[0](11_000), "the larger limit has no effect")
    for is_refused in refused:
        assert [is_refused(size) for size in (19_000, 21_000)] == [False, True]
