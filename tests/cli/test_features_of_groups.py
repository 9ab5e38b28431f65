"""Rows of the feature table (docs/using/compared.md) about groups, topics' partitions, and what one
broker tells."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from pyrklog.testing import TestBroker
from tests.support.broker_http import ANY_PORT, scrape
from tests.support.commands import Run, create, runner
from tests.support.feature_claims import Claims, OtherTools, kcat
from tests.support.feature_table import NO, PARTLY, YES
from tests.support.groups import ConfluentMember, Crew, fill
from tests.support.kafka_tools import KafkaTools, Output
from tests.support.kcat import needs_kcat
from tests.support.lagging import lag_of
from tests.support.mirroring import commit
from tests.support.waiting import wait_until
from tests.support.wire import Connection, fetch

pytestmark = [
    pytest.mark.jvm,
    needs_kcat,
]
COMMITTED = {0: 4, 1: 10, 2: 1}
EACH = 10
LAG = 15
"""Of a group with these offsets where each of three partitions has ten records."""


@pytest.fixture
def group(either: str, run: Run, topic: str) -> str:
    """A topic and a group of its name, which lags."""
    create(run, topic, "-p", "3")
    fill(either, topic, 3, EACH)
    commit(either, topic, topic, COMMITTED)
    return topic


@pytest.fixture
def ours(either: str, broker: TestBroker) -> bool:
    return either == broker.bootstrap


def described(run: Run, group: str) -> dict[str, Any]:
    [found] = json.loads(run("group", "describe", group, "-o", "json"))["items"]
    return dict(found)


def told_offsets(tools: KafkaTools, at: str, group: str, *words: str) -> Output:
    told = tools("consumer-groups", "--bootstrap-server", at, "--group", group, *words)
    assert told.status == 0, told.text
    return told


def rows_of(told: Output, group: str) -> dict[int, list[int]]:
    """Partition -> committed offset, end and lag, as Kafka's tool tells them. Topic and group have
    one name."""
    words = rf"{group}\s+{group}" + 4 * r"\s+(\d+)"
    found = [[int(one) for one in row.groups()] for row in re.finditer(words, told.text)]
    assert found, told.text
    return {number: rest for number, *rest in found}


def test_lag_totals(
    claim: Claims, either: str, run: Run, group: str, tools: KafkaTools, others: OtherTools
) -> None:
    assert described(run, group)["lag"] == LAG
    assert f"lag {LAG}" in run("group", "describe", group).splitlines()[0]
    told = told_offsets(tools, either, group, "--describe")
    rows = rows_of(told, group)
    assert {number: row[0] for number, row in rows.items()} == COMMITTED
    assert sum(row[2] for row in rows.values()) == LAG
    assert str(LAG) not in told.text.split(), "no total"
    others.kcat_lacks("lag")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_lag_seconds(
    claim: Claims,
    either: str,
    ours: bool,
    run: Run,
    group: str,
    tools: KafkaTools,
    others: OtherTools,
) -> None:
    """Of our brokers: no other keeps when its log left an offset."""
    if ours:
        assert lag_of(either, group)["records"] == LAG
        wait_until(lambda: described(run, group)["lag_s"] is not None, "no seconds are told")
    else:
        assert described(run, group)["lag_s"] is None
    told = told_offsets(tools, either, group, "--describe")
    heading = next(line.split() for line in told.lines if "LAG" in line)
    assert heading[5] == "LAG"
    assert not [word for word in heading if "SEC" in word or "TIME" in word]
    others.kcat_lacks("lag")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_lag_history_built_in(
    claim: Claims, new_broker: Callable[..., TestBroker], topic: str, others: OtherTools
) -> None:
    """The lag before the group read on is told still, by the next process, too."""
    broker = new_broker().start()
    run = runner(broker.bootstrap)
    create(run, topic)
    fill(broker.bootstrap, topic, 1, EACH)
    commit(broker.bootstrap, topic, topic, {0: 4})

    def past() -> list[int]:
        found = json.loads(run("group", "lag", topic, "--since", "1h", "-o", "json"))["items"]
        return [one["lag"] for one in found if one["lag"] is not None]

    lag_of(broker.bootstrap, topic)
    # It is saved every ten seconds.
    saved = broker.data / "meta" / "group-lag-history"
    wait_until(lambda: saved.exists() and topic.encode() in saved.read_bytes(), "nothing is saved")
    assert set(past()) == {6}
    commit(broker.bootstrap, topic, topic, {0: EACH})
    wait_until(lambda: past()[-1] == 0, "the group has not read on")
    assert broker.stop() == 0
    broker.start()
    lag_of(broker.bootstrap, topic)
    assert (past()[0], past()[-1]) == (6, 0)
    others.kafka_lacks("trend")
    assert "history" not in others.kafka["consumer-groups"].lower()
    others.kcat_lacks("lag", "history")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_seek_to_any_offset(
    claim: Claims, either: str, run: Run, group: str, tools: KafkaTools, others: OtherTools
) -> None:
    run("group", "seek", group, "--to", "3", "-q")
    told = rows_of(told_offsets(tools, either, group, "--describe"), group)
    assert {number: row[0] for number, row in told.items()} == dict.fromkeys(range(3), 3)
    reset = ("--reset-offsets", "--topic", group, "--to-offset", "7", "--execute")
    told_offsets(tools, either, group, *reset)
    assert {one["committed"] for one in described(run, group)["partitions"]} == {7}
    others.kcat_has_only_its_modes()
    claim(pyrklog=YES, kafka=YES, kcat=NO)


def test_rebalance_reasons(
    claim: Claims, either: str, ours: bool, run: Run, topic: str, others: OtherTools
) -> None:
    create(run, topic, "-p", "3")
    with Crew(ConfluentMember(either, topic, topic)) as crew:
        crew.poll_until(lambda: crew.owns_all(3), "the group")
    found = json.loads(run("group", "history", topic, "-o", "json"))["items"]
    assert [(one["generation"], one["members"]) for one in found] == [(1, 1), (2, 0)]
    reasons = [one["reason"] for one in found]
    if ours:
        assert ["new member" in reasons[0], "left" in reasons[1]] == [True, True]
    else:
        assert reasons == [None, None]
    assert "reason" not in others.kafka["consumer-groups"].lower()
    others.kcat_lacks("reason")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_add_partitions(
    claim: Claims, either: str, run: Run, topic: str, tools: KafkaTools, others: OtherTools
) -> None:
    create(run, topic, "-p", "2")
    run("topic", "add-partitions", topic, "--to", "3")
    words = ("--alter", "--topic", topic, "--partitions", "4")
    assert tools("topics", "--bootstrap-server", either, *words).status == 0

    def listed() -> int:
        found = json.loads(kcat("-b", either, "-L", "-J", "-t", topic))["topics"][0]
        return len(found["partitions"])

    wait_until(lambda: listed() == 4, "the partitions are not there")
    others.kcat_has_only_its_modes()
    claim(pyrklog=YES, kafka=YES, kcat=NO)


def test_kip_714_exposed(
    claim: Claims,
    new_broker: Callable[..., TestBroker],
    apache_kafka: str,
    tools: KafkaTools,
    others: OtherTools,
) -> None:
    """Subscribed by Kafka's tool, seen at our broker. At Apache's it takes a plug-in to see it."""
    broker = new_broker(options=ANY_PORT).start()
    for at in (broker.bootstrap, apache_kafka):
        words = ("--alter", "--name", "all", "--metrics", "*", "--interval", "500")
        told = tools("client-metrics", "--bootstrap-server", at, *words)
        assert told.status == 0, told.text
    settings = {"bootstrap.servers": broker.bootstrap, "enable.metrics.push": True}
    producer = Producer({**settings, "client.id": "shop"})

    def is_pushed() -> bool:
        producer.produce("sold", b"x")
        producer.poll(0.1)
        return any("shop" in key for key in scrape(broker, "/metrics/clients"))

    wait_until(is_pushed, "nothing is pushed")
    described = tools("client-metrics", "--bootstrap-server", apache_kafka, "--describe")
    assert "interval.ms=500" in described.text
    assert "shop" not in described.text
    others.kcat_lacks("metrics")
    claim(pyrklog=YES, kafka=PARTLY, kcat=NO)


def test_cache_and_disk_by_topic(
    claim: Claims,
    new_broker: Callable[..., TestBroker],
    topic: str,
    tools: KafkaTools,
    others: OtherTools,
) -> None:
    broker = new_broker(options=ANY_PORT).start()
    run = runner(broker.bootstrap)
    create(run, topic)
    fill(broker.bootstrap, topic, 1, 100)
    words = ("--describe", "--topic-list", topic)
    found: dict[str, Any] = {}
    sizes: list[int] = []

    def are_equal() -> bool:
        """What is written later comes to the disk between the two questions."""
        [described] = json.loads(run("topic", "describe", topic, "-o", "json"))["items"]
        found.update(described)
        told = tools("log-dirs", "--bootstrap-server", broker.bootstrap, *words)
        directories = json.loads(told.lines[-1])["brokers"][0]["logDirs"]
        [theirs] = [one["size"] for each in directories for one in each["partitions"]]
        sizes[:] = [found["partitions"][0]["size"], theirs]
        return sizes[0] == sizes[1] > 0

    wait_until(are_equal, lambda: f"the sizes are {sizes}")
    with Connection(broker.bootstrap) as connection:
        assert fetch(connection, topic, 0).records
    told = scrape(broker, f"/metrics/detail?topic={topic}")
    assert told["pyrklog_topic_fetched_bytes_total", "cache", topic] > 0
    assert told["pyrklog_topic_fetched_bytes_total", "files", topic] == 0
    assert told["pyrklog_partition_bytes", "0", topic] == sizes[0]
    others.kafka_lacks("cache hit", "disk read")
    others.kcat_lacks("size on disk", "cache")
    claim(pyrklog=YES, kafka=PARTLY, kcat=NO)
