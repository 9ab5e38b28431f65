"""A stream's life, step by step, over a cluster whose logs the test moves."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrklog.spark.offsets import TopicPartition
from pyrklog.spark.resolve import SelectionError
from pyrklog.spark.stream_engine import LAGGING_MOST_S, DataLossError
from pyrklog.spark.view import TopicView
from tests.support.engine_stream import Stream
from tests.support.fake_cluster import FakeCluster, FakeLog


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.topic("a", 10, 20)
    return made


def test_batches_follow_each_other(cluster: FakeCluster) -> None:
    stream = Stream(cluster)
    assert stream.batch() == {"a-0": (0, 10), "a-1": (0, 20)}
    assert stream.batch() == {}
    cluster.log("a", 1).last = 25
    assert stream.batch() == {"a-1": (20, 25)}


def test_nothing_to_read_is_the_same_text(cluster: FakeCluster) -> None:
    """Also when an epoch has become known: Spark would run an empty batch."""
    stream = Stream(cluster, startingOffsets='{"a": {"0": 10, "1": 20}}')
    assert not stream.plan()
    cluster.log("a").epoch = 9
    assert not stream.plan()


def test_a_first_batch_is_repeated_as_it_was(cluster: FakeCluster) -> None:
    """The driver dies after the plan; ``latest`` is another offset when it is asked for again."""
    stream = Stream(cluster, startingOffsets="latest")
    assert not stream.plan()
    cluster.log("a").last = 15
    assert stream.plan()
    cluster.log("a").last = 100
    cluster.log("a", 1).last = 100
    stream.restart()
    assert stream.last_ranges() == {"a-0": (10, 15)}
    assert stream.batch() == {"a-0": (15, 100), "a-1": (20, 100)}


def test_an_empty_first_batch_is_repeated_as_nothing(cluster: FakeCluster) -> None:
    """Spark may run and keep one."""
    stream = Stream(cluster, startingOffsets="latest")
    stream.kept.append(json.dumps(stream.engine.initial()))
    cluster.log("a").last = 15
    stream.restart()
    assert stream.engine.tasks(stream.engine.initial(), json.loads(stream.kept[0])) == []
    assert stream.batch() == {"a-0": (10, 15)}


def test_a_batch_with_a_new_partition_is_repeated_as_it_was(cluster: FakeCluster) -> None:
    stream = Stream(cluster)
    stream.batch()
    cluster.logs[TopicPartition("a", 2)] = FakeLog(last=7)
    assert stream.plan()
    cluster.log("a", 2).last = 9
    stream.restart()
    assert stream.last_ranges() == {"a-2": (0, 7)}
    assert stream.batch() == {"a-2": (7, 9)}


def test_an_added_partition_that_was_trimmed_is_a_loss(cluster: FakeCluster) -> None:
    stream = Stream(cluster)
    stream.batch()
    cluster.logs[TopicPartition("a", 2)] = FakeLog(first=3, last=7)
    with pytest.raises(DataLossError, match="a-2 was added and begins at offset 3"):
        stream.plan()


def test_a_topic_that_is_new_to_the_stream_is_read_from_its_beginning(cluster: FakeCluster) -> None:
    """Also if retention has been there before: the stream was never promised those records."""
    stream = Stream(cluster, subscribe="a,b")
    cluster.topic("b", 4)
    stream.batch()
    stream.options["subscribe"] = "a,b,c"
    cluster.topic("c", 9)
    cluster.log("c").first = 5
    stream.restart()
    assert stream.batch() == {"c-0": (5, 9)}


@pytest.mark.parametrize("fails", [True, False])
def test_deleted_records_are_a_loss(cluster: FakeCluster, fails: bool) -> None:
    stream = Stream(cluster, failOnDataLoss=str(fails).lower())
    stream.batch()
    cluster.log("a").first, cluster.log("a").last = 14, 16
    if fails:
        with pytest.raises(DataLossError, match="offsets 10 to 13 of a-0 were deleted"):
            stream.plan()
        return
    assert stream.batch() == {"a-0": (14, 16)}
    assert stream.batch() == {}


def test_retention_of_what_was_read_is_no_loss(cluster: FakeCluster) -> None:
    stream = Stream(cluster)
    stream.batch()
    cluster.log("a").first = 10
    assert stream.batch() == {}


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_created_anew_is_a_loss(cluster: FakeCluster, fails: bool) -> None:
    """Even with as many records as before, which offsets alone cannot tell."""
    stream = Stream(cluster, failOnDataLoss=str(fails).lower())
    stream.batch()
    cluster.delete("a")
    cluster.topic("a", 10, 20, topic_id="another")
    if fails:
        with pytest.raises(DataLossError, match="topic a was deleted and created anew"):
            stream.plan()
        return
    assert stream.batch() == {"a-0": (0, 10), "a-1": (0, 20)}
    assert stream.batch() == {}


def test_a_topic_created_anew_and_empty_is_noticed_once(cluster: FakeCluster) -> None:
    stream = Stream(cluster, failOnDataLoss="false", startingOffsets='{"a": {"0": 0, "1": 0}}')
    cluster.topic("a", 0, 0)
    stream.plan()
    cluster.topic("a", 0, 0, topic_id="another")
    assert stream.plan()
    assert not stream.plan()


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_gone_is_a_loss(cluster: FakeCluster, fails: bool) -> None:
    cluster.topic("b", 5)
    stream = Stream(cluster, subscribe="a,b", failOnDataLoss=str(fails).lower())
    stream.batch()
    cluster.delete("b")
    cluster.log("a").last = 11
    if fails:
        with pytest.raises(DataLossError, match="topic b does not exist any more"):
            stream.plan()
        return
    assert stream.batch() == {"a-0": (10, 11)}
    cluster.topic("b", 3, topic_id="another")
    assert stream.batch() == {"b-0": (0, 3)}


def test_a_topic_that_is_deleted_while_it_is_asked_about(cluster: FakeCluster) -> None:
    cluster.topic("b", 5)
    stream = Stream(cluster, subscribe="a,b", failOnDataLoss="false")
    stream.batch()
    cluster.log("a").last = 11
    cluster.deleted_meanwhile = ["b"]
    assert stream.batch() == {"a-0": (10, 11)}


def test_brokers_are_asked_for_what_the_stream_knows(cluster: FakeCluster) -> None:
    """So that one which knows less makes no loss."""
    stream = Stream(cluster)
    stream.batch()
    assert cluster.expected == {"a": TopicView("id", (0, 1))}
    del stream.options["subscribe"]
    stream.options["subscribePattern"] = "a|b"
    stream.restart()
    stream.batch()
    assert cluster.expected == {"a": TopicView("id", (0, 1))}


def test_a_planned_batch_is_of_the_topic_that_was_planned(cluster: FakeCluster) -> None:
    """Tasks tell it from one that was created anew since."""
    stream = Stream(cluster)
    assert stream.plan()
    cluster.topic("a", 10, 20, topic_id="another")
    stream.restart()
    tasks = stream.engine.tasks(stream.engine.initial(), json.loads(stream.kept[0]))
    assert [one.topic_id for one in tasks] == ["id", "id"]


def test_an_end_that_moved_back_is_waited_for(cluster: FakeCluster) -> None:
    """A new leader's high watermark lags: the others go on, the leader is asked now and then."""
    stream = Stream(cluster)
    stream.batch()
    cluster.log("a").last, cluster.log("a").epoch = 8, 1
    cluster.log("a", 1).last = 30
    assert stream.batch() == {"a-1": (20, 30)}
    for _ in range(10):
        assert stream.batch() == {}
    assert cluster.truncation_checks == 1
    stream.now_s += 1000
    assert stream.batch() == {}
    assert cluster.truncation_checks == 2
    cluster.log("a").last = 12
    assert stream.batch() == {"a-0": (10, 12)}


@pytest.mark.parametrize("fails", [True, False])
def test_a_truncated_log_is_a_loss(cluster: FakeCluster, fails: bool) -> None:
    stream = Stream(cluster, failOnDataLoss=str(fails).lower())
    stream.batch()
    cluster.log("a").last, cluster.log("a").is_truncated = 8, True
    if fails:
        with pytest.raises(DataLossError, match="a-0 was truncated to offset 8"):
            stream.plan()
        return
    assert stream.batch() == {}
    cluster.log("a").last = 11
    assert stream.batch() == {"a-0": (8, 11)}


def test_several_truncated_logs_are_found_one_after_the_other(cluster: FakeCluster) -> None:
    stream = Stream(cluster, failOnDataLoss="false")
    stream.batch()
    for number in range(2):
        cluster.log("a", number).last, cluster.log("a", number).is_truncated = 8, True
    for _ in range(2):
        stream.batch()
    cluster.log("a").last = cluster.log("a", 1).last = 11
    assert stream.batch() == {"a-0": (8, 11), "a-1": (8, 11)}


def test_without_an_epoch_an_end_is_waited_for_a_minute(cluster: FakeCluster) -> None:
    stream = Stream(cluster, startingOffsets='{"a": {"0": 12, "1": 20}}')
    assert not stream.plan()
    stream.now_s = LAGGING_MOST_S - 1
    assert not stream.plan()
    stream.now_s = LAGGING_MOST_S
    with pytest.raises(DataLossError, match="a-0 ends at offset 10 since 60 s"):
        stream.plan()
    assert cluster.truncation_checks == 0


@pytest.mark.parametrize("fails", [True, False])
def test_available_now_tells_a_log_that_was_made_anew(cluster: FakeCluster, fails: bool) -> None:
    """Without epoch and id no question tells it from a leader that lags: the run waits for that,
    after it has read all else."""
    stream = Stream(cluster, failOnDataLoss=str(fails).lower())
    stream.kept.append('{"a": {"0": 12, "1": 15}}')
    stream.engine.prepare_available_now()
    assert stream.batch() == {"a-1": (15, 20)}
    assert stream.now_s == 0
    if fails:
        with pytest.raises(DataLossError, match="a-0 ends at offset 10 since 60 s"):
            stream.plan()
        assert stream.now_s == LAGGING_MOST_S
        return
    assert stream.plan()
    assert stream.last_ranges() == {}
    assert not stream.plan()
    stream.restart()
    cluster.log("a").last = 13
    stream.engine.prepare_available_now()
    assert stream.batch() == {"a-0": (10, 13)}


def test_available_now_goes_on_when_a_leader_has_caught_up(cluster: FakeCluster) -> None:
    stream = Stream(cluster)
    stream.kept.append('{"a": {"0": 12, "1": 20}}')
    stream.engine.prepare_available_now()
    looks = iter(range(3))

    def catch_up(seconds: float) -> None:
        stream.now_s += seconds
        cluster.log("a").last += next(looks)

    stream.engine._sleep = catch_up
    assert not stream.plan()
    assert cluster.log("a").last == 13


def test_what_an_open_transaction_holds_back_is_no_loss(cluster: FakeCluster) -> None:
    """As a checkpoint of a query that read uncommitted records."""
    stream = Stream(cluster)
    stream.kept.append('{"a": {"0": 14, "1": 20}}')
    cluster.log("a").uncommitted = 4
    for _ in range(3):
        assert not stream.plan()
        stream.now_s += LAGGING_MOST_S
    stream.engine.prepare_available_now()
    before_s = stream.now_s
    assert not stream.plan()
    assert stream.now_s == before_s
    cluster.log("a").last, cluster.log("a").uncommitted = 16, 0
    stream.engine.prepare_available_now()
    assert stream.batch() == {"a-0": (14, 16)}


@pytest.mark.parametrize("gone", [True, False])
def test_open_transactions_hide_no_loss(cluster: FakeCluster, gone: bool) -> None:
    """Too few records of theirs, or a topic that is gone when this is asked."""
    stream = Stream(cluster)
    stream.kept.append('{"a": {"0": 14, "1": 20}}')
    cluster.log("a").uncommitted = 4 if gone else 3
    stream.high_watermarks.are_gone = gone
    assert not stream.plan()
    stream.now_s = LAGGING_MOST_S
    with pytest.raises(DataLossError, match="a-0 ends at offset 10 since 60 s"):
        stream.plan()


def test_many_losses_are_told_in_few_lines(cluster: FakeCluster) -> None:
    cluster.topic("a", *[10] * 40)
    stream = Stream(cluster)
    stream.batch()
    for number in range(40):
        cluster.log("a", number).first = cluster.log("a", number).last = 11
    with pytest.raises(DataLossError, match="and 30 more losses") as caught:
        stream.plan()
    assert len(str(caught.value).splitlines()) == 12


def test_available_now_ends_at_its_target(cluster: FakeCluster) -> None:
    """Records and partitions that come later are the next run's, however small the batches are."""
    stream = Stream(cluster, maxOffsetsPerTrigger="7", minOffsetsPerTrigger="5")
    stream.engine.prepare_available_now()
    batches = 0
    while stream.batch():
        batches += 1
        cluster.log("a").last += 100
        cluster.logs.setdefault(TopicPartition("a", 2), FakeLog(last=5))
    assert {place: len(read) for place, read in stream.read.items()} == {
        TopicPartition("a", 0): 10,
        TopicPartition("a", 1): 20,
    }
    assert batches == 5
    stream.options["maxOffsetsPerTrigger"] = "100000"
    stream.restart()
    stream.engine.prepare_available_now()
    assert stream.batch() == {"a-0": (10, 510), "a-2": (0, 5)}
    assert stream.batch() == {}


def test_a_trigger_that_lifts_limits(cluster: FakeCluster) -> None:
    stream = Stream(cluster, maxOffsetsPerTrigger="1", maxBytesPerTrigger="1")
    assert stream.batch(is_limited=False) == {"a-0": (0, 10), "a-1": (0, 20)}
    assert stream.sizes.samples == 0


def test_bytes_limit_a_batch(cluster: FakeCluster) -> None:
    stream = Stream(cluster, maxBytesPerTrigger="1500")
    assert stream.batch() == {"a-0": (0, 5), "a-1": (0, 10)}


def test_few_records_are_put_off(cluster: FakeCluster) -> None:
    stream = Stream(cluster, minOffsetsPerTrigger="5", maxTriggerDelay="30s")
    assert stream.batch()
    cluster.log("a").last += 4
    assert stream.batch() == {}
    stream.now_s = 30.0
    assert stream.batch() == {"a-0": (10, 14)}
    cluster.log("a").last += 5
    assert stream.batch() == {"a-0": (14, 19)}


def test_the_group_is_told_what_is_finished(cluster: FakeCluster) -> None:
    """Without waiting for Spark's commit, which comes a batch later, and never for the last one."""
    stream = Stream(cluster)
    stream.batch()
    assert stream.group.commits == []
    stream.plan()
    assert [one.number for one in stream.group.commits] == [1]
    assert stream.group.commits[0].positions[TopicPartition("a", 1)] == (20, 0)
    stream.engine.commit(stream.engine.initial())
    stream.engine.commit(json.loads(stream.kept[0]))
    assert [one.number for one in stream.group.commits] == [1, 1]
    stream.batch()
    cluster.log("a").last += 1
    stream.batch()
    stream.plan()
    stream.engine.commit(json.loads(stream.kept[0]))
    assert [one.number for one in stream.group.commits][-1] == 2
    stream.engine.stop()
    assert stream.group.is_closed
    assert cluster.is_closed
    assert stream.high_watermarks.is_closed


def test_the_report_is_what_the_brokers_have(cluster: FakeCluster) -> None:
    stream = Stream(cluster, maxOffsetsPerTrigger="1")
    assert stream.engine.report() is None
    stream.batch()
    report = stream.engine.report()
    assert report is not None
    assert report["topics"] == {
        "a": {
            "id": "id",
            "partitions": {"0": {"offset": 10, "epoch": 0}, "1": {"offset": 20, "epoch": 0}},
        }
    }


def test_a_stock_checkpoint_goes_on(cluster: FakeCluster) -> None:
    stream = Stream(cluster)
    stream.kept.append('{"a": {"0": 4, "1": 20}}')
    assert stream.batch() == {"a-0": (4, 10)}


def test_the_start_must_exist(cluster: FakeCluster) -> None:
    with pytest.raises(SelectionError, match="there is no topic b, c"):
        Stream(cluster, subscribe="a,b,c").start()


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("subscribe", "a,orders,z", "there is no topic orders, z"),
        ("assign", '{"a": [0, 1], "orders": [0]}', "there is no topic orders"),
        ("assign", '{"a": [0, 1, 7]}', "there is no partition a-7"),
    ],
)
def test_a_name_that_a_restart_adds_must_exist(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, name: str, value: str, told: str
) -> None:
    """Else a misspelt topic would be waited for in silence."""
    stream = Stream(cluster)
    stream.batch()
    del stream.options["subscribe"]
    stream.options[name] = value
    stream.restart()
    for _ in range(2):
        with pytest.raises(SelectionError, match=told):
            stream.plan()
    stream.options["failOnDataLoss"] = "false"
    stream.restart()
    cluster.log("a").last = 12
    assert stream.batch() == {"a-0": (10, 12)}
    assert stream.batch() == {}
    assert [told in one.getMessage() for one in caplog.records] == [True]


def test_a_name_that_the_stream_knew_is_a_loss(cluster: FakeCluster) -> None:
    """Also after a restart, and by number."""
    stream = Stream(cluster)
    stream.batch()
    del stream.options["subscribe"]
    stream.options["assign"] = '{"a": [0, 1]}'
    cluster.delete("a")
    stream.restart()
    with pytest.raises(DataLossError, match="topic a does not exist any more"):
        stream.plan()


def test_topics_that_the_query_gives_up_are_no_loss(cluster: FakeCluster) -> None:
    cluster.topic("b", 5)
    stream = Stream(cluster, subscribe="a,b")
    stream.batch()
    stream.options["subscribe"] = "a"
    cluster.log("b").last = 9
    stream.restart()
    assert stream.batch() == {}
    del stream.options["subscribe"]
    stream.options["assign"] = '{"a": [1]}'
    stream.restart()
    cluster.log("a").last = cluster.log("a", 1).last = 30
    assert stream.batch() == {"a-1": (20, 30)}
    # And back: what retention took meanwhile was not this stream's.
    stream.options["assign"] = '{"a": [0, 1]}'
    cluster.log("a").first = 7
    stream.restart()
    assert stream.batch() == {"a-0": (7, 30)}


def test_a_pattern_takes_topics_when_they_come(cluster: FakeCluster) -> None:
    cluster.topic("ab", 1)
    stream = Stream(cluster)
    del stream.options["subscribe"]
    stream.options["subscribePattern"] = "^b"
    stream.restart()
    assert not stream.plan()
    cluster.topic("b1", 3)
    assert stream.batch() == {"b1-0": (0, 3)}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_each_record_is_read_once_whatever_happens(data: st.DataObject) -> None:
    """Growth, added partitions, lagging leaders, retention of what was read, and restarts at any
    step, under any limits: the rows are those of the logs, in order."""
    cluster = FakeCluster()
    cluster.topic("a", 5, 0)
    options = {"maxOffsetsPerTrigger": str(data.draw(st.integers(1, 30)))}
    if data.draw(st.booleans()):
        options["maxBytesPerTrigger"] = str(data.draw(st.integers(50, 2000)))
    stream = Stream(cluster, **options)
    ends = {place: log.last for place, log in cluster.logs.items()}
    for _ in range(data.draw(st.integers(1, 25))):
        step = data.draw(st.sampled_from(["grow", "add", "lag", "trim", "restart", "batch"]))
        place = data.draw(st.sampled_from(sorted(cluster.logs)))
        log = cluster.logs[place]
        if step == "grow":
            ends[place] += data.draw(st.integers(1, 20))
            log.last = ends[place]
        elif step == "add":
            added = TopicPartition("a", len(cluster.logs))
            ends[added] = data.draw(st.integers(0, 9))
            cluster.logs[added] = FakeLog(last=ends[added])
        elif step == "lag":
            log.last, log.epoch = data.draw(st.integers(log.first, log.last)), log.epoch + 1
        elif step == "trim":
            log.first = min(log.last, len(stream.read.get(place, [])))
        elif step == "restart":
            stream.restart()
        else:
            stream.batch()
    for place, log in cluster.logs.items():
        log.last = ends[place]
    while stream.batch():
        assert sum(map(len, stream.read.values())) <= sum(ends.values())
    assert stream.read == {place: list(range(end)) for place, end in ends.items() if end}
