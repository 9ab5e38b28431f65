"""A broker whose time of day jumps."""

from __future__ import annotations

import re
import time
from math import inf, nan
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from pyrklog.testing import TestBroker, Topic
from pyrklog.testing.door_client import Clock
from tests.support.waiting import wait_until

DAY_MS = 86_400_000


def send(broker: TestBroker, topic: str, value: str) -> None:
    client = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    client.produce(topic, value)
    assert client.flush(30) == 0


def is_empty(topic: Topic) -> bool:
    return not topic.records()


def test_retention_removes_what_eight_days_make_old(door: TestBroker) -> None:
    topic = door.create_topic(config={"retention.ms": 7 * DAY_MS})
    keeps = door.create_topic(config={"retention.ms": 9 * DAY_MS})
    for one in (topic, keeps):
        send(door, one, "old")
    door.clock.jump(days=8)
    assert door.clock.ahead_s == 8 * 86_400
    wait_until(lambda: is_empty(topic), "the record stays")
    assert len(keeps.records()) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seconds": "8d"}, "seconds is '8d'; clock.jump takes numbers: clock.jump(days=8)"),
        (
            {"seconds": " 1.5 h"},
            "seconds is ' 1.5 h'; clock.jump takes numbers: clock.jump(hours=1.5)",
        ),
        (
            {"days": "8"},
            "days is '8'; clock.jump takes numbers: clock.jump(90), clock.jump(days=8)",
        ),
        ({"minutes": None}, "minutes is None; clock.jump takes numbers: clock.jump(90)"),
    ],
)
def test_what_is_no_number_is_told_with_how_to_write_it(given: dict[str, Any], said: str) -> None:
    asked: list[object] = []
    clock = Clock(lambda *_, **fields: asked.append(fields))
    with pytest.raises(TypeError, match=f"^{re.escape(said)}"):
        clock.jump(**given)
    for number in (inf, nan):
        with pytest.raises(ValueError, match=r"^seconds is .*; clock\.jump takes finite numbers"):
            clock.jump(number)
    assert not asked
    clock.jump(1.5, minutes=1)
    assert asked == [{"ahead_ms": 61_500}]


def test_the_broker_stamps_with_its_own_time_and_is_set_right_again(door: TestBroker) -> None:
    topic = door.create_topic(config={"message.timestamp.type": "LogAppendTime"})
    before_ms = time.time() * 1000
    door.clock.jump(hours=2)
    door.clock.jump(minutes=-30)
    send(door, topic, "ahead")
    door.clear_faults()
    send(door, topic, "now")
    ahead, now = topic.wait_for(2)
    assert ahead.timestamp_ms >= before_ms + 90 * 60_000 - 1
    assert now.timestamp_ms < before_ms + 60 * 60_000


def test_an_open_transaction_ends_when_its_time_is_over(door: TestBroker) -> None:
    topic = door.create_topic()
    client = Producer(
        {
            "bootstrap.servers": door.bootstrap,
            "transactional.id": "slow",
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(topic, b"open")
    assert client.flush(30) == 0
    send(door, topic, "behind it")
    assert topic.records() == []
    door.clock.jump(minutes=11)
    assert [one.value for one in topic.wait_for(1, timeout_s=30)] == [b"behind it"]


def test_offsets_of_a_group_that_is_gone_expire(door: TestBroker) -> None:
    from confluent_kafka import Consumer

    topic = door.create_topic()
    client = Consumer(
        {"bootstrap.servers": door.bootstrap, "group.id": "forgotten", "log_level": 0}
    )
    client.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)

    def committed() -> int:
        found: int = client.committed([TopicPartition(topic, 0)], timeout=30)[0].offset
        return found

    assert committed() == 5
    door.clock.jump(days=8)
    wait_until(lambda: committed() < 0, "the offset stays")
    client.close()


def test_a_restarted_broker_keeps_the_time(own: TestBroker) -> None:
    topic = own.create_topic(config={"message.timestamp.type": "LogAppendTime"})
    own.clock.jump(days=1)
    own.restart()
    before_ms = time.time() * 1000
    send(own, topic, "tomorrow")
    assert topic.wait_for(1)[0].timestamp_ms >= before_ms + DAY_MS - 1
