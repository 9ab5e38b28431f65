"""Our lag beside that of other programs, in one run: `make test-lag`.

A producer writes at known rates, and groups stand still, follow, read at half the rate, or have no
members. Meanwhile each group is asked for at our brokers and at the others, one after the other:
they may differ by 1 %, or by what was written between the looks. Once nothing moves they are equal.
The seconds are right to one by the times at which the test wrote the records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.testing import TestBroker
from tests.support import lag_exporters
from tests.support.broker_http import ANY_PORT, ask
from tests.support.cluster import BrokerCluster
from tests.support.commands import runner
from tests.support.lag_exporters import Exporter, Lags
from tests.support.paced_groups import STEP_S, Pace, PacedProducer, Reader, commit
from tests.support.waiting import wait_until
from tests.support.zookeeper_server import ZooKeeperServer

PARTITIONS = 3
EACH = 10_000
"""Records of a partition before the slow pace: 1 % of them is more than what is written between two
looks."""
FAST = Pace(per_second=6_000, records=PARTITIONS * EACH)
SLOW = Pace(per_second=150)
ROUNDS = 5
BETWEEN = 150
"""Records of a partition between two rounds of looks: three seconds."""
TOLERANCE_S = 1.0
SHARE = 0.01
COMMITTED = {
    "stands-still": {0: 100, 1: EACH // 2, 2: EACH - 1},
    "nobody": {0: EACH // 4, 2: 0},
    "half": dict.fromkeys(range(PARTITIONS), EACH),
    "follows": dict.fromkeys(range(PARTITIONS), EACH),
}
"""What each group has committed before the slow pace begins."""
READ_PER_SECOND = {"stands-still": 0.0, "half": SLOW.per_second / 2, "follows": SLOW.per_second}


@dataclass(frozen=True)
class Place:
    """Brokers under test, and a ZooKeeper for what needs one."""

    brokers: list[TestBroker]
    replicas: int
    zookeeper: str

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)


@dataclass(frozen=True)
class Look:
    """One answer about a group, by partition; ``asked`` and ``answered`` are monotonic."""

    asked: float
    answered: float
    lags: Lags
    committed: dict[int, int] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)


@dataclass
class Found:
    """The largest differences of a run, for the reader."""

    seconds_off: float = 0.0
    share: dict[str, float] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)

    def note(self, name: str, lag: int, difference: int) -> None:
        self.records[name] = max(self.records.get(name, 0), difference)
        if lag >= EACH // 2:
            self.share[name] = max(self.share.get(name, 0.0), difference / lag)

    def told(self) -> str:
        others = [
            f"{name}: at most {self.records[name]} records, {100 * share:.2f} % of large lags"
            for name, share in self.share.items()
        ]
        return f"{'; '.join(others)}; seconds off by at most {self.seconds_off:.2f}"


@pytest.fixture(params=[1, 3], ids=["one broker", "three brokers"])
def place(
    request: pytest.FixtureRequest,
    new_broker: Callable[..., TestBroker],
    new_cluster: Callable[..., BrokerCluster],
    zookeeper: ZooKeeperServer,
) -> Place:
    if request.param == 1:
        return Place([new_broker(options=ANY_PORT).start()], 1, zookeeper.address)
    cluster = new_cluster(**ANY_PORT).start()
    return Place(list(cluster.brokers.values()), 3, zookeeper.address)


@pytest.fixture
def produced(place: Place, topic: str) -> Iterator[PacedProducer]:
    """The topic's producer, which has ended its fast pace, while all groups exist."""
    admin = AdminClient({"bootstrap.servers": place.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, place.replicas)])[topic].result(30)
    wait_until(
        lambda: sum(_histories(broker) for broker in place.brokers) == PARTITIONS * place.replicas,
        "not all partitions have a history",
    )
    producer = PacedProducer(place.bootstrap, topic, PARTITIONS, FAST, SLOW)
    producer.start()
    producer.first_done.wait()
    producer.check()
    for group, offsets in COMMITTED.items():
        commit(place.bootstrap, group, topic, offsets)
    yield producer
    producer.end()


def _histories(broker: TestBroker) -> int:
    status, text = ask(broker, "/metrics")
    assert status == 200, text
    lines = [line.split() for line in text.splitlines()]
    return sum(round(float(line[1])) for line in lines if line[0] == "pyrklog_lag_histories")


# --- looks ---------------------------------------------------------------------------------------


def over_http(place: Place, group: str, topic: str) -> Look:
    """Of the group's coordinator; the others do not know the group."""
    asked = time.monotonic()
    answers = [ask(broker, f"/metrics/detail?group={group}") for broker in place.brokers]
    answered = time.monotonic()
    [text] = [text for status, text in answers if status == 200]

    def by_partition(name: str) -> dict[int, float]:
        found = lag_exporters.samples(text, name, group, topic)
        return {int(labels["partition"]): value for labels, value in found}

    committed = by_partition("kafka_consumergroup_current_offset")
    return Look(
        asked,
        answered,
        lag_exporters.exported_lags(text, group, topic),
        {partition: round(value) for partition, value in committed.items()},
        by_partition("pyrklog_group_partition_lag_seconds"),
    )


def by_command(place: Place, group: str, topic: str) -> Look:
    asked = time.monotonic()
    [item] = json.loads(runner(place.bootstrap)("group", "describe", group, "-o", "json"))["items"]
    answered = time.monotonic()
    rows: list[dict[str, Any]] = item["partitions"]
    assert {row["topic"] for row in rows} == {topic}

    def by_partition(name: str) -> dict[int, Any]:
        return {row["partition"]: row[name] for row in rows if row["committed"] is not None}

    return Look(
        asked, answered, by_partition("lag"), by_partition("committed"), by_partition("lag_s")
    )


def by_exporter(exporter: Exporter, group: str, topic: str) -> Look:
    asked = time.monotonic()
    return Look(asked, time.monotonic(), exporter.lags(group, topic))


# --- comparisons ---------------------------------------------------------------------------------


def allowed(lag: int, ours: Look, other: Look, stale_s: float) -> float:
    """1 %, or what is written, or committed at once, between two looks."""
    between_s = max(ours.answered, other.answered) - min(ours.asked, other.asked)
    per_second = SLOW.per_second / PARTITIONS
    return max(SHARE * lag, per_second * (between_s + stale_s + 2 * STEP_S))


def compare(name: str, ours: Look, other: Look, stale_s: float, found: Found) -> None:
    assert other.lags.keys() == ours.lags.keys(), name
    for partition, lag in ours.lags.items():
        difference = abs(other.lags[partition] - lag)
        found.note(name, lag, difference)
        assert difference <= allowed(lag, ours, other, stale_s), (name, partition, ours, other)


def check_seconds(look: Look, producer: PacedProducer, found: Found) -> None:
    """By the times at which the records were written."""
    assert look.seconds.keys() == look.committed.keys()
    for partition, offset in look.committed.items():
        least, most = producer.age_s(partition, offset, look.asked, look.answered)
        told = look.seconds[partition]
        found.seconds_off = max(found.seconds_off, least - told, told - most)
        assert least - TOLERANCE_S <= told <= most + TOLERANCE_S, (partition, offset, look)


def check_all(
    place: Place, topic: str, exporters: list[Exporter], producer: PacedProducer, found: Found
) -> None:
    """One look at each group by each program."""
    for group in COMMITTED:
        ours = over_http(place, group, topic)
        assert ours.lags.keys() == COMMITTED[group].keys()
        check_seconds(ours, producer, found)
        for exporter in exporters:
            other = by_exporter(exporter, group, topic)
            compare(exporter.name, ours, other, exporter.stale_s, found)
        shown = by_command(place, group, topic)
        check_seconds(shown, producer, found)
        compare("group describe", ours, shown, 0.0, found)


def check_settled(
    place: Place, topic: str, exporters: list[Exporter], producer: PacedProducer
) -> None:
    """Nothing moves any more: all tell what the offsets say."""
    ends = [len(times) for times in producer.acknowledged]
    apache = lag_exporters.by_apache(place.bootstrap, topic)
    assert apache.keys() == COMMITTED.keys()
    for group in COMMITTED:
        ours = over_http(place, group, topic)
        true = {partition: ends[partition] - offset for partition, offset in ours.committed.items()}
        assert ours.lags == true
        assert by_command(place, group, topic).lags == true
        assert apache[group] == true
        for exporter in exporters:
            wait_until_told(exporter, group, topic, true)
    caught_up = over_http(place, "follows", topic)
    assert set(caught_up.lags.values()) == {0}
    assert set(caught_up.seconds.values()) == {0.0}


def wait_for_records(producer: PacedProducer, each: int) -> None:
    """Until each partition got so many."""

    def is_there() -> bool:
        producer.check()
        return min(map(len, producer.acknowledged)) >= each

    wait_until(is_there, "the load does not go on")


def wait_until_told(exporter: Exporter, group: str, topic: str, lags: Lags) -> None:
    """Its answers may be a few seconds old."""

    def told() -> tuple[Lags, int]:
        return exporter.lags(group, topic), exporter.total(group, topic)

    wait_until(
        lambda: told() == (lags, sum(lags.values())),
        lambda: f"{exporter.name}, {group}: {told()}, not {lags}",
    )


def test_all_tell_the_same_lag(
    place: Place, topic: str, produced: PacedProducer, tmp_path: Path
) -> None:
    found = Found()
    with ExitStack() as ending:
        exporters = []
        for name in lag_exporters.CHOSEN:
            exporter = lag_exporters.start(name, tmp_path, place.bootstrap, place.zookeeper)
            ending.callback(exporter.close)
            exporters.append(exporter)
        readers = [
            Reader(place.bootstrap, group, topic, rate) for group, rate in READ_PER_SECOND.items()
        ]
        for reader in readers:
            reader.start()
            ending.callback(reader.end)
        for reader in readers:
            assert reader.joined.wait(30)
        wait_until(
            lambda: all(
                exporter.lags(group, topic).keys() == offsets.keys()
                for exporter in exporters
                for group, offsets in COMMITTED.items()
            ),
            "an exporter does not know all groups",
        )
        for number in range(ROUNDS):
            wait_for_records(produced, EACH + (number + 1) * BETWEEN)
            check_all(place, topic, exporters, produced, found)
        produced.end()
        wait_until(
            lambda: not any(over_http(place, "follows", topic).lags.values()),
            "the group does not read to the end",
        )
        for reader in readers:
            reader.end()
        check_settled(place, topic, exporters, produced)
    print(f"\n{len(place.brokers)} broker(s): {found.told()}")
