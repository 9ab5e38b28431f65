"""The topic of decisions, on a broker of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from pyrklog.producing import OpenTransaction, ProduceError, ProducerSettings
from pyrklog.scanning import Scan, UnknownTopicError, scan
from pyrklog.spark import decisions
from pyrklog.spark.connection import Connection
from pyrklog.spark.decisions import (
    TOPIC,
    Decision,
    DecisionLogError,
    KafkaDecisions,
    encoded,
    partition_of,
)
from pyrklog.testing import TestBroker
from tests.support.clients import Confluent, Record

pytestmark = pytest.mark.timeout(120)

ONE = OpenTransaction("pyrklog-spark/sink/p/0", 7, 3)


@pytest.fixture
def broker(new_broker: Callable[..., TestBroker]) -> TestBroker:
    options = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    return new_broker(options=options).start()


def log_of(broker: TestBroker, sink: str, transaction_timeout_ms: int = 60_000) -> KafkaDecisions:
    settings = ProducerSettings(broker.bootstrap, [], transaction_timeout_ms=transaction_timeout_ms)
    return KafkaDecisions(Connection(broker.bootstrap), settings, sink)


def others_in_the_partition_of(sink: str) -> Iterator[str]:
    names = (f"other{number}" for number in range(1000))
    return (name for name in names if partition_of(name) == partition_of(sink))


def test_the_last_decision_of_each_sink(broker: TestBroker) -> None:
    sinks = ["sink", next(others_in_the_partition_of("sink")), "third"]
    for sink in sinks:
        assert log_of(broker, sink).peek() is None
        assert log_of(broker, sink).last() is None
    for number in range(3):
        for sink in sinks:
            log = log_of(broker, sink)
            log.take_over()
            log.last()
            log.write(Decision(number, (ONE,)))
            log.write(Decision(number, is_done=True))
            log.write(Decision(number, (ONE,)))
    broker.restart()
    for sink in sinks:
        assert log_of(broker, sink).last() == Decision(2, (ONE,))


def test_who_was_overtaken_writes_nothing(broker: TestBroker) -> None:
    first, second = log_of(broker, "sink"), log_of(broker, "sink")
    for log in (first, second):
        log.take_over()
        log.last()
    with pytest.raises(ProduceError, match=r"FENCED|INVALID_PRODUCER_EPOCH"):
        first.write(Decision(1))
    second.write(Decision(2))
    assert log_of(broker, "sink").last() == Decision(2)


def test_a_topic_that_a_broker_does_not_know_yet_is_read(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a number would be decided twice, or what is decided aborted."""
    log = log_of(broker, "sink")
    log.last()
    log.write(Decision(1, (ONE,)))
    failures = iter([UnknownTopicError("it has just started")])

    def blind(*places: Any, **arguments: Any) -> Scan:
        for failure in failures:
            raise failure
        return scan(*places, **arguments)

    monkeypatch.setattr(decisions, "scan", blind)
    assert log_of(broker, "sink").last() == Decision(1, (ONE,))
    assert next(failures, None) is None


def test_what_a_former_leader_shows_is_not_all(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cut off, and knows nothing of the last decision."""
    log = log_of(broker, "sink")
    log.last()
    log.write(Decision(1, (ONE,)))
    shown = [one.end for one in scan_of(broker).progress()]
    log.write(Decision(1, is_done=True))
    reads = []

    def former(*places: Any, **arguments: Any) -> Scan:
        reads.append(arguments)
        if "end" in arguments and len(reads) < 5:
            arguments["end"] = {TOPIC: {partition_of("sink"): shown[0]}}
        return scan(*places, **arguments)

    monkeypatch.setattr(decisions, "scan", former)
    assert log_of(broker, "sink").last() == Decision(1, is_done=True)
    assert len(reads) == 5, "a look for the topic, and twice an end and what is before it"


def scan_of(broker: TestBroker) -> Scan:
    return scan({TOPIC: [partition_of("sink")]}, bootstrap_servers=broker.bootstrap)


def test_what_an_open_transaction_hides_is_waited_for(broker: TestBroker) -> None:
    """Another sink's driver died while it wrote a decision: readers of committed records see
    nothing behind it until its time is over, and would take that for the end."""
    before = log_of(broker, "sink")
    before.last()
    before.write(Decision(1))
    other = next(others_in_the_partition_of("sink"))
    hanging = log_of(broker, other, transaction_timeout_ms=10_000)
    hanging.take_over()
    producer = hanging._producer
    assert producer is not None
    producer.send(hanging._row(other.encode(), encoded(Decision(9))))
    producer.flush()
    before.write(Decision(2))
    assert log_of(broker, "sink").peek() == Decision(1), "without waiting"
    assert log_of(broker, "sink").last() == Decision(2)
    assert log_of(broker, other).last() is None, "it was aborted"


def test_foreign_values_are_told(broker: TestBroker) -> None:
    log = log_of(broker, "sink")
    log.last()
    log.write(Decision(1))
    record = Record(b"sink", b"?")
    Confluent().produce(broker.bootstrap, TOPIC, [record], partition=partition_of("sink"))
    with pytest.raises(DecisionLogError, match="a value that is no decision"):
        log_of(broker, "sink").last()


def test_the_topic_is_compacted(broker: TestBroker) -> None:
    log = log_of(broker, "sink")
    log.last()
    log.write(Decision(1))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert len(admin.list_topics(timeout=30).topics[TOPIC].partitions) == 16
