"""Scans of three brokers that die, lose records, and lose topics."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

import pyrklog
from pyrklog.config.broker_options import RACK_AWARE_SELECTOR
from pyrklog.scanning import LogTruncatedError, Scan, TopicDeletedError
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, in_sync, leaders, produce
from tests.support.knowing import leaders_of, wait_until_each
from tests.support.processes import is_connected
from tests.support.scanning import iterated
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm

ALL = {1, 2, 3}
EACH = 20_000
LITTLE = {"memory_bytes": 16 << 20, "batch_rows": 500}
"""Most of the topics below is not read before it is asked for."""


def numbered(count: int = EACH) -> list[bytes]:
    return [b"%d" % number + b"." * 1000 for number in range(count)]


def taken(scan: Scan, batches: int) -> list[tuple[int, int]]:
    """(partition, number) of each row of the next batches."""
    found = []
    for _ in range(batches):
        found += of_batch(next(scan))
    return found


def of_batch(batch: object) -> list[tuple[int, int]]:
    table = pa.record_batch(batch).to_pydict()
    numbers = [int(value.split(b".")[0]) for value in table["value"]]
    return list(zip(table["partition"], numbers, strict=True))


def in_order(rows: list[tuple[int, int]], partitions: int) -> None:
    """Each row once, in order in its partition."""
    for partition in range(partitions):
        numbers = [number for one, number in rows if one == partition]
        assert numbers == list(range(EACH)), partition


def wait_until_in_sync(cluster: BrokerCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wait_until(lambda: all(isr == ALL for isr in in_sync(admin, topic).values()), "not in sync")


def test_leaders_that_die_neither_lose_nor_double_a_row(cluster: BrokerCluster, topic: str) -> None:
    admin = create(cluster, topic, 3, 3)
    produce(cluster, topic, 3, numbered())
    wait_until_in_sync(cluster, topic)
    columns = ["partition", "value"]
    scan = pyrklog.scan(topic, columns=columns, bootstrap_servers=cluster.bootstrap, **LITTLE)  # type: ignore[arg-type]
    rows = taken(scan, 5)
    first = leaders(admin, topic)[0]
    cluster.brokers[first].kill()
    rows += taken(scan, 20)
    wait_until(lambda: first not in leaders(admin, topic).values(), "no new leaders")
    cluster.brokers[first].start()
    wait_until_in_sync(cluster, topic)
    second = leaders(admin, topic)[0]
    cluster.brokers[second].kill()
    for batch in scan:
        rows += of_batch(batch)
    in_order(rows, 3)
    assert all(one.position == one.end == EACH for one in scan.progress())


def test_added_partitions_are_left_to_the_next_scan(cluster: BrokerCluster, topic: str) -> None:
    admin = create(cluster, topic, 2, 3)
    produce(cluster, topic, 2, [b"1"])
    options = {"columns": ["partition"], "bootstrap_servers": cluster.bootstrap}
    scan = pyrklog.scan(topic, **options)  # type: ignore[arg-type]
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    # A scan asks any of the brokers.
    wait_until_each(
        cluster.bootstrap, lambda told: len(leaders_of(told, topic)) == 5, "no new partitions"
    )
    produce(cluster, topic, 5, [b"2"])
    assert sorted(row["partition"] for row in iterated(scan)) == [0, 1]
    again = pyrklog.scan(topic, **options)  # type: ignore[arg-type]
    assert sorted(row["partition"] for row in iterated(again)) == [0, 0, 1, 1, 2, 3, 4]


def test_records_that_an_unclean_leader_lacks_are_missed(
    cluster: BrokerCluster, topic: str
) -> None:
    """A reader goes on where it was; the new leader has other records there."""
    options = {"unclean.leader.election.enable": "true"}
    admin = create(cluster, topic, 1, 2, options=options)
    produce(cluster, topic, 1, numbered(10))
    wait_until(lambda: len(in_sync(admin, topic)[0]) == 2, "not in sync")
    leader = leaders(admin, topic)[0]
    [follower] = in_sync(admin, topic)[0] - {leader}
    cluster.brokers[follower].kill()
    wait_until(lambda: in_sync(admin, topic)[0] == {leader}, "still in sync")
    produce(cluster, topic, 1, numbered(10))
    scan = pyrklog.scan(topic, columns=["value"], bootstrap_servers=cluster.bootstrap)
    assert len(iterated(scan)) == 20
    [read] = scan.progress()
    assert read.position == 20
    cluster.brokers[leader].kill()
    cluster.brokers[follower].start()
    wait_until(lambda: leaders(admin, topic)[0] == follower, "no unclean leader")
    produce(cluster, topic, 1, numbered(30))
    place = (read.position, read.leader_epoch)
    scan = pyrklog.scan(topic, place, columns=["value"], bootstrap_servers=cluster.bootstrap)
    with pytest.raises(LogTruncatedError, match=r"up to offset 20 .* up to offset 10 only"):
        next(scan)


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_topic_deleted_under_a_scan_ends_it(
    cluster: BrokerCluster, topic: str, is_made_anew: bool
) -> None:
    admin = create(cluster, topic, 3, 3)
    produce(cluster, topic, 3, numbered())
    scan = pyrklog.scan(topic, bootstrap_servers=cluster.bootstrap, **LITTLE)  # type: ignore[arg-type]
    next(scan)
    admin.delete_topics([topic])[topic].result(30)
    if is_made_anew:
        wait_until(lambda: topic not in admin.list_topics(timeout=30).topics, "not gone")
        create(cluster, topic, 3, 3)
    with pytest.raises(TopicDeletedError, match="deleted"):
        iterated(scan)


_READER = """
import json, sys, pyarrow as pa, pyrklog

topic, bootstrap, rack = sys.argv[1:]
scan = pyrklog.scan(
    topic,
    columns=["value"],
    rack=rack,
    bootstrap_servers=bootstrap,
    memory_bytes=16 << 20,
    batch_rows=500,
)
numbers = []
for batch in scan:
    table = pa.record_batch(batch).to_pydict()
    numbers += [int(value.split(b".")[0]) for value in table["value"]]
    if len(numbers) == len(table["value"]):
        print("first", flush=True)
        sys.stdin.readline()
print(json.dumps(numbers))
"""


def test_a_replica_in_the_readers_rack_is_read(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    racks = {1: "a", 2: "b", 3: "c"}
    options = {"replica.selector.class": RACK_AWARE_SELECTOR}
    cluster = new_cluster(racks=racks, **options).start()
    admin = create(cluster, topic, 1, 3)
    produce(cluster, topic, 1, numbered())
    wait_until_in_sync(cluster, topic)
    leader = leaders(admin, topic)[0]
    near = min(ALL - {leader})
    # A process of its own: the test's clients have connections to all brokers.
    arguments = [topic, cluster.brokers[leader].bootstrap, racks[near]]
    child = subprocess.Popen(
        [sys.executable, "-c", _READER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "first\n"
    # The leader itself gives the first rows where it has not heard of the other's end yet.
    port = cluster.brokers[near].port
    wait_until(lambda: is_connected(child.pid, port), "it reads from the leader only")
    # Without it, the leader serves the rest.
    cluster.brokers[near].kill()
    output, _ = child.communicate("go\n", timeout=60)
    assert json.loads(output) == list(range(EACH))
