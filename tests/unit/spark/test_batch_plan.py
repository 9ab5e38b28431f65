"""What a batch read reads, over a cluster of numbers."""

from __future__ import annotations

import logging
from collections.abc import Collection

import pytest

from pyrklog.spark.batch_plan import plan_batch
from pyrklog.spark.cluster import ClusterError, GoneError
from pyrklog.spark.conditions import Condition, Operator
from pyrklog.spark.narrowing import EVERYWHERE, Narrowing, narrowing
from pyrklog.spark.offsets import OffsetRange, Position, TopicPartition
from pyrklog.spark.options import parse
from pyrklog.spark.resolve import SelectionError
from pyrklog.spark.stream_engine import DataLossError
from tests.support.fake_cluster import FakeCluster, FakeHighWatermarks, FakeSizes


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.topic("a", 10, 20)
    made.log("a").first = 3
    made.log("a").times = {3: 1000, 5: 2000, 9: 1500}
    made.log("a", 1).times = {0: 1000, 19: 9000}
    return made


def plan(
    cluster: FakeCluster, where: Narrowing = EVERYWHERE, /, **options: str
) -> list[tuple[int, int, int]]:
    """(partition, start, end) of each task."""
    return [(one.partition, one.start, one.end) for one in tasks(cluster, where, **options)]


def tasks(
    cluster: FakeCluster, where: Narrowing = EVERYWHERE, /, **options: str
) -> list[OffsetRange]:
    given = {"kafka.bootstrap.servers": "h:1"} | options
    if not {"assign", "subscribePattern"} & given.keys():
        given.setdefault("subscribe", "a")
    parsed = parse(given, is_stream=False)
    return plan_batch(parsed, cluster, FakeHighWatermarks(cluster), FakeSizes(), where)


def test_everything(cluster: FakeCluster) -> None:
    assert plan(cluster) == [(0, 3, 10), (1, 0, 20)]
    cluster.log("a").epoch = 4
    assert tasks(cluster)[0].epoch == 4


def test_some_partitions(cluster: FakeCluster) -> None:
    assert plan(cluster, assign='{"a": [1]}') == [(1, 0, 20)]
    cluster.topic("b", 2)
    cluster.topic("ab", 3)
    found = tasks(cluster, subscribePattern="^[ab]$")
    assert {(one.topic, one.partition) for one in found} == {("a", 0), ("a", 1), ("b", 0)}
    found = tasks(cluster, subscribePattern="b")
    assert {one.topic for one in found} == {"ab", "b"}
    assert plan(cluster, subscribePattern="z") == []


def test_offsets(cluster: FakeCluster) -> None:
    assert plan(
        cluster,
        startingOffsets='{"a": {"0": 4, "1": -2}}',
        endingOffsets='{"a": {"0": 8, "1": -1}}',
    ) == [(0, 4, 8), (1, 0, 20)]
    empty = '{"a": {"0": 5, "1": 7}}'
    assert plan(cluster, startingOffsets=empty, endingOffsets=empty) == []


def test_timestamps(cluster: FakeCluster) -> None:
    found = plan(cluster, startingTimestamp="1400", endingTimestamp="9000")
    assert found == [(0, 5, 10)]
    by_partition = '{"a": {"0": 1400, "1": 500}}'
    assert plan(cluster, startingOffsetsByTimestamp=by_partition) == [(0, 5, 10), (1, 0, 20)]


def test_a_time_after_the_last_record(cluster: FakeCluster) -> None:
    with pytest.raises(SelectionError, match="no record is so late in a-0"):
        plan(cluster, startingTimestamp="9000")
    assert plan(cluster, startingTimestamp="9000", startingOffsetsByTimestampStrategy="latest") == [
        (1, 19, 20)
    ]


def test_tasks_are_cut(cluster: FakeCluster) -> None:
    assert len(plan(cluster, minPartitions="5")) == 5
    assert max(end - start for _, start, end in plan(cluster, maxRecordsPerPartition="4")) == 4
    assert len(plan(cluster, maxBytesPerPartition="1000")) == 3


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "a,b"}, "there is no topic b"),
        ({"assign": '{"a": [0, 7]}'}, "there is no partition a-7"),
        ({"startingOffsets": '{"a": {"0": 5}}'}, "startingOffsets has nothing for a-1"),
        ({"startingOffsets": '{"a": {"0": 5, "1": 5, "2": 5}}'}, "names a-2, not read here"),
        ({"startingOffsets": '{"b": {"0": 5}}'}, "has nothing for a-0, a-1"),
        (
            {
                "startingOffsets": '{"a": {"0": 9, "1": 0}}',
                "endingOffsets": '{"a": {"0": 8, "1": 0}}',
            },
            "a-0 would be read from offset 9 to 8",
        ),
    ],
)
def test_what_is_not_there_is_named(
    cluster: FakeCluster, options: dict[str, str], told: str
) -> None:
    with pytest.raises(SelectionError, match=told):
        plan(cluster, **options)


def test_a_topic_with_a_like_name_is_proposed(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.topic("greetings", 5)
    told = r"^there is no topic b, greeting; did you mean greetings\?$"
    with pytest.raises(SelectionError, match=told):
        plan(cluster, subscribe="a,greeting,b")

    def refused() -> list[str]:
        raise ClusterError("topics cannot be listed")

    monkeypatch.setattr(cluster, "topic_names", refused)
    with pytest.raises(SelectionError, match=r"^there is no topic greeting$"):
        plan(cluster, subscribe="a,greeting")


def test_a_start_beyond_the_end_is_a_loss(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a topic made anew, say: no rows would look like nothing new."""
    beyond = {"startingOffsets": '{"a": {"0": 11, "1": 0}}'}
    told = "a-0 ends at offset 10, before the start 11"
    with pytest.raises(DataLossError, match=told):
        plan(cluster, **beyond)
    with pytest.raises(DataLossError, match=told):
        plan(cluster, **beyond, endingTimestamp="9000")
    assert plan(cluster, **beyond, failOnDataLoss="false") == [(1, 0, 20)]
    assert told in caplog.text
    assert plan(cluster, startingOffsets='{"a": {"0": 10, "1": 20}}') == []


def test_a_start_in_an_open_transaction_is_no_loss(cluster: FakeCluster) -> None:
    cluster.log("a").uncommitted = 3
    assert plan(cluster, startingOffsets='{"a": {"0": 13, "1": 0}}') == [(1, 0, 20)]
    with pytest.raises(DataLossError, match="a-0 ends at offset 13, before the start 14"):
        plan(cluster, startingOffsets='{"a": {"0": 14, "1": 0}}')


def test_a_start_before_the_times_end_is_no_loss(cluster: FakeCluster) -> None:
    given = {"startingOffsets": '{"a": {"0": 8, "1": 0}}', "endingTimestamp": "1400"}
    assert plan(cluster, **given) == [(1, 0, 19)]


def test_offsets_that_are_gone_are_a_loss(cluster: FakeCluster) -> None:
    """An end that is not there would be waited for in vain."""
    given = {
        "startingOffsets": '{"a": {"0": 1, "1": 0}}',
        "endingOffsets": '{"a": {"0": 8, "1": 25}}',
    }
    with pytest.raises(DataLossError) as caught:
        plan(cluster, **given)
    assert "a-0 begins at offset 3, behind the start 1" in str(caught.value)
    assert "a-1 ends at offset 20, before the end 25" in str(caught.value)
    assert plan(cluster, failOnDataLoss="false", **given) == [(0, 3, 8), (1, 0, 20)]


def test_an_end_in_an_open_transaction_is_no_loss(cluster: FakeCluster) -> None:
    """The task waits for it; who reads uncommitted records has no last stable offset."""
    given = {"endingOffsets": '{"a": {"0": 8, "1": 25}}'}
    cluster.log("a", 1).uncommitted = 5
    assert plan(cluster, **given) == [(0, 3, 8), (1, 0, 25)]
    with pytest.raises(DataLossError, match="a-1 ends at offset 20, before the end 25"):
        plan(cluster, **given, **{"kafka.isolation.level": "read_uncommitted"})
    cluster.log("a", 1).uncommitted = 4
    with pytest.raises(DataLossError, match="a-1 ends at offset 20, before the end 25"):
        plan(cluster, **given)


SECOND = narrowing([Condition("partition", Operator.EQUAL, 1)])


def test_conditions_narrow_before_tasks_are_cut(cluster: FakeCluster) -> None:
    cluster.log("a").epoch = cluster.log("a", 1).epoch = 4
    where = narrowing([Condition("offset", Operator.LESS, 8)])
    found = tasks(cluster, where, minPartitions="4")
    assert len(found) == 4
    assert sum(one.size for one in found) == 5 + 8
    # The epoch is that of the record before the start: another start has none.
    assert [one.epoch for one in tasks(cluster, where)] == [4, 4]
    where = narrowing([Condition("offset", Operator.GREATER, 4)])
    assert [(one.start, one.epoch) for one in tasks(cluster, where)] == [(5, -1), (5, -1)]


def test_a_time_moves_starts(cluster: FakeCluster) -> None:
    cluster.log("a").epoch = 4
    where = Narrowing(least_ms=1400)
    assert plan(cluster, where) == [(0, 5, 10), (1, 19, 20)]
    assert tasks(cluster, where)[0].epoch == 4
    later = {"startingOffsets": '{"a": {"0": 7, "1": -2}}'}
    assert plan(cluster, where, **later) == [(0, 7, 10), (1, 19, 20)]
    assert plan(cluster, Narrowing(least_ms=2500)) == [(1, 19, 20)]
    assert plan(cluster, Narrowing(least_ms=9500)) == []
    assert plan(cluster, Narrowing(least_ms=0)) == plan(cluster)


class Doubtful(FakeCluster):
    """Finds no record, whatever the time."""

    refuses: Exception | None = None
    asked: tuple[TopicPartition, ...] = ()

    def offsets(self, wanted, passing=frozenset()):  # type: ignore[no-untyped-def]
        if any(what.kind.value == "timestamp" for what in wanted.values()):
            if self.refuses is not None:
                raise self.refuses
            return dict.fromkeys(wanted, Position(-1))
        return super().offsets(wanted, passing)

    def latest_times(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if self.refuses is not None:
            raise self.refuses
        self.asked = tuple(sorted(places))
        return super().latest_times(places)


@pytest.fixture
def doubtful() -> Doubtful:
    made = Doubtful()
    made.topic("a", 10, 20, 30)
    made.log("a").times = {3: 1000}
    made.log("a", 1).times = {4: 5000}
    return made


def test_that_none_is_found_is_no_proof(doubtful: Doubtful) -> None:
    """The latest time of a log is one, where it is known."""
    assert plan(doubtful, Narrowing(least_ms=2000)) == [(1, 0, 20), (2, 0, 30)]
    assert doubtful.asked == tuple(TopicPartition("a", number) for number in range(3))
    assert plan(doubtful, Narrowing(least_ms=1000)) == plan(doubtful)


def test_what_a_leader_lacks_may_be_late(
    doubtful: Doubtful, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that was replaced meanwhile knows neither that nor the last records."""
    whole = plan(doubtful)
    latest_times = doubtful.latest_times

    def replaced(places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        doubtful.log("a").last = 9
        return latest_times(places)

    monkeypatch.setattr(doubtful, "latest_times", replaced)
    assert plan(doubtful, Narrowing(least_ms=2000)) == whole


def test_a_question_about_times_that_is_refused_narrows_nothing(
    doubtful: Doubtful, caplog: pytest.LogCaptureFixture
) -> None:
    doubtful.refuses = ClusterError("messages have no timestamps")
    with caplog.at_level(logging.WARNING):
        assert plan(doubtful, Narrowing(least_ms=2000)) == plan(doubtful)
    assert "does not narrow what is read: messages have no timestamps" in caplog.text
    doubtful.refuses = GoneError("a-1 does not exist any more", {"a"})
    with pytest.raises(GoneError):
        plan(doubtful, Narrowing(least_ms=2000))


def test_losses_are_told_of_what_is_asked_about(cluster: FakeCluster) -> None:
    """Also if the condition does not want the lost records."""
    given = {"startingOffsets": '{"a": {"0": 1, "1": 0}}'}
    late = narrowing([Condition("offset", Operator.GREATER, 5)])
    with pytest.raises(DataLossError, match="a-0 begins at offset 3, behind the start 1"):
        plan(cluster, late, **given)
    assert plan(cluster, late, failOnDataLoss="false", **given) == [(0, 6, 10), (1, 6, 20)]
    assert plan(cluster, SECOND, **given) == [(1, 0, 20)]


def test_mistakes_are_told_wherever_rows_can_be(cluster: FakeCluster) -> None:
    with pytest.raises(SelectionError, match="startingOffsets has nothing for a-0"):
        plan(cluster, SECOND, startingOffsets='{"a": {"1": 5}}')
    with pytest.raises(SelectionError, match="names a-2, not read here"):
        plan(cluster, SECOND, startingOffsets='{"a": {"0": 5, "1": 5, "2": 5}}')
    with pytest.raises(SelectionError, match="there is no topic b"):
        plan(cluster, SECOND, subscribe="a,b")
    nowhere = narrowing([Condition("topic", Operator.EQUAL, "b")])
    assert plan(cluster, nowhere) == []


def test_a_table_is_read_to_its_end(cluster: FakeCluster) -> None:
    where = narrowing([Condition("offset", Operator.IN, (5, 7))])
    assert plan(cluster, where) == [(0, 5, 8), (1, 5, 8)]
    options = {"kafka.bootstrap.servers": "h:1", "table": "a"}
    parsed = parse(options, is_stream=False)
    found = plan_batch(parsed, cluster, FakeHighWatermarks(cluster), FakeSizes(), where)
    assert [(one.start, one.end) for one in found] == [(5, 10), (5, 20)]
