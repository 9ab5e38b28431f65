"""Which partitions of a stream get something where a batch has no room for all."""

from __future__ import annotations

import pytest

from pyrklog.spark.offsets import TopicPartition
from tests.support.engine_stream import Stream
from tests.support.fake_cluster import FakeCluster

HUGE = 10**9


@pytest.mark.parametrize("restarts", [True, False])
def test_small_backlogs_have_their_turn_beside_a_huge_one(restarts: bool) -> None:
    """A share of a record or less for each of them, in every batch: nobody waits for longer than a
    round, whatever the offsets are."""
    cluster = FakeCluster()
    cluster.topic("a", HUGE, 0, 0)
    stream = Stream(cluster, maxBytesPerTrigger=str(1 << 20))
    stream.sizes.sizes = {TopicPartition("a", 1): 250.0, TopicPartition("a", 2): 250.0}
    waited = {1: 0, 2: 0}
    for _ in range(20):
        for number in waited:
            cluster.log("a", number).last += 1
        if restarts:
            stream.restart()
        assert stream.plan()
        ranges = stream.last_ranges()
        for number in waited:
            waited[number] = 0 if f"a-{number}" in ranges else waited[number] + 1
        assert ranges["a-0"][1] - ranges["a-0"][0] > 10_000
        assert max(waited.values()) < 3


def test_a_backlog_has_its_turn_among_others_that_come_and_go() -> None:
    """Of two that come by turns each is first in its batch, if only batches are counted."""
    cluster = FakeCluster()
    cluster.topic("a", HUGE, 0, 0, 0)
    stream = Stream(cluster, maxBytesPerTrigger=str(1 << 20))
    stream.sizes.sizes = {TopicPartition("a", number): 250.0 for number in (1, 2, 3)}
    cluster.log("a", 2).last = 100
    served = []
    for batch in range(20):
        cluster.log("a", 1 + 2 * (batch % 2)).last += 1
        assert stream.plan()
        served.append("a-2" in stream.last_ranges())
    assert all(any(served[first : first + 3]) for first in range(18))
