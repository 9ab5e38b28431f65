"""The past lag of a group of a real broker: a known rate, a restart, a kill -9."""

import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.lag.history_saver import SAVE_SECONDS
from pyrklog.lag.lag_format import parse
from pyrklog.lag.lag_histories import SeriesKey
from pyrklog.protocol.lag import GROUP_LAG, GroupLagRequest
from pyrklog.testing import TestBroker
from tests.support.groups import create_topic
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

RATE = 50
"""Records a second."""
SECONDS = 8
FILE = "group-lag-history"
Items = list[dict[str, Any]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "data") as found:
        yield found


def commit(broker: TestBroker, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def produce(broker: TestBroker, topic: str, count: int, *, rate: int | None = None) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    began = time.time()
    for number in range(count):
        if rate is not None:
            # The rate is what is measured.
            time.sleep(max(0.0, began + number / rate - time.time()))
        producer.produce(topic, b"x", partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0


def told(broker: TestBroker, group: str, *options: str) -> Items:
    """Empty: nothing is known yet."""
    command = ["-b", broker.bootstrap, "group", "lag", group, "-o", "json", *options]
    done = CliRunner().invoke(app, command)
    if done.exit_code == 4:
        assert "nothing is known" in done.stderr
        return []
    assert done.exit_code == 0, done.stderr
    items: Items = json.loads(done.stdout)["items"]
    return items


def at_s(item: dict[str, Any]) -> float:
    return datetime.fromisoformat(item["at"]).timestamp()


def test_a_group_that_stands_still_at_a_known_rate(broker: TestBroker) -> None:
    create_topic(broker.bootstrap, "paced", 1)
    commit(broker, "still", "paced", 0)
    wait_until(lambda: told(broker, "still"), "no history")
    began = time.time()
    produce(broker, "paced", RATE * SECONDS, rate=RATE)
    late_s = time.time() - began - SECONDS
    count = RATE * SECONDS
    wait_until(lambda: told(broker, "still")[-1]["lag"] == count, "the last records are not seen")
    found = told(broker, "still", "--every", "1s")
    middle = [one for one in found if began + 2 <= at_s(one) <= began + SECONDS - 2]
    assert middle
    for one in middle:
        # Of the second that begins there; a round sees it a second later at most, or more on a
        # machine that stood still.
        elapsed_s = at_s(one) - began
        assert elapsed_s - 2 - late_s <= one["lag"] / RATE <= elapsed_s + 2
        assert elapsed_s - 3 - late_s <= one["lag_s"] <= elapsed_s + 3 + late_s
    lags = [one["lag"] for one in found if one["lag"] is not None]
    assert lags == sorted(lags)


def test_the_past_of_topics(broker: TestBroker) -> None:
    for name, count in (("t", 30), ("u", 4)):
        create_topic(broker.bootstrap, name, 1)
        produce(broker, name, count)
    commit(broker, "both", "t", 0)

    def last(*options: str) -> int | None:
        found = told(broker, "both", *options)
        return found[-1]["lag"] if found else None

    wait_until(lambda: last("-t", "t") == 30, "an only topic has no history")
    commit(broker, "both", "u", 0)
    wait_until(lambda: (last(), last("-t", "t"), last("-t", "u")) == (34, 30, 4), "no topics")
    assert last("-t", "missing") is None


def wait_for_save(broker: TestBroker, lag: int) -> None:
    def is_saved() -> bool:
        file = Path(broker.data) / "meta" / FILE
        if not file.exists():
            return False
        saved = parse(file.read_bytes(), time.time_ns() // 1_000_000).histories
        history = saved.get(SeriesKey("kept"))
        return history is not None and history.last.lag.records == lag

    wait_until(is_saved, "nothing is saved")


def lags(items: Items) -> list[int]:
    return [one["lag"] for one in items if one["lag"] is not None]


def test_a_restart_keeps_the_past(broker: TestBroker) -> None:
    create_topic(broker.bootstrap, "t", 1)
    produce(broker, "t", 10)
    commit(broker, "kept", "t", 3)
    wait_until(lambda: 7 in lags(told(broker, "kept")), "no history")
    before = told(broker, "kept")
    assert broker.stop() == 0
    broker.start()
    produce(broker, "t", 10)
    wait_until(lambda: 17 in lags(told(broker, "kept")), "no history")
    after = told(broker, "kept")
    assert at_s(after[0]) == pytest.approx(at_s(before[0]), abs=1)
    assert lags(after)[0] == 7
    assert None in [one["lag"] for one in after], "the time of the restart is unknown"


def test_kill_9_loses_the_last_seconds_only(broker: TestBroker) -> None:
    create_topic(broker.bootstrap, "t", 1)
    produce(broker, "t", 10)
    commit(broker, "kept", "t", 3)
    wait_for_save(broker, 7)
    produce(broker, "t", 5)
    wait_for_save(broker, 12)
    # A round is appended each ten seconds, whether something has moved or not.
    killed = time.time()
    broker.kill()
    broker.start()
    produce(broker, "t", 1)
    wait_until(lambda: 13 in lags(told(broker, "kept")), "no history")
    found = told(broker, "kept")
    gap = next(one for one in found if one["lag"] is None)
    assert lags(found)[0] == 7
    assert {7, 12, 13} <= set(lags(found))
    assert killed - at_s(gap) <= SAVE_SECONDS + 1


def has_past(broker: TestBroker, group: str) -> bool:
    with RawClient(broker.bootstrap) as raw:
        [found] = raw.ask(GROUP_LAG, 0, GroupLagRequest([group], history_ms=60_000)).groups
    return found.history is not None


def test_a_deleted_group_has_no_past(broker: TestBroker) -> None:
    create_topic(broker.bootstrap, "t", 1)
    produce(broker, "t", 10)
    commit(broker, "gone", "t", 0)
    wait_until(lambda: 10 in lags(told(broker, "gone")), "no history")
    done = CliRunner().invoke(app, ["-b", broker.bootstrap, "group", "delete", "gone", "-y"])
    assert done.exit_code == 0, done.stderr
    done = CliRunner().invoke(app, ["-b", broker.bootstrap, "group", "lag", "gone"])
    assert done.exit_code == 4
    wait_until(lambda: not has_past(broker, "gone"), "the next round has not forgotten it")
    commit(broker, "gone", "t", 8)

    def begins_anew() -> bool:
        found = lags(told(broker, "gone"))
        return bool(found) and set(found) == {2}

    wait_until(begins_anew, "the former group's past is told")
