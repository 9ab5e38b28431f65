"""Batches, and what they are predicted to take."""

import pytest
from hypothesis import given, settings

from pyrklog.balance.model import Cluster, Partition, Wish, copied_bytes
from pyrklog.balance.planner import make_plan
from pyrklog.balance.prediction import (
    FLOWS_MAX,
    STEP_S,
    Copy,
    Limit,
    in_batches,
    predict,
    seconds,
)
from tests.unit.balance.clusters import GB, broker, cluster_of, clusters

RATE = 100_000_000


def copy(source: int, target: int, size: int, rate_in: float = 0.0) -> Copy:
    return Copy(("t", 0), source, target, size, rate_in)


def test_one_copy_takes_its_bytes_at_the_rate() -> None:
    assert seconds([copy(1, 2, 10 * GB)], RATE) == 100.0
    assert seconds([], RATE) == 0.0


def test_what_producers_write_meanwhile_is_copied_too() -> None:
    assert seconds([copy(1, 2, 10 * GB, RATE / 2)], RATE) == 200.0
    assert seconds([copy(1, 2, 10 * GB, RATE)], RATE) is None, "it never gets there"


def test_a_source_shares_its_rate_and_a_pair_that_is_done_leaves_it() -> None:
    # Both have half until the smaller is there; then the larger has all.
    assert seconds([copy(1, 2, 2 * GB), copy(1, 3, 4 * GB)], RATE) == 60.0
    # Two sources for one target take as long as one of all.
    assert seconds([copy(1, 3, 3 * GB), copy(2, 3, 3 * GB)], RATE) == 60.0
    assert seconds([copy(1, 2, 3 * GB), copy(3, 4, 3 * GB)], RATE) == 30.0


def test_fair_shares_may_take_longer_than_the_busiest_broker() -> None:
    copies = [copy(1, 4, 2 * GB), copy(1, 5, 2 * GB), copy(2, 5, 2 * GB)]
    # All three have half; nobody is faster than broker 1 and broker 5 with 4 GB each.
    assert seconds(copies, RATE) == 40.0


def test_with_many_pairs_the_busiest_broker_counts() -> None:
    copies = [copy(source, 1000, GB) for source in range(FLOWS_MAX + 1)]
    assert seconds(copies, RATE) == pytest.approx((FLOWS_MAX + 1) * 10.0)
    growing = [copy(source, 1000, GB, RATE / 10) for source in range(FLOWS_MAX + 1)]
    assert seconds(growing, RATE) is None


def test_batches_keep_the_limit_and_the_largest_come_first() -> None:
    cluster = cluster_of([(1,)] * 4, [1, 2, 3], [GB, 5 * GB, 2 * GB, 7 * GB])
    changed = {("t", 0): (2,), ("t", 1): (2,), ("t", 2): (3,), ("t", 3): (3,)}
    by_number = in_batches(cluster, changed, Limit(partitions=2))
    assert by_number == [[("t", 1), ("t", 3)], [("t", 2), ("t", 0)]]
    by_bytes = in_batches(cluster, changed, Limit(bytes=6 * GB))
    assert by_bytes == [[("t", 1)], [("t", 3)], [("t", 2), ("t", 0)]]
    assert in_batches(cluster, changed) == [[("t", 1), ("t", 3), ("t", 2), ("t", 0)]]
    assert in_batches(cluster, {}) == []


def test_new_orders_cost_nothing_and_come_first() -> None:
    cluster = cluster_of([(1, 2), (1, 2)], [1, 2, 3])
    changed = {("t", 0): (1, 3), ("t", 1): (2, 1)}
    batches = in_batches(cluster, changed, Limit(partitions=1))
    assert batches == [[("t", 1)], [("t", 0)]]
    found = predict(cluster, changed, batches, RATE)
    assert [one.bytes for one in found.batches] == [0, GB]
    assert [one.seconds for one in found.batches] == [STEP_S, 10.0 + STEP_S]


def test_the_leader_of_today_gives() -> None:
    one = Partition((1, 2), GB, leader=2)
    cluster = Cluster({number: broker(number) for number in (1, 2, 3)}, {("t", 0): one})
    found = predict(cluster, {("t", 0): (1, 3)}, [[("t", 0)]], RATE)
    assert found.brokers[2].out_bytes == found.brokers[3].in_bytes == GB
    assert set(found.brokers) == {2, 3}
    assert found.seconds == 10.0 + STEP_S


def test_a_plan_that_never_ends_has_no_time() -> None:
    cluster = Cluster({1: broker(1), 2: broker(2)}, {("t", 0): Partition((1,), GB, 2.0 * RATE)})
    assert predict(cluster, {("t", 0): (2,)}, [[("t", 0)]], RATE).seconds is None


@given(clusters())
@settings(max_examples=80, deadline=None)
def test_each_partition_is_in_one_batch_and_each_byte_is_counted(cluster: Cluster) -> None:
    changed = make_plan(cluster, Wish(sorted(cluster.brokers))).changed
    for limit in (None, Limit(partitions=3), Limit(bytes=2 * GB)):
        batches = in_batches(cluster, changed, limit)
        keys = [key for batch in batches for key in batch]
        assert sorted(keys) == sorted(changed)
        found = predict(cluster, changed, batches, RATE)
        assert found.bytes == copied_bytes(cluster, changed)
        assert sum(one.in_bytes for one in found.brokers.values()) == found.bytes
        assert sum(one.out_bytes for one in found.brokers.values()) == found.bytes
        if limit is not None and limit.partitions:
            assert all(len(batch) <= limit.partitions for batch in batches)
        if limit is not None and limit.bytes:
            heavy = [one for one in found.batches if one.bytes > limit.bytes]
            assert all(
                sum(_size(cluster, changed, key) > 0 for key in one.keys) == 1 for one in heavy
            )
        if found.seconds is not None:
            busiest = max(
                (max(one.in_bytes, one.out_bytes) for one in found.brokers.values()), default=0
            )
            assert found.seconds >= busiest / RATE - 1e-6


def _size(
    cluster: Cluster, changed: dict[tuple[str, int], tuple[int, ...]], key: tuple[str, int]
) -> int:
    return copied_bytes(cluster, {key: changed[key]})
