"""A source of three brokers, of which one dies."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

import pyrklog
from pyrklog.mirror import run
from pyrklog.testing import TestBroker
from tests.mirror.test_changes import EndedError, mirrored
from tests.support.clients import Confluent, Record
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, leaders
from tests.support.mirroring import Pair, values, wait_for_values
from tests.support.transactions import producer_of, wait_until_ended
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(240)]

PARTITIONS = 6


def fill(bootstrap: str, topic: str, partitions: list[int], name: str) -> Counter[bytes]:
    wanted: Counter[bytes] = Counter()
    for partition in partitions:
        some = [b"%s-%d-%d" % (name.encode(), partition, number) for number in range(20)]
        Confluent().produce(
            bootstrap, topic, [Record(None, one) for one in some], partition=partition
        )
        wanted.update(some)
    return wanted


def test_partitions_without_a_leader_hold_up_no_others(
    cluster: BrokerCluster,
    new_broker: Callable[..., TestBroker],
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, seconds in (("SCAN_TIMEOUT_S", 2.0), ("OFFLINE_REFRESH_S", 0.5), ("REFRESH_S", 2.0)):
        monkeypatch.setattr(run, name, seconds)
    admin = create(cluster, topic, PARTITIONS)
    wait_until(lambda: min(leaders(admin, topic).values()) > 0, "no leaders")
    pair = Pair(cluster.bootstrap, new_broker().start().bootstrap, topic)
    everywhere = list(range(PARTITIONS))
    wanted = fill(pair.source, topic, everywhere, "first")
    has_ended, failures = threading.Event(), list[BaseException]()

    def look() -> None:
        if has_ended.is_set():
            raise EndedError

    def copy() -> None:
        try:
            mirrored(pair, topic, copied=look)
        except EndedError:
            pass
        except BaseException as error:
            failures.append(error)

    copying = threading.Thread(target=copy, daemon=True)
    copying.start()
    target = f"east.{topic}"
    wait_for_values(pair.target, target, wanted)
    led_by = leaders(admin, topic)
    victim = led_by[0]
    cluster.brokers[victim].kill()
    wait_until(lambda: leaders(admin, topic)[0] < 0, "still led")
    others = [number for number, leader in led_by.items() if leader != victim]
    wanted += fill(pair.source, topic, others, "second")
    wait_for_values(pair.target, target, wanted)
    away = {number for number, leader in led_by.items() if leader == victim}

    def offline() -> set[int]:
        found = pair.items("status", "--over", "0")
        return {one["partition"] for one in found if one["end"] is None}

    def results() -> dict[int, str]:
        return {one["partition"]: one["result"] for one in pair.items("verify", code=9)}

    expected = {
        number: "no leader at the source" if number in away else "same" for number in everywhere
    }
    # Others lead nothing for a moment if a busy machine ends their sessions.
    wait_until(lambda: offline() == away, lambda: f"{offline()} have no end, not {away}")
    wait_until(lambda: results() == expected, lambda: f"verified as {results()}")
    cluster.brokers[victim].start()
    wait_until(lambda: leaders(admin, topic)[0] == victim, "not led again")
    wanted += fill(pair.source, topic, everywhere, "third")
    wait_for_values(pair.target, target, wanted)
    has_ended.set()
    copying.join(PATIENCE_S)
    assert not failures, failures
    assert values(pair.target, target) == wanted
    pair.verified()


def newest_epoch(bootstrap: str, topic: str) -> int:
    """Leader epoch of the last record, committed or not."""
    scan = pyrklog.scan(
        topic, columns=["offset"], isolation="read_uncommitted", bootstrap_servers=bootstrap
    )
    for _ in scan:
        pass
    [one] = scan.progress()
    return one.leader_epoch


def test_a_new_leader_that_has_no_visible_record_has_lost_none(
    cluster: BrokerCluster, new_broker: Callable[..., TestBroker], topic: str
) -> None:
    """The position passed what was aborted, and kept the epoch of the last record before: the next
    round took that for a log that ends there."""
    admin = create(cluster, topic, 1, 3)
    wanted = fill(cluster.bootstrap, topic, [0], "first")
    pair = Pair(cluster.bootstrap, new_broker().start().bootstrap, topic)
    pair.once("--topics", topic)
    before = newest_epoch(cluster.bootstrap, topic)
    # The coordinators' topic is made with three replicas.
    producer = producer_of(cluster.bootstrap, topic)
    victim = leaders(admin, topic)[0]
    cluster.brokers[victim].kill()
    wait_until(lambda: leaders(admin, topic)[0] not in (victim, -1), "no new leader")
    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=0)
    producer.flush(PATIENCE_S)
    producer.abort_transaction()
    # The marker follows the answer, and the position is behind it.
    alive = (one.bootstrap for number, one in cluster.brokers.items() if number != victim)
    wait_until_ended(",".join(alive), topic)
    assert newest_epoch(cluster.bootstrap, topic) > before
    for _ in range(2):
        pair.once("--topics", topic)
        (one,) = pair.items("status", "--over", "0")
        assert (one["position"], one["lag"]) == (len(wanted) + 2, 0)
    wanted += fill(cluster.bootstrap, topic, [0], "second")
    pair.once("--topics", topic)
    assert values(pair.target, f"east.{topic}") == wanted
    pair.verified()
