"""Lag in seconds of a real broker, at a rate that the test keeps."""

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.testing import TestBroker
from tests.support.broker_http import ANY_PORT, scrape
from tests.support.groups import create_topic
from tests.support.waiting import wait_until

RATE = 50
"""Records a second."""
SECONDS = 6
TOLERANCE_S = 1.0


class Paced:
    """A topic with one partition, and when each record was sent and acknowledged."""

    def __init__(self, broker: TestBroker) -> None:
        self.broker = broker
        self.sent: list[float] = []
        self.acknowledged: list[float] = []
        self.tolerance_s = TOLERANCE_S
        create_topic(broker.bootstrap, "paced", 1)

    def produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 0})
        began = time.time()
        for number in range(RATE * SECONDS):
            # The rate is what is measured.
            time.sleep(max(0.0, began + number / RATE - time.time()))
            self.sent.append(time.time())
            producer.produce("paced", b"x", partition=0)
            assert producer.flush(30) == 0
            self.acknowledged.append(time.time())
        # The history is straight between two looks at the log end, and the rate is not where the
        # machine stood still.
        self.tolerance_s += max(later - one for one, later in pairwise(self.acknowledged))

    def commit(self, group: str, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition("paced", 0, offset)], asynchronous=False)
        consumer.close()

    def scraped(self, group: str) -> float:
        """Lag in seconds, which is right by the times of the records."""
        key = ("pyrklog_group_partition_lag_seconds", group, "0", "paced")
        found: list[float] = []

        def is_told() -> bool:
            """A broker that has just started may still load the group."""
            told = scrape(self.broker, f"/metrics/detail?group={group}")
            found.extend([told[key]] if key in told else [])
            return bool(found)

        wait_until(is_told, f"no lag of {group}")
        return found[0]

    def check(self, lag_s: float, offset: int, asked_at: float) -> None:
        least = asked_at - self.acknowledged[offset] - self.tolerance_s
        most = time.time() - self.sent[offset] + self.tolerance_s
        assert least <= lag_s <= most


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paced]:
    folder = tmp_path_factory.mktemp("lag") / "data"
    with TestBroker(folder, options=ANY_PORT) as broker:
        found = Paced(broker)

        def has_history() -> bool:
            return scrape(broker)["pyrklog_lag_histories",] == 1

        wait_until(has_history, lambda: "no history")
        found.produce()
        yield found


def test_a_known_rate_gives_the_seconds(paced: Paced) -> None:
    for offset in (0, 1, 70, 149, 250, 299):
        group = f"g{offset}"
        paced.commit(group, offset)
        asked_at = time.time()
        paced.check(paced.scraped(group), offset, asked_at)


def test_a_group_that_has_read_everything_has_none(paced: Paced) -> None:
    paced.commit("done", RATE * SECONDS)
    found = scrape(paced.broker, "/metrics/detail?group=done")
    assert found["kafka_consumergroup_lag", "done", "0", "paced"] == 0
    assert found["pyrklog_group_partition_lag_seconds", "done", "0", "paced"] == 0
    assert found["pyrklog_group_lost_records", "done", "0", "paced"] == 0


def test_the_command_shows_it(paced: Paced) -> None:
    paced.commit("shown", 100)
    command = ["-b", paced.broker.bootstrap, "group", "describe", "shown", "-o", "json"]
    asked_at = time.time()
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.stderr
    [item] = json.loads(done.stdout)["items"]
    [row] = item["partitions"]
    assert (row["lag"], row["lag_s_is_least"], row["lost"]) == (200, False, 0)
    paced.check(row["lag_s"], 100, asked_at)
    assert item["lag_s"] == row["lag_s"]


def test_groups_are_listed_by_seconds(paced: Paced) -> None:
    paced.commit("late", 0)
    paced.commit("read", RATE * SECONDS)

    def listed(limit: str) -> list[str]:
        command = ["-b", paced.broker.bootstrap, "group", "list", "--lag-over", limit]
        done = CliRunner().invoke(app, [*command, "-o", "name"])
        assert done.exit_code == 0, done.stderr
        return done.stdout.splitlines()

    wait_until(lambda: "late" in listed(f"{SECONDS}s"), lambda: "not listed")
    assert "read" not in listed("1s")
    assert listed("1d") == []


def test_the_worst_groups_are_scraped(paced: Paced) -> None:
    paced.commit("worst", 0)

    def is_scraped() -> bool:
        return scrape(paced.broker).get(("pyrklog_group_lag_seconds", "worst"), 0) >= SECONDS

    wait_until(is_scraped, lambda: "not scraped")


def test_a_restart_keeps_the_past(paced: Paced) -> None:
    paced.commit("kept", 100)
    assert paced.broker.stop() == 0
    assert (Path(paced.broker.data) / "meta" / "lag-history").stat().st_size > 0
    paced.broker.start()

    def knows_again() -> bool:
        return scrape(paced.broker)["pyrklog_lag_histories",] == 1

    wait_until(knows_again, lambda: "no history")
    asked_at = time.time()
    paced.check(paced.scraped("kept"), 100, asked_at)


def test_a_group_before_a_transaction_marker_has_read_everything(tmp_path: Path) -> None:
    """It commits the offset behind the last record, which the marker follows."""
    with TestBroker(tmp_path / "data", options=ANY_PORT) as broker:
        create_topic(broker.bootstrap, "orders", 1)
        client = {"bootstrap.servers": broker.bootstrap, "transactional.id": "t"}
        producer = Producer(client)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("orders", b"x", partition=0)
        producer.commit_transaction(30)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        consumer.close()
        key = ("g", "0", "orders")

        def told() -> dict[tuple[str, ...], float]:
            """A broker that has just started may still load the group."""
            found = scrape(broker, "/metrics/detail?group=g")
            return found if ("kafka_consumergroup_lag", *key) in found else {}

        for end in (broker.stop, broker.kill, None):
            found = wait_until(told, "no lag of g")
            assert found["kafka_consumergroup_lag", *key] == 1, "as Kafka's tools tell it"
            assert found["pyrklog_group_partition_lag_seconds", *key] == 0
            if end is not None:
                end()
                broker.start()
