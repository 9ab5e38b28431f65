"""Options of the sink as Spark gives them, and every way to get them wrong."""

from __future__ import annotations

import re

import pytest

from pyrklog.spark.given import OptionError
from pyrklog.spark.sink_option_names import SPELLING
from pyrklog.spark.sink_options import Batch, SinkOptions, parse

REQUIRED = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
ONCE = {"delivery": "exactly_once"}


def stream(**options: str) -> SinkOptions:
    return parse(REQUIRED | options, is_stream=True)


def batch(**options: str) -> SinkOptions:
    return parse(REQUIRED | options, is_stream=False)


def kafka(name: str, value: str) -> SinkOptions:
    return parse(REQUIRED | {f"kafka.{name}": value}, is_stream=True)


def test_defaults() -> None:
    options = stream()
    assert not options.is_exactly_once
    assert options.fail_on_data_loss
    assert options.batch is None
    assert options.ignored == ()
    producer = options.producer
    assert (producer.bootstrap_servers, producer.topic) == ("127.0.0.1:9092", None)
    assert (producer.codec, producer.batch_bytes) == ("none", 512 << 10)
    assert (producer.delivery_timeout_ms, producer.transaction_timeout_ms) == (120_000, 900_000)
    assert producer.transactional_id is None


def test_values() -> None:
    options = parse(
        {
            "KAFKA.bootstrap.servers": "a:1, b:2",
            "topic": "out",
            "checkpointlocation": "/checkpoint",
            "delivery": "Exactly_Once",
            "failondataloss": "false",
            "kafka.compression.type": "zstd",
            "kafka.batch.size": "1000",
            "kafka.buffer.memory": "2000",
            "kafka.max.request.size": "3000",
            "kafka.delivery.timeout.ms": "4000",
            "kafka.request.timeout.ms": "5000",
            "kafka.transaction.timeout.ms": "6000",
            "kafka.client.id": "me",
            "kafka.acks": "all",
            "kafka.linger.ms": "5",
            "includeHeaders": "true",
        },
        is_stream=True,
    )
    producer = options.producer
    assert (producer.bootstrap_servers, producer.topic, producer.codec) == (
        "a:1,b:2",
        "out",
        "zstd",
    )
    assert (producer.batch_bytes, producer.memory_bytes, producer.request_bytes) == (
        1000,
        2000,
        3000,
    )
    assert (producer.delivery_timeout_ms, producer.request_timeout_ms) == (4000, 5000)
    assert (producer.transaction_timeout_ms, producer.client_id) == (6000, "me")
    assert options.is_exactly_once
    assert not options.fail_on_data_loss
    assert options.ignored == ("includeHeaders", "kafka.linger.ms")


def test_a_batch_write_names_its_transaction() -> None:
    assert batch(**ONCE, txnAppId="app.1-x", txnVersion="0").batch == Batch("app.1-x", 0)
    assert batch().batch is None


def test_an_application_has_a_sink_for_each_topic() -> None:
    given = {**ONCE, "txnAppId": "copy", "txnVersion": "0"}
    sinks = [batch(**given, topic=topic).batch for topic in ("orders", "audit")]
    assert [one.sink for one in sinks if one is not None] == ["copy@orders", "copy@audit"]
    by_rows = batch(**given).batch
    assert by_rows is not None
    assert by_rows.sink == "copy@"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"delivry": "x"}, "there is no option delivry of the sink; did you mean delivery?"),
        ({"subscribe": "t"}, "option subscribe: it is of reads; to write, use topic"),
        ({"decode": "json"}, "option decode: it is of reads: make values of columns by to_json"),
        ({"minPartitions": "2"}, "there is no option minpartitions of the sink"),
        ({"path": "t"}, "a sink takes no path: use option topic, or a column topic"),
        ({"delivery": "once"}, "it can be at_least_once or exactly_once"),
        ({"topic": "a,b"}, "no topic can have the name 'a,b'"),
        ({"failOnDataLoss": "no"}, "it can be true or false"),
        ({"kafka.acks": "1"}, "kafka.acks is '1': it can be all only"),
        ({"kafka.enable.idempotence": "false"}, "it can be true only"),
        ({"kafka.compression.type": "brotli"}, "it can be none or gzip or snappy or lz4 or zstd"),
        ({"kafka.compression.zstd.level": "9"}, "at the codec's default level"),
        ({"kafka.transactional.id": "x"}, "the sink gives each task its own"),
        ({"kafka.key.serializer": "x"}, "cast or encode them in the query"),
        ({"kafka.ssl.keystore.location": "x"}, "no effect: security.protocol is PLAINTEXT"),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism is needed"),
        ({"kafka.batch.siz": "1"}, "did you mean kafka.batch.size?"),
        ({"kafka.batch.size": "0"}, "it can be a whole number from 1 to"),
        ({"kafka.transaction.timeout.ms": "3000000000"}, "it can be a whole number from 1 to"),
    ],
)
def test_mistakes(options: dict[str, str], told: str) -> None:
    for is_stream in (True, False):
        given = {name.lower(): value for name, value in (REQUIRED | options).items()}
        with pytest.raises(OptionError, match=re.escape(told)):
            parse(given, is_stream=is_stream)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (ONCE, "needs txnAppId and txnVersion"),
        (ONCE | {"txnAppId": "a"}, "needs txnAppId and txnVersion"),
        ({"txnAppId": "a"}, "option txnAppId: only with delivery exactly_once"),
        (ONCE | {"txnAppId": "a/b", "txnVersion": "1"}, "letters, digits, dots"),
        (ONCE | {"txnAppId": "a", "txnVersion": "-1"}, "'-1': it can be a whole number from 0"),
    ],
)
def test_mistakes_of_batch_writes(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=re.escape(told)):
        batch(**options)


def test_options_of_sparks_are_let_through() -> None:
    """Spark gives a stream's sink the name of its query and its checkpoint."""
    assert stream(checkpointLocation="/c", queryName="copy").ignored == ()


def test_a_stream_has_no_app() -> None:
    with pytest.raises(OptionError, match="txnVersion: a stream has Spark's ids"):
        stream(**ONCE, txnVersion="1")


def test_servers_are_needed() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is needed"):
        parse({}, is_stream=True)


def test_names_are_spelled_once() -> None:
    assert all(name == spelled.lower() for name, spelled in SPELLING.items())
