"""Our lag beside that of other programs, in one run: `make test-lag`.

A producer writes at known rates, and groups stand still, follow, read at half the rate, or have no
members. Meanwhile each group is asked for at our brokers, at the others, and at our brokers again:
the others may differ by 1 %, or by what was written meanwhile. Once nothing moves all are equal.
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
from tests.support.waiting import PATIENCE_S, wait_until
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
ROUNDED_S = 0.5
"""`group describe` shows whole seconds."""
SHARE = 0.01
COMMITTED = {
    "stands-still": {0: EACH // 10, 1: EACH // 2, 2: EACH * 9 // 10},
    "nobody": {0: EACH // 4, 2: EACH // 5},
    "half": dict.fromkeys(range(PARTITIONS), EACH),
    "follows": dict.fromkeys(range(PARTITIONS), EACH),
}
"""What each group has committed before the slow pace begins: offsets amid a known rate. Between two
samples, a second apart, the history knows no change of the rate."""
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

    seconds_off: dict[str, float] = field(default_factory=dict)
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
        seconds = [f"{off:.2f} ({name})" for name, off in self.seconds_off.items()]
        return f"{'; '.join(others)}; seconds off by at most {', '.join(seconds)}"


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

    # Both are -1 where nothing is committed.
    offsets = by_partition("kafka_consumergroup_current_offset")
    committed = {partition: round(value) for partition, value in offsets.items() if value >= 0}
    lags = lag_exporters.exported_lags(text, group, topic)
    return Look(
        asked,
        answered,
        {partition: lag for partition, lag in lags.items() if partition in committed},
        committed,
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
    lags = exporter.lags(group, topic)
    return Look(asked, time.monotonic(), lags)


# --- comparisons ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Around:
    """Two looks of ours, before others look and after it: a reader moves meanwhile."""

    before: Look
    after: Look

    def compare(self, name: str, other: Look, stale_s: float, found: Found) -> None:
        """It tells a lag between ours, to 1 % or to what is written while all look, and in the time
        by which its answer may be older."""
        between_s = self.after.answered - self.before.asked
        written = SLOW.per_second / PARTITIONS * (between_s + stale_s + 2 * STEP_S)
        assert self.before.lags.keys() == self.after.lags.keys() == other.lags.keys(), name
        for partition, told in other.lags.items():
            low, high = sorted((self.before.lags[partition], self.after.lags[partition]))
            difference = max(0, low - told, told - high)
            found.note(name, high, difference)
            assert difference <= max(SHARE * high, written), (name, partition, other, self)


def check_seconds(
    name: str, look: Look, producer: PacedProducer, found: Found, rounded_s: float = 0.0
) -> None:
    """By the times at which the records were written."""
    assert look.seconds.keys() == look.committed.keys()
    for partition, offset in look.committed.items():
        least, most = producer.age_s(partition, offset, look.asked, look.answered)
        told = look.seconds[partition]
        off = max(0.0, least - told, told - most)
        found.seconds_off[name] = max(found.seconds_off.get(name, 0.0), off)
        assert off <= TOLERANCE_S + rounded_s, (name, partition, offset, least, most, look)


def check_all(
    place: Place, topic: str, exporters: list[Exporter], producer: PacedProducer, found: Found
) -> None:
    """One look at each group by each program."""
    for group, offsets in COMMITTED.items():
        before = over_http(place, group, topic)
        others = [by_exporter(exporter, group, topic) for exporter in exporters]
        shown = by_command(place, group, topic)
        around = Around(before, over_http(place, group, topic))
        assert before.lags.keys() == offsets.keys()
        for exporter, other in zip(exporters, others, strict=True):
            around.compare(exporter.name, other, exporter.stale_s, found)
        around.compare("group describe", shown, 0.0, found)
        for look in (before, around.after):
            check_seconds("HTTP", look, producer, found)
        check_seconds("group describe", shown, producer, found, ROUNDED_S)


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
            assert reader.joined.wait(PATIENCE_S)
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
