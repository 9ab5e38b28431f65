"""Source and sink on Apache Kafka 3.9 as on pyrklog, on one broker and on three: in batches and in
streams, at least once and exactly once. A single broker is restarted under way; of three the leader
is killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.producing import ProducerSettings, Transactions
from pyrklog.spark.sink_slots import PREFIX
from pyrklog.testing import TestBroker
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import in_sync, leaders
from tests.support.groups import fill
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_cluster import KafkaCluster
from tests.support.sinking import sink, values, wait_for_values
from tests.support.spark import our_source
from tests.support.waiting import wait_until
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]

PARTITIONS = 2
DELIVERIES = ("at_least_once", "exactly_once")
RUN_S = 120


class Site(NamedTuple):
    """``brokers`` by id; as many replicas has each topic."""

    bootstrap: str
    brokers: Mapping[int, TestBroker] | Mapping[int, KafkaBroker]

    def create(self, topic: str, partitions: int) -> None:
        count = len(self.brokers)
        config = {"min.insync.replicas": str(min(count, 2))}
        new = NewTopic(topic, partitions, count, config=config)
        admin = self._admin()
        admin.create_topics([new])[topic].result(60)
        self._wait_for_replicas(topic)

    @contextmanager
    def one_away(self, topic: str) -> Iterator[None]:
        """Without the leader of the topic's first partition; a single broker comes back at once."""
        if len(self.brokers) == 1:
            self.brokers[1].restart()
            yield
            return
        leader = self.brokers[leaders(self._admin(), topic)[0]]
        leader.kill()
        try:
            yield
        finally:
            leader.start()
        self._wait_for_replicas(topic)

    def _wait_for_replicas(self, topic: str) -> None:
        admin = self._admin()

        def are_all() -> bool:
            found = in_sync(admin, topic).values()
            return bool(found) and all(len(one) == len(self.brokers) for one in found)

        wait_until(are_all, f"replicas of {topic} stay behind")

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})


@contextmanager
def kafka_1(folder: Path, _: ZooKeeperServer) -> Iterator[Site]:
    with KafkaBroker(folder / "kafka") as one:
        yield Site(one.bootstrap, {1: one})


@contextmanager
def kafka_3(folder: Path, _: ZooKeeperServer) -> Iterator[Site]:
    with KafkaCluster.running(folder) as cluster:
        yield Site(cluster.bootstrap, cluster.brokers)


@contextmanager
def pyrklog_1(folder: Path, _: ZooKeeperServer) -> Iterator[Site]:
    with TestBroker(folder / "data") as one:
        yield Site(one.bootstrap, {1: one})


@contextmanager
def pyrklog_3(folder: Path, zookeeper: ZooKeeperServer) -> Iterator[Site]:
    cluster = BrokerCluster(f"{zookeeper.address}/everywhere", folder)
    try:
        cluster.start()
        yield Site(cluster.bootstrap, cluster.brokers)
    finally:
        cluster.close()


@pytest.fixture(scope="module", params=[kafka_1, kafka_3, pyrklog_1, pyrklog_3])
def site(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    zookeeper: ZooKeeperServer,
) -> Iterator[Site]:
    start: Callable[[Path, ZooKeeperServer], Any] = request.param
    with start(tmp_path_factory.mktemp("site"), zookeeper) as running:
        yield running


def numbered(start: int, end: int) -> Counter[bytes]:
    """What :func:`fill` writes."""
    return Counter(
        b"%d:%d" % (partition, at) for partition in range(PARTITIONS) for at in range(start, end)
    )


def test_batches(spark: Any, site: Site, topic: str) -> None:
    """A write that is repeated counts once if it is exactly once; all columns come back."""
    options = {
        "at_least_once": {"delivery": "at_least_once"},
        "exactly_once": {"delivery": "exactly_once", "txnAppId": topic},
    }
    for delivery in DELIVERIES:
        out = f"{topic}-{delivery}"
        site.create(out, 3)
        for version, start, end in (("1", 0, 300), ("1", 0, 300), ("2", 300, 400)):
            once = {"txnVersion": version} if delivery == "exactly_once" else {}
            frame = spark.range(start, end, 1, 4).selectExpr(
                "CAST(id AS STRING) AS key",
                "CAST(id AS STRING) AS value",
                "array(struct('h' AS key, CAST('v' AS BINARY) AS value)) AS headers",
            )
            sink(frame, site.bootstrap, out, **options[delivery], **once).save()
        times = 1 if delivery == "exactly_once" else 2
        expected = Counter({b"%d" % number: times for number in range(300)})
        expected.update(b"%d" % number for number in range(300, 400))
        wait_for_values(site.bootstrap, out, expected)
        rows = our_source(spark.read, site.bootstrap, out, includeHeaders="true").collect()
        assert Counter(bytes(row.value) for row in rows) == expected
        assert all(row.key == row.value and row.topic == out for row in rows)
        assert {tuple((one.key, bytes(one.value)) for one in row.headers) for row in rows} == {
            (("h", b"v"),)
        }
        check_a_part(spark, site, out, [(row.partition, row.offset) for row in rows])


def check_a_part(spark: Any, site: Site, topic: str, places: list[tuple[int, int]]) -> None:
    """By offsets, earliest and latest for each partition."""
    start = json.dumps({topic: {"0": -2, "1": 5, "2": 7}})
    end = json.dumps({topic: {"0": 11, "1": -1, "2": 7}})
    part = our_source(
        spark.read, site.bootstrap, topic, startingOffsets=start, endingOffsets=end
    ).select("partition", "offset")
    expected = [
        (partition, offset)
        for partition, offset in places
        if (partition == 0 and offset < 11) or (partition == 1 and offset >= 5)
    ]
    assert sorted(tuple(row) for row in part.collect()) == sorted(expected)


def test_streams(spark: Any, site: Site, topic: str, tmp_path: Path) -> None:
    """Both deliveries beside each other, over the loss of a broker, and with their last batches run
    once more."""
    site.create(topic, PARTITIONS)
    outs = {delivery: f"{topic}-{delivery}" for delivery in DELIVERIES}
    for out in outs.values():
        site.create(out, 3)

    def run() -> None:
        """What is there, by one query for each delivery."""
        queries = []
        for delivery, out in outs.items():
            options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
            rows = our_source(spark.readStream, site.bootstrap, topic, **options)
            settings = {"delivery": delivery, "kafka.compression.type": "zstd"}
            queries.append(
                sink(rows.select("key", "value"), site.bootstrap, out, **settings)
                .option("checkpointLocation", str(tmp_path / delivery))
                .trigger(availableNow=True)
                .start()
            )
        for query in queries:
            assert query.awaitTermination(RUN_S)

    fill(site.bootstrap, topic, PARTITIONS, 60)
    run()
    with site.one_away(topic):
        fill(site.bootstrap, topic, PARTITIONS, 20, first=60)
        run()
        for delivery in DELIVERIES:
            forget_the_last_commit(tmp_path / delivery / "commits")
        run()
    written = numbered(0, 80)
    wait_for_values(site.bootstrap, outs["exactly_once"], written)
    found = values(site.bootstrap, outs["at_least_once"])
    assert set(found) == set(written)
    assert found.total() > written.total(), "the last batch is written again"
    transactions = Transactions(ProducerSettings(site.bootstrap, []))
    assert transactions.open_with_prefix(PREFIX) == []


def forget_the_last_commit(commits: Path) -> None:
    """As if the driver had died before it wrote it."""
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
