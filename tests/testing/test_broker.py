"""What is no fault: topics, records, the log."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from pyrklog.errors import ApiError, ErrorCode
from pyrklog.testing import TestBroker


def test_records_come_whole_and_by_partition_and_offset(door: TestBroker) -> None:
    with pytest.raises(TypeError, match=r'a mapping, such as {"retention.ms": 1000}, not a list'):
        door.create_topic(config=["retention.ms=1000"])  # type: ignore[arg-type]
    topic = door.create_topic(partitions=2)
    client = Producer({"bootstrap.servers": door.bootstrap, "log_level": 0})
    client.produce(topic, None, key=b"k", partition=1, timestamp=17, headers=[("h", b"1")])
    client.produce(topic, b"first", partition=0)
    client.produce(topic, b"second", partition=0)
    assert client.flush(30) == 0
    found = topic.wait_for(3)
    assert [(one.partition, one.offset, one.key, one.value) for one in found] == [
        (0, 0, None, b"first"),
        (0, 1, None, b"second"),
        (1, 0, b"k", None),
    ]
    assert found[2].timestamp_ms == 17
    assert list(found[2].headers) == [("h", b"1")]
    assert topic.records() == found


def test_a_wait_says_how_many_records_there_are(door: TestBroker) -> None:
    topic = door.create_topic()
    client = Producer({"bootstrap.servers": door.bootstrap, "log_level": 0})
    client.produce(topic, b"only")
    assert client.flush(30) == 0
    with pytest.raises(TimeoutError, match="1 of 2 records"):
        topic.wait_for(2, timeout_s=1)


def test_only_what_transactions_committed_is_a_record(door: TestBroker) -> None:
    topic = door.create_topic()
    client = Producer(
        {"bootstrap.servers": door.bootstrap, "transactional.id": "txn", "log_level": 0}
    )
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(topic, b"aborted")
    client.abort_transaction(30)
    client.begin_transaction()
    client.produce(topic, b"committed")
    client.commit_transaction(30)
    # The marker follows the answer.
    assert [one.value for one in topic.wait_for(1)] == [b"committed"]
    assert [one.value for one in topic.records()] == [b"committed"]


def test_what_is_refused_has_its_code(door: TestBroker) -> None:
    door.create_topic("taken", config={"retention.ms": 1000, "preallocate": True})
    with pytest.raises(ApiError) as told:
        door.create_topic("taken")
    assert told.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(ApiError) as told:
        door.create_topic(config={"no.such.option": 1})
    assert told.value.code == ErrorCode.INVALID_CONFIG
    door.delete_topic("taken")
    door.delete_topic("taken")


def test_no_fault_meets_the_tools_of_the_test(door: TestBroker) -> None:
    for api in ("Metadata", "Fetch", "ListOffsets", "CreateTopics"):
        door.fail_next(api, "UNKNOWN_SERVER_ERROR", times=100)
    topic = door.create_topic()
    assert topic.records() == []


def test_a_note_stands_where_it_was_written(door: TestBroker) -> None:
    place = door.output.count
    door.create_topic("noted")
    door.note("then this")
    events = door.events(place)
    names = [event["event"] for event in events]
    assert names.index("topic_created") < names.index("note")
    assert events[-1]["text"] == "then this"
