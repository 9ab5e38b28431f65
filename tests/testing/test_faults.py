"""Faults as clients see them."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.testing import TestBroker, Topic
from tests.support import wire
from tests.support.clients import AioKafka, Record
from tests.support.waiting import wait_until

AIOKAFKA = AioKafka()


def producer(broker: TestBroker, **options: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, **options})


def send(client: Producer, topic: str, *values: str) -> list[KafkaError | None]:
    """Sends one record after another; what became of each."""
    told: list[KafkaError | None] = []
    for value in values:
        client.produce(topic, value, on_delivery=lambda error, _: told.append(error))
        assert client.flush(30) == 0
    return told


def fails(told: list[KafkaError | None]) -> bool:
    """Whether the only record was refused. (A KafkaError cannot be compared with None.)"""
    return [error is not None for error in told] == [True]


def values(topic: Topic) -> list[bytes | None]:
    return [record.value for record in topic.records()]


def told_faults(broker: TestBroker, since: int) -> list[dict[str, Any]]:
    broker.note("now")
    return [event for event in broker.events(since) if event["event"] == "fault"]


# --- fail_next -----------------------------------------------------------------------------------


def test_a_client_that_retries_gets_through(door: TestBroker) -> None:
    topic = door.create_topic()
    since = door.output.count
    fault = door.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert send(producer(door), topic, "a", "b") == [None, None]
    assert fault.fired == 2
    assert values(topic) == [b"a", b"b"]
    told = told_faults(door, since)
    assert [(one["api"], one["error"], one["times_left"]) for one in told] == [
        ("Produce", "NOT_LEADER_OR_FOLLOWER", 1),
        ("Produce", "NOT_LEADER_OR_FOLLOWER", 0),
    ]


def test_a_client_is_told_of_a_final_error_and_nothing_was_written(door: TestBroker) -> None:
    topic = door.create_topic()
    door.fail_next("produce", "message_too_large")
    told = send(producer(door), topic, "lost", "kept")
    assert told[0] is not None
    assert told[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert told[1] is None
    assert values(topic) == [b"kept"]


def test_aiokafka_reads_on_after_failed_fetches(door: TestBroker) -> None:
    topic = door.create_topic()
    AIOKAFKA.produce(door.bootstrap, topic, [Record(None, b"a"), Record(None, b"b")])
    fault = door.fail_next("Fetch", "UNKNOWN_TOPIC_OR_PARTITION", times=2)
    found = AIOKAFKA.consume(door.bootstrap, topic, 2)
    assert [record.value for record in found] == [b"a", b"b"]
    assert fault.fired == 2


def test_a_fetch_beyond_the_log_goes_where_the_client_is_told_to(door: TestBroker) -> None:
    topic = door.create_topic()
    send(producer(door), topic, "a", "b", "c")
    door.fail_next("Fetch", "OFFSET_OUT_OF_RANGE")
    consumer = Consumer(
        {
            "bootstrap.servers": door.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    read: list[bytes] = []

    def reads_all() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            read.append(message.value())
        return read[-3:] == [b"a", b"b", b"c"]

    wait_until(reads_all, lambda: f"read {read}")
    consumer.close()


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("Metadata", "LEADER_NOT_AVAILABLE"),
        ("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("ListOffsets", "NOT_LEADER_OR_FOLLOWER"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
def test_a_group_reads_past_a_failed_request_of_any_api(
    door: TestBroker, api: str, error: str
) -> None:
    topic = door.create_topic()
    fault = door.fail_next(api, error)
    send(producer(door, **{"enable.idempotence": True}), topic, "a")
    consumer = Consumer(
        {
            "bootstrap.servers": door.bootstrap,
            "group.id": f"group-{api}",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])

    def first() -> bytes | None:
        message = consumer.poll(0.1)
        return None if message is None or message.error() is not None else message.value()

    assert wait_until(first, "nothing was read") == b"a"
    assert fault.fired == 1
    consumer.close()


def test_an_administrator_is_told_in_the_words_of_the_api(door: TestBroker) -> None:
    door.fail_next("CreateTopics", "POLICY_VIOLATION")
    admin = AdminClient({"bootstrap.servers": door.bootstrap})
    with pytest.raises(KafkaException) as told:
        admin.create_topics([NewTopic("refused", 1)])["refused"].result(30)
    assert told.value.args[0].code() == KafkaError.POLICY_VIOLATION
    assert "refused" not in admin.list_topics(timeout=30).topics


def test_a_produce_without_acks_ends_its_connection_as_by_kafka(door: TestBroker) -> None:
    topic = door.create_topic()
    batch = wire.record_batch([b"x"])
    with wire.Connection(door.bootstrap) as connection:
        door.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
        body = wire.produce_body(topic, batch, acks=0)
        connection.send_frame(wire.header(wire.PRODUCE, 7, 1) + body)
        assert connection.closed_by_peer()
    assert values(topic) == []


def test_answers_stay_in_the_order_of_their_requests(door: TestBroker) -> None:
    topic = door.create_topic()
    batch = wire.record_batch([b"x"])
    with wire.Connection(door.bootstrap) as connection:
        door.delay("Metadata", 200, times=1)
        door.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
        frames = [
            wire.header(wire.METADATA, 1, 1) + wire.array([wire.string(topic)]),
            wire.header(wire.PRODUCE, 7, 2) + wire.produce_body(topic, batch),
            wire.header(wire.PRODUCE, 7, 3) + wire.produce_body(topic, batch),
            wire.header(wire.METADATA, 1, 4) + wire.array([wire.string(topic)]),
        ]
        connection.socket.sendall(
            b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
        )
        answers = [wire.Reader(connection.read_frame()).number("i") for _ in frames]
    assert answers == [1, 2, 3, 4]
    assert len(values(topic)) == 1


def test_a_fault_of_one_client_leaves_others_alone(door: TestBroker) -> None:
    topic = door.create_topic()
    fault = door.fail_next("Produce", "MESSAGE_TOO_LARGE", times=2, client_id="victim")
    assert send(producer(door), topic, "a") == [None]
    assert fails(send(producer(door, **{"client.id": "victim"}), topic, "b"))
    assert fault.fired == 1


# --- delay ---------------------------------------------------------------------------------------


def test_answers_are_held_back_until_the_delay_is_taken_back(door: TestBroker) -> None:
    topic = door.create_topic()
    client = producer(door)
    assert send(client, topic, "warm") == [None]
    fault = door.delay("Produce", 300)
    begun = time.monotonic()
    assert send(client, topic, "a", "b") == [None, None]
    assert time.monotonic() - begun >= 0.6
    fault.cancel()
    assert fault.fired == 2
    assert send(client, topic, "c") == [None]
    assert fault.fired == 2


# --- disconnect ----------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
def test_a_request_or_its_answer_is_lost(door: TestBroker, after: bool) -> None:
    topic = door.create_topic()
    batch = wire.record_batch([b"x"])
    with wire.Connection(door.bootstrap) as connection:
        fault = door.disconnect("Produce", after=after)
        assert fault is not None
        connection.send_frame(wire.header(wire.PRODUCE, 7, 1) + wire.produce_body(topic, batch))
        assert connection.closed_by_peer()
    assert fault.fired == 1
    assert len(values(topic)) == (1 if after else 0)


def test_an_idempotent_producer_writes_once_though_answers_are_lost(door: TestBroker) -> None:
    topic = door.create_topic()
    door.disconnect("Produce", times=3, after=True)
    client = producer(door, **{"enable.idempotence": True, "retry.backoff.ms": 10})
    assert send(client, topic, "a", "b") == [None, None]
    assert values(topic) == [b"a", b"b"]


def test_all_connections_close_at_once(door: TestBroker) -> None:
    with wire.Connection(door.bootstrap) as one, wire.Connection(door.bootstrap) as another:
        for connection in (one, another):
            connection.request(wire.METADATA, 1, wire.array([]))
        assert door.disconnect() is None
        assert one.closed_by_peer()
        assert another.closed_by_peer()
    with wire.Connection(door.bootstrap) as later:
        later.request(wire.METADATA, 1, wire.array([]))


# --- the door ------------------------------------------------------------------------------------


def test_mistakes_name_what_is_meant(door: TestBroker) -> None:
    with pytest.raises(ValueError, match="did you mean Produce"):
        door.fail_next("Prodcue", "NOT_LEADER_OR_FOLLOWER")
    with pytest.raises(ValueError, match="did you mean NOT_LEADER_OR_FOLLOWER"):
        door.fail_next("Produce", "NOT_LEADER")
    with pytest.raises(ValueError, match="0 times"):
        door.fail_next("Produce", 6, times=0)
    with pytest.raises(ValueError, match="is no error"):
        door.fail_next("Produce", 0)
    with pytest.raises(ValueError, match="key 9999"):
        door.delay(9999, 10)
    with pytest.raises(ValueError, match="at once"):
        door.disconnect(after=True)


def test_a_broker_without_a_door_says_how_to_get_one(broker: TestBroker) -> None:
    with pytest.raises(RuntimeError, match=r"TestBroker\(faults=True\)"):
        broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
    with pytest.raises(RuntimeError, match=r"TestBroker\(faults=True\)"):
        broker.clock.jump(1)
    command = Path(f"/proc/{broker.pid}/cmdline").read_bytes().split(b"\0")
    assert b"pyrklog" in command
    assert b"pyrklog.testing.serve" not in command


def test_bytes_that_are_no_request_end_only_their_connection(door: TestBroker) -> None:
    with wire.Connection(door.bootstrap) as connection:
        connection.socket.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(5000))
        assert connection.closed_by_peer()
    topic = door.create_topic()
    assert send(producer(door), topic, "a") == [None]


def test_large_batches_pass(door: TestBroker) -> None:
    topic = door.create_topic(config={"max.message.bytes": 10_000_000})
    door.delay("Produce", 1, times=1)
    large = "x" * 3_000_000
    client = producer(door, **{"message.max.bytes": 10_000_000})
    assert send(client, topic, large, large) == [None, None]
    assert [len(record.value or b"") for record in topic.records()] == [3_000_000] * 2


# --- kills ---------------------------------------------------------------------------------------


def test_a_killed_broker_comes_back_with_its_data_and_port_and_without_faults(
    own: TestBroker,
) -> None:
    topic = own.create_topic()
    before = own.bootstrap
    fault = own.fail_next("Produce", "MESSAGE_TOO_LARGE", times=100)
    assert fails(send(producer(own), topic, "refused"))
    own.kill()
    assert not own.running
    with pytest.raises(RuntimeError, match="not running"):
        own.fail_next("Produce", "MESSAGE_TOO_LARGE")
    own.start()
    assert own.bootstrap == before
    assert fault.fired == 0
    assert send(producer(own), topic, "a") == [None]
    own.restart()
    assert values(topic) == [b"a"]


def test_the_broker_ends_with_the_process_of_the_test(own: TestBroker) -> None:
    assert own._door is not None
    own._door.close()
    assert own.wait(30) == 0
    assert "test_process_gone" in [event["event"] for event in own.events()]
