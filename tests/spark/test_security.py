"""``format("pyrklog")`` on Apache Kafka 3.9 with TLS and SASL."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException

from tests.support.groups import create_topic, fill
from tests.support.secured_kafka import PASSWORD, SecuredKafka, secured_kafka, unsecured_token
from tests.support.sinking import sink, wait_for_values
from tests.support.spark import our_source

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("security")) as running:
        yield running


def of_kafka(options: dict[str, Any]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in options.items()}


def of_java(kafka: SecuredKafka, password: str = PASSWORD) -> dict[str, str]:
    """As the stock connector is given them."""
    jaas = f'{SCRAM} required username="alice" password="{password}";'
    return of_kafka(
        {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(kafka.certificates.ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": jaas,
        }
    )


def of_tokens(kafka: SecuredKafka, **source: str) -> dict[str, str]:
    given = {f"sasl.oauthbearer.{name}": value for name, value in source.items()}
    return of_kafka(kafka.tls_options("SASL_SSL") | {"sasl.mechanism": "OAUTHBEARER"} | given)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_stream_reads_and_writes(
    spark: Any, kafka: SecuredKafka, topic: str, tmp_path: Path, delivery: str
) -> None:
    out, options = f"{topic}-out", of_java(kafka)
    create_topic(kafka.plain, topic, 2)
    create_topic(kafka.plain, out, 2)
    fill(kafka.plain, topic, 2, 50)
    reading = {"startingOffsets": "earliest", "commitGroup": f"{topic}-lag"}
    rows = our_source(spark.readStream, kafka.sasl, topic, **reading, **options)
    query = (
        sink(rows.select("key", "value"), kafka.sasl, out, delivery=delivery, **options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    numbered = (b"%d:%d" % (partition, at) for partition in range(2) for at in range(50))
    wait_for_values(kafka.plain, out, Counter(numbered))
    consumer = Consumer({"bootstrap.servers": kafka.plain, "group.id": f"{topic}-lag"})
    try:
        (committed,) = consumer.committed([TopicPartition(topic, 0)], 30)
    finally:
        consumer.close()
    assert committed.offset == 50
    shown = "".join(str(progress.json) for progress in query.recentProgress)
    written = (path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())
    assert PASSWORD not in shown + "".join(path.read_text("latin-1") for path in written)


def test_tokens_from_a_function_that_executors_import(
    spark: Any, kafka: SecuredKafka, topic: str
) -> None:
    create_topic(kafka.plain, topic, 2)
    function = of_tokens(kafka, callable="tests.support.secured_kafka:give_token")
    frame = spark.range(20).selectExpr("CAST(id AS STRING) AS value")
    sink(frame, kafka.sasl, topic, **function).save()
    assert our_source(spark.read, kafka.sasl, topic, **function).count() == 20
    given = of_tokens(kafka, token=unsecured_token()[0])
    assert our_source(spark.read, kafka.sasl, topic, **given).count() == 20


def test_a_plan_shows_no_password(spark: Any, kafka: SecuredKafka, topic: str) -> None:
    create_topic(kafka.plain, topic, 1)
    for options in (
        of_java(kafka),
        of_kafka(kafka.sasl_options("PLAIN")),
    ):
        read = our_source(spark.read, kafka.sasl, topic, **options)
        plans = io.StringIO()
        with contextlib.redirect_stdout(plans):
            for mode in ("simple", "extended", "formatted", "cost"):
                read.explain(mode=mode)
        assert "pyrklog" in plans.getvalue().lower()
        assert PASSWORD not in plans.getvalue() + repr(read)


def test_a_refusal_is_told(spark: Any, kafka: SecuredKafka, topic: str, tmp_path: Path) -> None:
    """And by the driver, before it waits for a client that goes on trying."""
    create_topic(kafka.plain, topic, 1)
    frame = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    localhost = kafka.tls.replace("127.0.0.1", "localhost")
    for bootstrap, options, told in (
        (kafka.sasl, of_java(kafka, "hush"), "it refuses sasl.username and sasl.password"),
        (kafka.tls, {}, "it speaks TLS only"),
        (kafka.tls, of_kafka({"security.protocol": "SSL"}), "not trusted: none of ssl.ca.location"),
        (localhost, of_kafka(kafka.tls_options()), "ssl.endpoint.identification.algorithm"),
    ):
        with pytest.raises(PySparkException, match=told) as of_read:
            our_source(spark.read, bootstrap, topic, **options).count()
        with pytest.raises(PySparkException, match=told) as of_write:
            sink(frame, bootstrap, topic, **options).save()
        assert "hush" not in f"{of_read.value} {of_write.value}"
    options = of_java(kafka, "hush")
    query = (
        our_source(spark.readStream, kafka.sasl, topic, **options)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException, match="refuses sasl") as of_stream:
        query.awaitTermination(60)
    assert "hush" not in str(of_stream.value)
